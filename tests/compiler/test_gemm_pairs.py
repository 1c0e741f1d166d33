"""Products of bfloat16 by dot products of pairs: every layout, tail and thread count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.native.target import has_bfloat16_dot

from .convolutions import kernels

pytestmark = pytest.mark.skipif(
    not has_bfloat16_dot(), reason="this processor has no dot products of bfloat16"
)

LAYOUTS = {
    "rows by rows": (lambda m, k: (m, k), lambda a: a, lambda k, n: (n, k), lambda b: b.T),
    "rows by columns": (lambda m, k: (m, k), lambda a: a, lambda k, n: (k, n), lambda b: b),
    "columns by columns": (lambda m, k: (k, m), lambda a: a.T, lambda k, n: (k, n), lambda b: b),
    "columns by rows": (lambda m, k: (k, m), lambda a: a.T, lambda k, n: (n, k), lambda b: b.T),
}


def narrow(*shape: int, seed: int = 0) -> eg.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return eg.tensor(values).to(eg.bfloat16)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_tails(layout: str) -> None:
    """Also of an odd K, whose last row is paired with zeros. A sum of K products is as exact as one
    in float32, and rounded once."""
    shape_a, view_a, shape_b, view_b = LAYOUTS[layout]
    run = eg.compile(lambda a, b: view_a(a) @ view_b(b))
    for m, k, n in ((128, 64, 96), (77, 130, 49), (200, 33, 65), (64, 600, 33), (513, 96, 17)):
        a, b = narrow(*shape_a(m, k)), narrow(*shape_b(k, n), seed=1)
        exact = view_a(a).double() @ view_b(b).double()
        size = view_a(a).double().abs() @ view_b(b).double().abs()
        off = (run(a, b).double() - exact).abs()
        assert bool((off <= exact.abs() * 2.0**-8 + size * 2.0**-22).all()), (m, k, n)


def test_pairs_are_used_for_linear_layers_and_their_gradients() -> None:
    x, w, g = narrow(4, 40, 64), narrow(96, 64, seed=1), narrow(4, 40, 96, seed=2)

    def step(x: Any, w: Any, g: Any) -> Any:
        y = eg.nn.functional.linear(x, w)
        return y, *eg.autograd.grad(y, (x, w), g)

    run = eg.compile(step)
    found = run(x.requires_grad_(), w.requires_grad_(), g)
    text = str(run.explain(x, w, g))
    assert text.count("paired_matmul ->") == 3
    wide = step(*(t.detach().double().requires_grad_() for t in (x, w)), g.double())
    for mine, exact in zip(found, wide, strict=True):
        eg.testing.assert_close(mine.double(), exact, rtol=2**-7, atol=1e-3)


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    a, b = narrow(300, 500), narrow(500, 200, seed=1)
    run = eg.compile(lambda a, b: a @ b)
    before = eg.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            found.append(run(a, b).float().numpy())
    finally:
        eg.set_num_threads(before)
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_strided_factors_and_what_is_not_finite() -> None:
    """Slices have rows further apart, or at odd elements."""
    whole = narrow(130, 300)
    b = narrow(64, 48, seed=1)
    for begin, step in ((0, 1), (3, 1), (0, 2)):
        run = eg.compile(lambda w, b, s=begin, t=step: w[:, s : s + 64 * t : t] @ b)
        part = whole[:, begin : begin + 64 * step : step]
        exact = part.double() @ b.double()
        eg.testing.assert_close(run(whole, b).double(), exact, rtol=2**-7, atol=1e-3)
    run = eg.compile(lambda a, b: a @ b)
    a = narrow(128, 64)
    a[3, 5], a[7, 9], a[9, 1] = math.inf, math.nan, -math.inf
    found, exact = run(a, b).double(), a.double() @ b.double()
    assert bool((found.isnan() == exact.isnan()).all())
    assert bool((found.isinf() == exact.isinf()).all())


def test_a_bias_and_an_activation_follow() -> None:
    x, w, b = narrow(600, 128), narrow(512, 128, seed=1), narrow(512, seed=2)
    run = eg.compile(lambda x, w, b: eg.nn.functional.gelu(eg.nn.functional.linear(x, w, b)))
    found = run(x, w, b)
    exact = eg.nn.functional.gelu((x.double() @ w.double().T + b.double()).to(eg.bfloat16))
    eg.testing.assert_close(found, exact, rtol=2**-7, atol=1e-2)
    assert any(name.startswith("gemm_epilogue") for name in kernels(run))
