"""Native loops for few elements beside NumPy: variances, reversals, bounds and losses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import evergrad as eg

SHAPES = [(5,), (6, 6), (1, 4), (2, 3, 4), (3, 0), (64, 64), (17, 33)]


def arrays(shape: tuple[int, ...], scale: float) -> list[Any]:
    x = np.random.default_rng(len(shape)).normal(size=shape) * scale + scale
    strange = x.copy()
    strange.flat[:1] = np.nan
    return [x.astype("f4"), strange.astype("f4")]


@pytest.mark.filterwarnings("ignore:.*Degrees of freedom|.*degrees of freedom")
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e15])
def test_variances_are_those_of_float64(scale: float) -> None:
    for shape, correction, keepdim in itertools.product(SHAPES, (1, 0, 0.5), (False, True)):
        for x in arrays(shape, scale):
            for dim in {0, len(shape) - 1, tuple(range(len(shape)))}:
                at = {"axis": dim, "keepdims": keepdim, "ddof": correction}
                with np.errstate(all="ignore"):
                    expected = [f(x.astype("f8"), **at).astype("f4") for f in (np.var, np.std)]
                t = eg.tensor(x)
                t = t.t().contiguous().t() if len(shape) == 2 else t
                for name, e in zip(("var", "std"), expected, strict=True):
                    found = getattr(t, name)(dim, correction=correction, keepdim=keepdim)
                    if x.shape[0] and x.size:
                        np.testing.assert_allclose(found.numpy(), e, rtol=2e-6)
                    assert found.shape == e.shape and found.is_contiguous()


KINDS = ["float32", "float64", "int64", "int16", "bool", "float16", "complex64", "complex128"]


@pytest.mark.parametrize("kind", KINDS)
def test_reversals(kind: str) -> None:
    for shape in [*SHAPES, (3, 2, 70)]:
        x = np.random.default_rng(0).integers(-9, 9, shape).astype(kind)
        rank = len(shape)
        for dims in [d for n in range(rank + 1) for d in itertools.combinations(range(rank), n)]:
            for t in (eg.tensor(x), eg.tensor(x.T.copy()).permute(*reversed(range(rank)))):
                found = t.flip(dims)
                assert np.array_equal(found.numpy(), np.flip(x, dims)) and found.is_contiguous()


def test_bounds_let_a_nan_pass_and_are_one() -> None:
    nan, inf = float("nan"), float("inf")
    for count, kind in itertools.product((1, 7, 40, 3000), ("float32", "float64", "float16")):
        x = np.linspace(-3, 3, count).astype(kind)
        x[::5] = nan
        x[1:2], x[2:3] = inf, -inf
        for low, high in itertools.product(
            (None, -1.0, 0.0, 2.0, nan, -inf), (None, 1.0, nan, inf)
        ):
            if low is None and high is None:
                continue
            expected = x if low is None else np.maximum(x, np.asarray(low, kind))
            expected = expected if high is None else np.minimum(expected, np.asarray(high, kind))
            assert np.array_equal(eg.tensor(x).clamp(low, high).numpy(), expected, equal_nan=True)
            bounds = [None if v is None else eg.full((count,), v).to(eg.tensor(x).dtype)
                      for v in (low, high)]  # fmt: skip
            assert np.array_equal(eg.tensor(x).clamp(*bounds).numpy(), expected, equal_nan=True)


@pytest.mark.parametrize("rows", [2, 6, 8, 40])
def test_losses_of_few_scores_name_targets_that_are_no_class(rows: int) -> None:
    for name in ("cross_entropy", "nll_loss"):
        loss = getattr(eg.nn.functional, name)
        scores = eg.arange(rows * 5.0).reshape(rows, 5).requires_grad_()
        targets = eg.zeros(rows, dtype=eg.int64)
        for wrong in (5, -1, 10**9):
            targets[1] = wrong
            for _ in range(3):
                with pytest.raises((IndexError, RuntimeError)):
                    loss(scores, targets)
        targets[1] = -100  # counts for nothing
        loss(scores, targets).backward()
        assert scores.grad is not None and scores.grad[1].abs().sum().item() == 0.0
