"""Element types of fewer bits, memory layouts, empty inputs, and what calls may do to memory."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import evergrad
from evergrad.core import dtypes
from evergrad.testing.samples import Sample
from evergrad.testing.subject import Array, Subject, as_tensors, ensure, ensure_all_close

from .checks import (
    NOT_TAKEN,
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
def test_result_types_of_torch(sample: Sample, torch: ModuleType) -> None:
    """Where PyTorch takes 16-bit floats, results have its types."""
    subject = Subject(sample)
    for low in (dtypes.float16, dtypes.bfloat16):
        arrays = [a.astype(low.np) if a.dtype.kind == "f" else a for a in subject.arrays]
        try:
            expected = torch_call(torch, subject, [to_torch(torch, a) for a in arrays])
        except NOT_TAKEN:
            continue
        found = subject.seeded_call(*as_tensors(arrays))
        ensure_same_types(f"{sample} in {low.name}", found, expected)


@cases_of("strides")
def test_strides(sample: Sample) -> None:
    run("strides", sample)


@cases_of("purity")
def test_purity(sample: Sample) -> None:
    run("purity", sample)


# -- nothing in it ------------------------------------------------------------------------------


def _can_be_emptied(sample: Sample) -> bool:
    return sample.torch and any(a.ndim and a.size for a in Subject(sample).arrays)


def _emptied(arrays: list[Array], axis: int) -> list[Array]:
    """The arrays without elements along a dimension, where it is as long as that of the first."""
    size = next(a.shape[axis] for a in arrays if a.ndim and a.size)
    return [np.take(a, [], axis=axis) if a.ndim and a.shape[axis] == size else a for a in arrays]


@cases(_can_be_emptied)
def test_empty(sample: Sample, torch: ModuleType) -> None:
    """Without elements, calls that PyTorch takes have its results, types and gradients."""
    subject = Subject(sample)
    for axis in (0, -1):
        arrays = _emptied(subject.arrays, axis)
        try:
            expected = torch_call(torch, subject, [to_torch(torch, a) for a in arrays])
        except NOT_TAKEN:
            continue
        _compare_empty(f"{sample}, empty along {axis}", subject, arrays, expected)


def _compare_empty(what: str, subject: Subject, arrays: list[Array], expected: list[Any]) -> None:
    tensors = as_tensors(arrays)
    points = [tensors[k].requires_grad_() for k in subject.active]
    found = subject.seeded_call(*tensors)
    ensure_same_types(what, found, expected)
    ensure_all_close(
        what, [out.detach().array() for out in found], [from_torch(t) for t in expected],
        subject.sample.tolerance,
    )  # fmt: skip
    live = [out for out in found if out.requires_grad]
    if live:
        gradients = gradients_of(evergrad, live, points, seed=1)
        shapes = [p.shape if g is None else g.shape for g, p in zip(gradients, points, strict=True)]
        ensure(shapes == [p.shape for p in points], f"{what}: gradients have shapes {shapes}")
