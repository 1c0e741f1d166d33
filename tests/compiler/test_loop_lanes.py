"""Reductions of few elements, by lanes of neighbouring outer iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg
import evergrad.nn.functional as F

FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "amax, amin": lambda x, d: (x.amax(d), (x * 2).amin(d, keepdim=True)),
    "sum of exp": lambda x, d: (x.exp().sum(d), x.sin().mean(d)),
    "any, all": lambda x, d: ((x.exp() > 1).any(d), (x.exp() > 0.2).all(d)),
    "norm": lambda x, d: x / x.norm(dim=d, keepdim=True).clamp(min=0.1),
    "variance": lambda x, d: (x - x.mean(d, keepdim=True)) / (x.var(d, keepdim=True) + 1).sqrt(),
    "count": lambda x, d: (x > 0).sum(d),
    "gradient": lambda x, d: eg.func.grad(lambda x: (x.softmax(d) * x.tanh()).sum())(x),
    "bfloat16": lambda x, d: (x.bfloat16() * 2).softmax(d).float(),
    "float64": lambda x, d: x.double().softmax(d) + x.double().amax(d, keepdim=True),
}
SHAPES = [((4, 10, 30, 30), 1), ((300, 3), 1), ((2, 100, 7), 2), ((5, 32, 17), 1), ((70, 2), -1),
          ((3, 33, 20), 1), ((16, 12), 1), ((6, 4, 5, 90), 1), ((2, 100, 19), 1)]  # fmt: skip


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_reductions_of_few_elements(name: str, shape: tuple[int, ...], dim: int) -> None:
    function = FUNCTIONS[name]
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = eg.tensor(values)
    expected = function(x, dim)
    results = []
    before = eg.get_num_threads()
    try:
        for threads in (1, 3):
            eg.set_num_threads(threads)
            compiled = eg.compile(lambda x: function(x, dim))
            results.append(compiled(x))
    finally:
        eg.set_num_threads(before)
    assert calls_of(compiled) == []
    tolerance = 2e-2 if name == "bfloat16" else 1e-5
    for wanted, found, again in zip(*map(_parts, (expected, *results)), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(found.numpy(), again.numpy())


def test_infinities_and_nan() -> None:
    x = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    x[3], x[5, 2], x[7, 1], x[9, 0] = -np.inf, np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        for name in ("softmax", "logsumexp", "amax, amin", "norm"):
            found = eg.compile(lambda x, name=name: FUNCTIONS[name](x, 1))(eg.tensor(x))
            wanted = FUNCTIONS[name](eg.tensor(x), 1)
            for a, b in zip(_parts(found), _parts(wanted), strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_losses_of_many_pixels() -> None:
    rng = np.random.default_rng(0)
    x = eg.tensor(rng.standard_normal((3, 6, 17, 19)).astype("f4"), requires_grad=True)
    target = eg.tensor(rng.integers(0, 6, (3, 17, 19)))

    def step(x: Any, target: Any) -> Any:
        loss = F.cross_entropy(x, target, label_smoothing=0.1)
        return loss, *eg.autograd.grad(loss, x)

    for a, b in zip(eg.compile(step)(x, target), step(x, target), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_norms_of_channels_far_from_zero() -> None:
    """Sums of many elements are as exact as along contiguous ones."""
    values = (np.random.default_rng(0).standard_normal((2, 120, 31)) + 50).astype(np.float32)

    def norm(x: Any) -> Any:
        return F.layer_norm(x.transpose(1, 2), (120,)).transpose(1, 2)

    found = eg.compile(norm)(eg.tensor(values)).double().numpy()
    exact = norm(eg.tensor(values).double()).numpy()
    assert np.abs(found - exact).max() < 1e-4
