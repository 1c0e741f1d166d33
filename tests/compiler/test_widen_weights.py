"""Products with weights of 8 or 16 bits, and rows that do not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.rows import NARROW
from evergrad.compiler.kernels.gemm.skinny import MOST_ROWS, widening_kernel
from evergrad.compiler.native.jit import has_fma
from evergrad.nn import functional as F

from .test_gemm import run
from .test_gemm_skinny import VECTORS

narrow = pytest.mark.parametrize("kind", NARROW, ids=str)
with_kernels = pytest.mark.skipif(not has_fma(), reason="no fused multiply-add on this processor")


def weight_of(kind: eg.dtype, outputs: int, inputs: int, seed: int = 0) -> eg.Tensor:
    """Values of all sizes that the element type has; their negatives are among them."""
    found = np.random.default_rng(seed).normal(0, 40, (outputs, inputs)).astype(np.float32)
    return eg.from_numpy(found.clip(0 if kind is eg.uint8 else -127, 127)).to(kind)


def rows_of(count: int, inputs: int) -> eg.Tensor:
    found = np.random.default_rng(1).normal(size=(count, inputs))
    return eg.from_numpy(found.astype(np.float32))


def nodes(function: Callable[..., Any], *args: Any) -> list[str]:
    """The ops that a program of it executes, as its report names them."""
    lines = str(eg.compile(function).explain(*args)).split("nodes (")[1].splitlines()
    return [line.split()[1] for line in lines if line.startswith(("  native: ", "  loop: "))]


def close(found: Any, expected: Any) -> None:
    eg.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)


@narrow
@pytest.mark.parametrize("vector", [v for v in VECTORS if v.size == 4], ids=lambda v: v.mangled)
def test_widened_products_are_exact_to_rounding(kind: eg.dtype, vector: Vector) -> None:
    for m, n, k in [(1, 1, 1), (1, 17, 33), (2, 5, 16), (3, 40, 7), (5, 16, 65), (16, 33, 31)]:
        weight = weight_of(kind, n, k)
        x = rows_of(m, k).numpy()
        kernel = widening_kernel(Product(x, weight.numpy().T, ()), vector, n + 3, kind)
        memory = np.full((m, n + 3), 7.0, np.float32)
        run(kernel, x, weight.numpy().T, memory)
        expected = x.astype(np.float64) @ weight.double().numpy().T
        scale = np.abs(x).astype(np.float64) @ np.abs(weight.double().numpy()).T
        assert (np.abs(memory[:, :n] - expected) <= 1e-6 * scale + 1e-6).all()
        assert (memory[:, n:] == 7).all()


@with_kernels
@narrow
def test_a_weight_is_widened_in_registers(kind: eg.dtype) -> None:
    weight = weight_of(kind, 40, 24)

    def scaled(x: eg.Tensor) -> eg.Tensor:
        return F.linear(x, weight.float()) * 0.5

    for shape in ((24,), (1, 24), (2, 3, 24), (16, 24)):
        x = rows_of(16, 24).flatten()[: int(np.prod(shape))].view(shape)
        with eg.no_grad():
            found = eg.compile(scaled)(x)
        close(found, scaled(x))
        assert nodes(scaled, x) == ["widened_linear", "mul"]


@with_kernels
def test_a_weight_that_is_read_otherwise_too_is_widened_once() -> None:
    weight = weight_of(eg.int8, 40, 24)
    many, few = rows_of(17, 24), rows_of(4, 24)
    for function in (
        lambda x: F.linear(x, weight.float()) + weight.float().sum(),
        lambda x: (F.linear(x, weight.float()), weight.float()),
        lambda x: F.linear(x, weight.float().t()[:24, :24].t()),
        lambda x: F.linear(weight.float(), x),
        lambda x: F.linear(weight.float(), weight.float()) + x.sum(),
    ):
        assert "widened_linear" not in nodes(function, few)
        close(eg.compile(function)(few), function(few))
    assert "widened_linear" not in nodes(lambda x: F.linear(x, weight.float()), many)


@with_kernels
def test_two_products_may_share_a_narrow_weight() -> None:
    weight = weight_of(eg.bfloat16, 24, 24)

    def twice(x: eg.Tensor) -> eg.Tensor:
        wide = weight.float()
        return F.linear(F.linear(x, wide).tanh(), wide)

    x = rows_of(3, 24)
    assert nodes(twice, x).count("widened_linear") == 2
    close(eg.compile(twice)(x), twice(x))


def test_a_weight_that_changes_is_read_anew() -> None:
    weight = weight_of(eg.int8, 40, 24)
    product = eg.compile(lambda x: F.linear(x, weight.float()))
    x = rows_of(2, 24)
    before = product(x).clone()
    weight.neg_()
    close(product(x), -before)


@narrow
def test_transposed_and_strided_narrow_weights(kind: eg.dtype) -> None:
    x = rows_of(3, 20)
    for weight in (weight_of(kind, 20, 30).t(), weight_of(kind, 60, 40)[::2, :20],
                   weight_of(kind, 30, 40)[:, ::2]):  # fmt: skip
        product = eg.compile(lambda x, weight=weight: F.linear(x, weight.float()))
        close(product(x), F.linear(x, weight.float()))


@with_kernels
@pytest.mark.parametrize("kind", [eg.float32, eg.float64, eg.int8, eg.bfloat16], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_a_row_does_not_depend_on_how_many_there_are(kind: eg.dtype, biased: bool) -> None:
    wide = eg.float64 if kind is eg.float64 else eg.float32
    shapes = [(1, 40), (16, 256), (23, 16), (32, 32), (48, 200), (64, 64), (64, 128), (96, 96),
              (100, 100), (128, 130), (192, 192), (256, 16), (300, 520)]  # fmt: skip
    for outputs, inputs in shapes:
        weight = weight_of(kind, outputs, inputs)
        bias = rows_of(1, outputs)[0].to(wide) if biased else None
        product = eg.compile(lambda x, weight=weight, bias=bias: F.linear(x, weight.to(wide), bias))
        x = rows_of(MOST_ROWS, inputs).to(wide)
        whole = product(x).numpy().copy()
        for count in (1, 2, 3, 4, 7, 8, 15):
            part = product(x[:count].clone()).numpy()
            assert (part == whole[:count]).all(), (outputs, inputs, count)
