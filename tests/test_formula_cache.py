"""Formulas that are written into a trace: as if they were called, but called once for each type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.eager.fused_update import FusedUpdate


class Counted:
    """A formula that counts its calls."""

    def __init__(self, formula: Any) -> None:
        self.formula = formula
        self.calls = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return self.formula(*args, **options)


def decay(p: Any, m: Any, rate: Any, floor: Any, *, sign: float) -> Any:
    m = m * rate + p * p
    return p - sign * m.sqrt() / (rate + floor), m


def tensors(*shapes: tuple[int, ...], dtype: Any = eg.float32) -> list[tuple[Any, Any]]:
    eg.manual_seed(0)
    return [(eg.rand(*s).to(dtype), eg.rand(*s).to(dtype)) for s in shapes]


def updated(formula: Any, pairs: list[tuple[Any, Any]], numbers: Any, compiled: bool) -> list[Any]:
    """What an update makes of pairs of tensors, or the formula itself, called for each."""
    update = FusedUpdate(formula, 2, sign=-1.0)

    def step(rate: float) -> None:
        for pair in pairs:
            update(pair, *numbers(rate))

    def plain_step(rate: float) -> None:
        for pair in pairs:
            values = [new.clone() for new in formula(*pair, *numbers(rate), sign=-1.0)]
            for tensor, value in zip(pair, values, strict=True):
                tensor.copy_(value)

    run = eg.compile(step) if compiled else plain_step
    for rate in (0.5, 0.25):
        run(rate)
    return [t.to(eg.float64).numpy() for pair in pairs for t in pair]


@pytest.mark.parametrize("dtype", [eg.float32, eg.float64, eg.bfloat16])
@pytest.mark.parametrize("floor", [0, 2.0, -0.0])
def test_they_are_as_good_as_called(dtype: Any, floor: Any) -> None:
    shapes = ((3, 2), (5,), (3, 2), (), (0, 4))
    found, wanted = (
        updated(decay, tensors(*shapes, dtype=dtype), lambda rate: (rate, floor), compiled)
        for compiled in (True, False)
    )
    tolerance = 0.02 if dtype is eg.bfloat16 else 1e-6
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance)


def test_equal_types_are_one_call() -> None:
    formula = Counted(decay)
    updated(formula, tensors((3, 2), (5,), (3, 2), (5,), (3, 2)), lambda r: (r, 1.0), True)
    assert formula.calls == 2


def test_other_numbers_are_other_formulas() -> None:
    formula, pairs = Counted(decay), tensors((3,), (3,), (3,), (3,))
    update = FusedUpdate(formula, 2, sign=-1.0)

    @eg.compile
    def step(rate: float) -> None:
        for pair, floor in zip(pairs, (1, 1.0, 1.0, 2.0), strict=True):
            update(pair, rate, floor)

    for rate in (0.5, 0.25):
        step(rate)
    assert formula.calls == 3


@pytest.mark.filterwarnings("ignore:.*is not one compiled program")  # the first call of next()
def test_numbers_of_a_generator() -> None:
    found, wanted = (
        updated(decay, tensors((3,), (3,), (3,), (3,)), lambda r, n=numbers: (r, next(n)), compiled)
        for compiled, numbers in (
            (compiled, (floor for floor in [1, 1.0, 1.5, 2.0] * 2)) for compiled in (True, False)
        )
    )
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize(
    "formula",
    [
        lambda p, m, rate, floor, *, sign: (p.flip(0).reshape(p.shape) * rate, m),
        lambda p, m, rate, floor, *, sign: (p - OUTSIDE * rate, m + floor),
        lambda p, m, rate, floor, *, sign: (m, p),
    ],
    ids=["a view", "a tensor of the outside", "nothing computed"],
)
def test_formulas_of_other_kinds(formula: Any) -> None:
    found, wanted = (
        updated(formula, tensors((4,), (4,)), lambda rate: (rate, 1.0), compiled)
        for compiled in (True, False)
    )
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


OUTSIDE = eg.arange(4.0)
