"""Reductions that the compiler writes as several: equal to NumPy's, at the edges too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda x: x.norm(),
    "norm of rows": lambda x: x.norm(dim=-1),
    "norm of columns, kept": lambda x: x.norm(dim=0, keepdim=True),
    "norm of both": lambda x: eg.linalg.vector_norm(x, dim=(0, 1)),
    "variance": lambda x: x.var(),
    "variance of rows": lambda x: x.var(1, unbiased=False),
    "variance, two degrees lost": lambda x: eg.var(x, dim=0, correction=2),
    "deviation": lambda x: x.std(0),
    "deviation, kept": lambda x: x.std(1, keepdim=True),
    "mean and variance": lambda x: eg.var_mean(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "logsumexp of both, kept": lambda x: x.logsumexp((0, 1), keepdim=True),
}

INPUTS: dict[str, Callable[[], Any]] = {
    "float32": lambda: eg.randn(7, 9),
    "float64": lambda: eg.randn(7, 9, dtype=eg.float64),
    "transposed": lambda: eg.randn(9, 7).T,
    "zeros": lambda: eg.zeros(7, 9),
    "one column": lambda: eg.randn(7, 1),
    "infinite": lambda: eg.randn(7, 9) + eg.tensor([float("inf")] + [0.0] * 8),
    "minus infinity everywhere": lambda: eg.full((7, 9), -float("inf")),
    "not a number": lambda: eg.randn(7, 9) * eg.tensor([float("nan")] + [1.0] * 8),
    "large": lambda: eg.randn(7, 9) * 1e25,
    "far from zero": lambda: eg.randn(7, 9) + 1e4,
    "bfloat16": lambda: eg.randn(7, 9).to(eg.bfloat16),
}

# Relative; a variance far from zero loses digits to cancellation, in any order of summation.
TOLERANCES = {"bfloat16": 1e-2, "far from zero": 2e-3}


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_as_without_the_compiler(name: str, given: str) -> None:
    eg.manual_seed(len(name))
    x, function = INPUTS[given](), REDUCTIONS[name]
    found, expected = eg.compile(function)(x), function(x)
    pairs = (
        zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    )
    for ours, theirs in pairs:
        assert ours.dtype is theirs.dtype and ours.shape == theirs.shape
        tolerance = (
            1e-2 if ours.dtype is eg.bfloat16 else 2e-3 if given == "far from zero" else 1e-5
        )
        np.testing.assert_allclose(
            ours.double().numpy(), theirs.double().numpy(), rtol=tolerance, atol=1e-7
        )


@pytest.mark.parametrize("name", ["norm", "variance", "deviation", "logsumexp"])
def test_gradients(name: str) -> None:
    function = REDUCTIONS[name]
    x = eg.randn(5, 6, dtype=eg.float64, requires_grad=True)
    (right,) = eg.autograd.grad(function(x).sum(), x)
    (found,) = eg.autograd.grad(eg.compile(function)(x).sum(), x)
    np.testing.assert_allclose(found.numpy(), right.numpy(), rtol=1e-9)


def test_clipping_runs_natively() -> None:
    model = nn.Linear(4, 4)
    optimizer = eg.optim.SGD(model.parameters(), lr=0.1)

    @eg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach(), norm

    step(eg.randn(3, 4))
    programs = [variant.program for variant in step.programs]
    assert programs and not any(program.has_calls for program in programs)


@pytest.mark.parametrize(
    ("a", "b"),
    [((8, 8), (4, 1, 3, 5, 8, 8)), ((2, 3, 1, 4, 5, 6), (3, 2, 1, 6, 7)),
     ((2, 3, 2, 4, 5, 6), (6, 3)), ((2, 1, 2, 1, 3, 4), (1, 2, 1, 2, 1, 4, 2))],
    ids=str,
)  # fmt: skip
def test_products_of_many_batches(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = (eg.tensor(rng.standard_normal(n), requires_grad=True) for n in (a, b))

    def step(x: Any, y: Any) -> Any:
        z = x @ y
        return z, *eg.autograd.grad((z * z).sum(), [x, y])

    compiled = eg.compile(step)
    for found, wanted in zip(compiled(x, y), step(x, y), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-9)
    assert "NumPy calls (" not in str(compiled.explain(x, y))
