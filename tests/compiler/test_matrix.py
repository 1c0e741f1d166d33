"""Every sample of the op matrix, compiled: values and first gradients as in eager evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.generators import manual_seed
from evergrad.testing.checks import has_derivative
from evergrad.testing.derivatives import first_gradient, gradient_function
from evergrad.testing.samples import Sample, all_samples
from evergrad.testing.subject import (
    SEED,
    Array,
    Function,
    Subject,
    as_tensors,
    ensure_close,
    is_continuous,
)

rows = pytest.mark.parametrize("row", sorted(all_samples()))

# Sums are added in another order, and exp and its kind have another last bit.
_FLOAT64 = 1e-12
_GRADIENT = 1e-11
_FLOAT32 = 2e-5


def results(function: Callable[..., Any], tensors: Sequence[Any]) -> list[Array]:
    """What a function gives from the start of the random stream on, and the next number of it."""
    manual_seed(SEED)
    found = [t.detach() for t in function(*tensors)]
    found.append(eg.rand(1, dtype=eg.float64))
    return [np.array(t.resolve_conj().array()) for t in found]


def check(what: str, function: Callable[..., Any], tensors: list[Any], tolerance: float) -> None:
    expected = results(function, tensors)
    found = results(eg.compile(function), tensors)
    assert len(found) == len(expected), what
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.dtype == b.dtype, f"{what}, result {number}"
        ensure_close(f"{what}, result {number}", a, b, tolerance)


def as_float32(array: Array) -> Array:
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def takes_float32(sample: Sample) -> bool:
    """Whether eager evaluation takes the sample in float32 (some of them mix it with float64)."""
    subject = Subject(sample)
    try:
        subject.call(*as_tensors([as_float32(a) for a in subject.arrays]))
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def unseeded(subject: Subject) -> Function:
    """From what can be differentiated by to results, without setting the random stream."""
    constants = subject.tensors()

    def function(*points: Any) -> Any:
        given = list(constants)
        for place, point in zip(subject.active, points, strict=True):
            given[place] = point
        return tuple(filter(is_continuous, subject.call(*given)))

    return function


@rows
def test_values(row: str) -> None:
    for sample in all_samples()[row]:
        subject = Subject(sample)
        check(f"{sample}", subject.call, subject.tensors(), _FLOAT64)


@rows
def test_values_in_float32(row: str) -> None:
    for sample in filter(takes_float32, all_samples()[row]):
        subject = Subject(sample)
        tensors = as_tensors([as_float32(a) for a in subject.arrays])
        check(f"{sample} in float32", subject.call, tensors, _FLOAT32)


@pytest.mark.parametrize(
    "row", [r for r in sorted(all_samples()) if any(map(has_derivative, all_samples()[r]))]
)
def test_gradients(row: str) -> None:
    for sample in filter(has_derivative, all_samples()[row]):
        subject = Subject(sample)
        _, points = first_gradient(subject)
        function = gradient_function(unseeded(subject), len(subject.active))
        check(f"gradient of {sample}", function, points, _GRADIENT)
