"""Products with few rows or columns: our kernels against float64, and where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import programs_of
from tests.compiler.test_gemm import assert_product, laid, normal, own, run, tensors

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.kernels.gemm import select
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.skinny import skinny_kernel
from evergrad.core import dtypes

Array = np.ndarray[Any, Any]
_GUARD = 7.0
# Rows in order or columns in order, of A and of B.
TURNED = [(False, False), (False, True), (True, False), (True, True)]
VECTORS = [
    Vector("float", 16, 4), Vector("float", 8, 4), Vector("float", 4, 4),
    Vector("double", 8, 8), Vector("double", 4, 8), Vector("double", 2, 8),
]  # fmt: skip


def multiplied(a: Array, b: Array, vector: Vector, room: int = 0) -> Array | None:
    """The product by the kernel for few rows, if there is one; nothing beside it may be written."""
    product = Product(a, b, ())
    kernel = skinny_kernel(product, vector, product.n + room)
    if kernel is None:
        return None
    memory = np.full((product.m, product.n + room), _GUARD, a.dtype)
    run(kernel, a, b, memory)
    assert (memory[:, product.n :] == _GUARD).all()
    return memory[:, : product.n]


EXTENTS = [
    (1, 2, 1), (1, 300, 19), (2, 33, 8), (3, 530, 37), (4, 1100, 64), (7, 290, 100), (16, 600, 21),
    (1, 1, 50), (270, 1, 45), (301, 5, 130), (65, 16, 33), (5, 17, 300),
]  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.mangled)
@pytest.mark.parametrize("turned", TURNED)
def test_products_are_exact_to_rounding(vector: Vector, turned: tuple[bool, bool]) -> None:
    dtype = np.float32 if vector.size == 4 else np.float64
    done = 0
    for m, n, k in EXTENTS:
        # A vector with room between its elements is no matrix: it is copied before.
        room = 3 if min(m, n, k) > 1 else 0
        a = laid(normal(m, k).astype(dtype), turned[0], room)
        b = laid(normal(k, n, seed=1).astype(dtype), turned[1], room)
        found = multiplied(a, b, vector, room)
        if found is not None:
            assert_product(found, a, b)
            done += 1
    assert done >= 7


@pytest.mark.parametrize("turned", TURNED)
def test_nan_and_infinity_stay_in_their_rows_and_columns(turned: tuple[bool, bool]) -> None:
    a, b = normal(5, 43), normal(43, 310, seed=1)
    a[3, 5], a[4, 42], b[7, 309] = np.nan, np.inf, -np.inf
    found = multiplied(laid(a, turned[0]), laid(b, turned[1]), vector_for(dtypes.float32))
    assert found is not None
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.isfinite(found[np.isfinite(expected)]).all()


@own
@pytest.mark.parametrize(("extents", "turned", "is_few"), [
    ((1, 1024, 1024), (False, False), True), ((16, 2048, 2048), (False, True), True),
    ((1024, 1, 1024), (False, False), True), ((128, 10, 2048), (False, True), True),
    ((10, 2048, 128), (True, False), True), ((8, 192, 768), (False, False), False),
    ((1, 120, 400), (False, True), True), ((1, 120, 30), (False, True), False),
    ((1, 120, 400), (False, False), False), ((64, 64, 64), (False, False), False),
])  # fmt: skip
def test_which_products_have_few_rows(
    extents: tuple[int, int, int], turned: tuple[bool, bool], is_few: bool
) -> None:
    m, n, k = extents
    product = Product(laid(normal(m, k), turned[0]), laid(normal(k, n), turned[1]), ())
    for found in (dtypes.float32, dtypes.float64):
        assert (select.skinny_of(product, found, n) is not None) is is_few
    assert select.skinny_of(product, dtypes.int64, n) is None


@own
def test_a_linear_layer_of_few_samples_and_its_gradients() -> None:
    """All three products, the same for any number of threads."""

    def step(x: Any, w: Any) -> Any:
        result = F.linear(x, w)
        return result.detach(), *eg.autograd.grad(result.square().sum(), (x, w))

    for samples in (1, 6):
        given = [t.requires_grad_() for t in tensors((samples, 700), (900, 700))]
        compiled = eg.compile(step)
        found = []
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            results = compiled(*given)
            (program,) = programs_of(compiled)
            program.threads = threads
            results = compiled(*given)
            found.append([t.detach().numpy().tobytes() for t in results])
        assert found[0] == found[1] == found[2]
        exact = step(*[t.detach().double().requires_grad_() for t in given])
        for result, expected in zip(results, exact, strict=True):
            error = (result.detach().double() - expected.detach()).abs().max()
            # Elements near zero are differences of products as large as the largest ones.
            assert error <= 1e-6 * expected.detach().abs().max()
        kernels = {
            kernel.name.rpartition("_")[0]
            for i in program.instructions
            if i.kernel
            for kernel in (i.kernel, *i.kernel.calls.values())
        }
        assert {"gemm_dots", "gemm_sums"} <= kernels


@pytest.mark.parametrize("rows, depth", [(1024, 1024), (1024, 137), (700, 513), (65, 4096)])
def test_a_transposed_matrix_times_a_vector_reads_its_rows(rows: int, depth: int) -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((depth, rows)).astype(np.float32)
    x = rng.standard_normal(depth).astype(np.float32)
    step = eg.compile(lambda a, x: (a.T @ x, a.T @ x[:, None]))
    for found in step(eg.tensor(a), eg.tensor(x)):
        expected = a.T.astype(np.float64) @ x.astype(np.float64)
        np.testing.assert_allclose(found.numpy().reshape(-1), expected, rtol=1e-4, atol=1e-3)
    kernels = [i.kernel.name for p in programs_of(step) for i in p.instructions if i.kernel]
    assert any(name.startswith("gemm_sums") for name in kernels), kernels


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64"])
@pytest.mark.parametrize("shapes", [
    ((7, 1), (1, 9)), ((3, 7, 1), (1, 9)), ((3, 1, 5, 1), (2, 1, 6)), ((1, 1), (1, 1)),
])  # fmt: skip
def test_outer_products_are_loops(shapes: Any, dtype: str) -> None:
    rng = np.random.default_rng(6)
    a, b = (eg.tensor(3 * rng.standard_normal(s)).to(getattr(eg, dtype)) for s in shapes)
    step = eg.compile(lambda a, b: a @ b)
    found = step(a, b)
    assert found.dtype is a.dtype and eg.equal(found, a @ b)
    assert [i.label for p in programs_of(step) for i in p.instructions] == ["mul"]


def test_a_batch_of_one_updates_weights_in_one_loop() -> None:
    """The weight's gradient is an outer product, which the update of the weight reads."""
    eg.manual_seed(0)
    layer, x = eg.nn.Linear(30, 20), eg.randn(1, 30)
    optimizer = eg.optim.SGD(layer.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    before = layer.weight.detach().clone()
    y = layer(x).detach()
    compiled = eg.compile(step)
    compiled(x)
    expected = before - 0.1 * (2 * y).T * x
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected.numpy(), atol=1e-6)
    labels = [i.label for p in programs_of(compiled) for i in p.instructions]
    assert not [label for label in labels if "matmul" in label], labels
