"""Small products: our kernels against float64, and where they are used."""

from __future__ import annotations

from itertools import product as combinations
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_gemm import assert_product, laid, normal, own, run, tensors
from tests.compiler.test_gemm_skinny import TURNED, VECTORS

import evergrad as eg
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.kernels.gemm import select
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.small import small_kernel
from evergrad.core import dtypes

Array = np.ndarray[Any, Any]
_GUARD = 7.0
EXTENTS = [1, 2, 3, 5, 8, 13, 16, 17, 31, 64, 70]


def multiplied(a: Array, b: Array, vector: Vector, room: int = 0) -> Array:
    """The product by the kernel for small ones; nothing beside it may be written."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    product = Product(a, b, batch)
    kernel = small_kernel(product, vector, product.n + room)
    assert kernel is not None
    memory = np.full((*batch, product.m, product.n + room), _GUARD, a.dtype)
    run(kernel, a, b, memory)
    assert (memory[..., product.n :] == _GUARD).all()
    return memory[..., : product.n]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.mangled)
@pytest.mark.parametrize("turned", TURNED)
def test_products_are_exact_to_rounding(vector: Vector, turned: tuple[bool, bool]) -> None:
    dtype = np.float32 if vector.size == 4 else np.float64
    for m, n, k in combinations(EXTENTS, EXTENTS, (1, 4, 19, 33)):
        # A vector with room between its elements is no matrix: it is copied before.
        room = 3 if min(m, n, k) > 1 else 0
        a = laid(normal(m, k).astype(dtype), turned[0], room)
        b = laid(normal(k, n, seed=1).astype(dtype), turned[1], room)
        assert_product(multiplied(a, b, vector, room), a, b)


@pytest.mark.parametrize("turned", TURNED)
def test_batches(turned: tuple[bool, bool]) -> None:
    vector = VECTORS[0]
    for shapes in (((7, 3, 5), (7, 5, 4)), ((2, 3, 9, 2), (3, 2, 17)), ((5, 1, 4, 6), (3, 6, 20))):
        a, b = (laid(normal(*s, seed=n), turned[n]) for n, s in enumerate(shapes))
        found = multiplied(a, b, vector)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("turned", TURNED)
def test_nan_and_infinity_stay_in_their_rows_and_columns(turned: tuple[bool, bool]) -> None:
    a, b = normal(11, 6), normal(6, 21, seed=1)
    a[3, 2], b[1, 20] = np.nan, np.inf
    found = multiplied(laid(a, turned[0]), laid(b, turned[1]), VECTORS[0])
    spoilt = np.zeros_like(found, bool)
    spoilt[3], spoilt[:, 20] = True, True
    np.testing.assert_array_equal(np.isfinite(found), ~spoilt)


def test_a_narrow_result_is_computed_the_other_way_round() -> None:
    product = Product(normal(48, 16), normal(16, 1), ())
    kernel = small_kernel(product, VECTORS[0], 1)
    assert kernel is not None and kernel.numbers[:2] == [1, 48]


def test_what_does_not_stay_in_cache_is_not_small() -> None:
    assert small_kernel(Product(normal(1, 3000), normal(3000, 4), ()), VECTORS[0], 4) is None


@own
@pytest.mark.parametrize(("extents", "is_small"), [
    ((32, 16, 16), True), ((1, 128, 32), True), ((64, 10, 84), True), ((64, 84, 120), False),
])  # fmt: skip
def test_which_products_are_small(extents: tuple[int, int, int], is_small: bool) -> None:
    m, n, k = extents
    product = Product(normal(m, k), normal(k, n), ())
    assert (select.small_of(product, dtypes.float32, n) is not None) == is_small


@own
@pytest.mark.parametrize("dtype", [eg.float32, eg.float64])
def test_a_small_layer_and_its_gradients_without_openblas(
    dtype: Any, monkeypatch: pytest.MonkeyPatch, made_anew: None
) -> None:
    def refused(*given: Any) -> Any:
        raise AssertionError("OpenBLAS was asked for a small product")

    monkeypatch.setattr(select, "blas_kernel", refused)
    x, w = (t.to(dtype) for t in tensors((32, 9), (7, 9)))

    def gradients(x: Any, w: Any) -> Any:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return eg.autograd.grad(eg.nn.functional.linear(x, w).square().sum(), [x, w])

    for found, expected in zip(eg.compile(gradients)(x, w), gradients(x, w), strict=True):
        tolerance = 1e-4 if dtype is eg.float32 else 1e-12
        np.testing.assert_allclose(found.numpy(), expected.numpy(), tolerance, tolerance)
