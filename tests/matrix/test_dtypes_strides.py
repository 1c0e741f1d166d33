"""Element types of fewer bits, memory layouts, empty inputs, and what calls may do to memory."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from evergrad.core import dtypes
from evergrad.testing.samples import Sample
from evergrad.testing.subject import Array, Subject, arrays_of, as_tensors, ensure_all_close

from .checks import (
    cases,
    cases_of,
    ensure_same_types,
    from_torch,
    gradients_of,
    run,
    to_torch,
    torch_call,
)


@cases_of("low_precision")
def test_low_precision(sample: Sample) -> None:
    run("low_precision", sample)


def _torch_takes_low_precision(sample: Sample) -> bool:
    kinds = [a.dtype.kind for a in Subject(sample).arrays]
    return sample.torch and "f" in kinds and "c" not in kinds


@cases(_torch_takes_low_precision)
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_result_types_of_torch(sample: Sample, name: str, torch: ModuleType) -> None:
    """Where PyTorch takes 16-bit floats, results have its types."""
    subject = Subject(sample)
    low = dtypes.BY_NAME[name].np
    arrays = [a.astype(low) if a.dtype.kind == "f" else a for a in subject.arrays]
    try:
        expected = torch_call(torch, subject, [to_torch(torch, a) for a in arrays])
    except (RuntimeError, TypeError, ValueError):
        return  # PyTorch does not take this element type
    found = subject.seeded_call(*as_tensors(arrays))
    ensure_same_types(f"{sample} in {name}", found, expected)


@cases_of("strides")
def test_strides(sample: Sample) -> None:
    run("strides", sample)


@cases_of("purity")
def test_purity(sample: Sample) -> None:
    run("purity", sample)


# -- nothing in it ------------------------------------------------------------------------------


def _can_be_emptied(sample: Sample) -> bool:
    return sample.torch and any(a.ndim and a.size for a in Subject(sample).arrays)


def _emptied(arrays: list[Array], at_front: bool) -> list[Array]:
    """The arrays without their first (or last) dimension's elements, where it is a common one."""
    axis = 0 if at_front else -1
    first = next(a for a in arrays if a.ndim and a.size)
    size = first.shape[axis]
    return [
        np.take(a, [], axis=axis) if a.ndim and a.shape[axis] == size else a for a in arrays
    ]


@cases(_can_be_emptied)
@pytest.mark.parametrize("at_front", [True, False], ids=["first", "last"])
def test_empty(sample: Sample, at_front: bool, torch: ModuleType) -> None:
    """Without elements, calls that PyTorch takes have its results, types and gradients."""
    subject = Subject(sample)
    arrays = _emptied(subject.arrays, at_front)
    theirs = [to_torch(torch, a) for a in arrays]
    try:
        expected = torch_call(torch, subject, theirs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return  # PyTorch does not take empty tensors here
    ours = as_tensors(arrays)
    points = [ours[k].requires_grad_() for k in subject.active]
    found = subject.seeded_call(*ours)
    ensure_same_types(f"{sample}, emptied", found, expected)
    values = arrays_of(lambda: found)
    torch_values = [from_torch(t) for t in expected]
    ensure_all_close(f"{sample}, emptied", values, torch_values, sample.tolerance)
    import evergrad

    live = [out for out in found if out.requires_grad]
    if live:
        gradients = gradients_of(evergrad, live, points, seed=1)
        assert all(
            g is None or g.shape == p.shape for g, p in zip(gradients, points, strict=True)
        )
