"""Values: against the NumPy reference, and against PyTorch in float64, float32 and integers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from evergrad.testing.samples import Sample
from evergrad.testing.subject import Array, Subject, as_tensors, ensure_all_close

from .checks import (
    NOT_TAKEN,
    cases,
    cases_of,
    ensure_same_types,
    from_torch,
    run,
    to_torch,
    torch_call,
)


@cases_of("value")
def test_reference(sample: Sample) -> None:
    run("value", sample)


@cases(lambda sample: sample.torch)
def test_torch(sample: Sample, torch: ModuleType) -> None:
    subject = Subject(sample)
    expected = torch_call(torch, subject, [to_torch(torch, a) for a in subject.arrays])
    _compare(f"{sample}", subject, subject.arrays, expected, sample.tolerance)


def _takes_floats(sample: Sample) -> bool:
    """Without elements PyTorch does not look at the element type."""
    arrays = Subject(sample).arrays
    return sample.torch and any(a.dtype.kind in "fc" and a.size for a in arrays)


def _as_integers(array: Array, name: str) -> Array:
    """Numbers near those of the array, of either sign where the type has one."""
    if array.dtype.kind != "f":
        return array
    if name == "bool":
        return array > 0
    doubled = np.rint(2 * np.clip(np.nan_to_num(array), -50, 50))
    return (np.abs(doubled) if name == "uint8" else doubled).astype(name)


def _as_float32(array: Array) -> Array:
    return array.astype({"f": np.float32, "c": np.complex64}.get(array.dtype.kind, array.dtype))


@cases(_takes_floats)
def test_torch_in_other_types(sample: Sample, torch: ModuleType) -> None:
    """What PyTorch takes is taken, with the same result type and value."""
    subject = Subject(sample)
    for name in ("float32", "int64", "int32", "uint8", "bool"):
        if name == "float32":
            arrays = [_as_float32(a) for a in subject.arrays]
        else:
            arrays = [_as_integers(a, name) for a in subject.arrays]
        try:
            expected = torch_call(torch, subject, [to_torch(torch, a) for a in arrays])
        except NOT_TAKEN:
            continue
        # Integers become float32 where they are not kept, and both libraries round differently.
        _compare(f"{sample} in {name}", subject, arrays, expected, tolerance=1e-5)


# Which of several equal elements these rows choose is left open, and integers are often equal.
_CHOOSES_AMONG_EQUALS = ("kthvalue_place", "topk_places")


def _compare(
    what: str, subject: Subject, arrays: list[Array], expected: list[Any], tolerance: float
) -> None:
    found = subject.seeded_call(*as_tensors(arrays))
    ensure_same_types(what, found, expected)
    if subject.sample.row in _CHOOSES_AMONG_EQUALS and subject.arrays is not arrays:
        return
    ensure_all_close(
        f"{what} against PyTorch",
        [out.array() for out in found], [from_torch(t) for t in expected], tolerance,
    )  # fmt: skip
