"""Every sample of the op matrix, compiled: values and first gradients as in eager evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from evergrad.testing.checks import has_derivative
from evergrad.testing.compiled import (
    check_compiled_gradient,
    check_compiled_values,
    ensure_same_compiled,
)
from evergrad.testing.samples import Sample
from evergrad.testing.samples.table import all_samples
from evergrad.testing.subject import Array, Subject, as_tensors

rows = pytest.mark.parametrize("row", sorted(all_samples()))

_FLOAT32 = 2e-5


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


@rows
def test_values(row: str) -> None:
    for sample in all_samples()[row]:
        check_compiled_values([sample])


@rows
def test_values_in_float32(row: str) -> None:
    for sample in filter(takes_float32, all_samples()[row]):
        subject = Subject(sample)
        tensors = as_tensors([as_float32(a) for a in subject.arrays])
        ensure_same_compiled(f"{sample} in float32", subject.call, tensors, _FLOAT32)


@pytest.mark.parametrize(
    "row", [r for r in sorted(all_samples()) if any(map(has_derivative, all_samples()[r]))]
)
def test_gradients(row: str) -> None:
    for sample in filter(has_derivative, all_samples()[row]):
        check_compiled_gradient(sample)
