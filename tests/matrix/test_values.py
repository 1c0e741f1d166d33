"""Values: against the NumPy reference, and against PyTorch in float64, float32 and integers."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from evergrad.testing.samples import Sample
from evergrad.testing.subject import Array, Subject, arrays_of, as_tensors, ensure_all_close

from .checks import cases, cases_of, ensure_same_types, from_torch, run, to_torch, torch_call
from .checks import torch_has as _torch_has


@cases_of("value")
def test_reference(sample: Sample) -> None:
    run("value", sample)


@cases(_torch_has)
def test_torch(sample: Sample, torch: ModuleType) -> None:
    subject = Subject(sample)
    _compare(torch, subject, subject.arrays, sample.tolerance)


def _takes_floats(sample: Sample) -> bool:
    return sample.torch and any(a.dtype.kind in "fc" for a in Subject(sample).arrays)


def _as_integers(array: Array, name: str) -> Array:
    """Numbers near those of the array, of either sign where the type has one."""
    if array.dtype.kind != "f":
        return array
    if name == "bool":
        return array > 0
    return np.rint(2 * (np.abs(array) if name == "uint8" else array)).astype(name)


def _as_float32(array: Array) -> Array:
    return array.astype({"f": np.float32, "c": np.complex64}.get(array.dtype.kind, array.dtype))


@cases(_takes_floats)
@pytest.mark.parametrize("name", ["float32", "int64", "int32", "uint8", "bool"])
def test_torch_in_other_types(sample: Sample, name: str, torch: ModuleType) -> None:
    """What PyTorch takes is taken, with the same result type and value."""
    subject = Subject(sample)
    if name == "float32":
        arrays = [_as_float32(a) for a in subject.arrays]
    else:
        arrays = [_as_integers(a, name) for a in subject.arrays]
    # Integers become float32 where they are not kept, and both libraries round differently.
    _compare(torch, subject, arrays, tolerance=1e-5, required=False)


def _compare(
    torch: ModuleType,
    subject: Subject,
    arrays: list[Array],
    tolerance: float,
    required: bool = True,
) -> None:
    try:
        theirs = torch_call(torch, subject, [to_torch(torch, a) for a in arrays])
    except (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError):
        if required:
            raise
        return  # PyTorch does not take these element types
    ours = subject.seeded_call(*as_tensors(arrays))
    ensure_same_types(f"{subject.sample}", ours, theirs)
    expected = [from_torch(t) for t in theirs]
    found = arrays_of(lambda: ours)
    ensure_all_close(f"{subject.sample} against PyTorch", found, expected, tolerance)
