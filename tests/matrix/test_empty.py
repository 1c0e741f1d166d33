"""Nothing in it: calls on tensors without elements, which PyTorch decides whether to take."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import evergrad
from evergrad.testing.samples import Sample
from evergrad.testing.subject import Array, Subject, as_tensors, ensure_all_close

from .checks import (
    NOT_TAKEN,
    cases,
    ensure_same_types,
    from_torch,
    gradients_of,
    to_torch,
    torch_call,
)

# PyTorch gives an empty image back in the shape it came in.
_WRONG_IN_TORCH = ("pixel_unshuffle",)


def _can_be_emptied(sample: Sample) -> bool:
    return (
        sample.torch
        and any(a.ndim and a.size for a in Subject(sample).arrays)
        and not sample.label.endswith(_WRONG_IN_TORCH)
    )


def _emptied(arrays: list[Array], axis: int) -> list[Array]:
    """The arrays without elements along a dimension, where it is as long as that of the first."""
    size = next(a.shape[axis] for a in arrays if a.ndim and a.size)
    return [np.take(a, [], axis=axis) if a.ndim and a.shape[axis] == size else a for a in arrays]


@cases(_can_be_emptied)
def test_empty(sample: Sample, torch: ModuleType) -> None:
    """Calls that PyTorch takes have its results, types and gradients."""
    subject = Subject(sample)
    for axis in (0, -1):
        arrays = _emptied(subject.arrays, axis)
        theirs = [to_torch(torch, a) for a in arrays]
        torch_points = [theirs[k].requires_grad_() for k in subject.active]
        try:
            expected = torch_call(torch, subject, theirs)
            expected_gradients = _gradients(torch, expected, torch_points)
        except NOT_TAKEN:
            continue
        what = f"{sample}, empty along {axis}"
        tensors = as_tensors(arrays)
        points = [tensors[k].requires_grad_() for k in subject.active]
        found = subject.seeded_call(*tensors)
        ensure_same_types(what, found, expected)
        _ensure_close(what, found, expected)
        _ensure_close(f"{what}, gradient", _gradients(evergrad, found, points), expected_gradients)


def _gradients(library: Any, results: Any, points: list[Any]) -> list[Any]:
    """The gradients of the results; zeros where there is none."""
    live = [out for out in results if out.requires_grad]
    found = gradients_of(library, live, points, seed=1) if live else [None] * len(points)
    return [library.zeros_like(p) if g is None else g for g, p in zip(found, points, strict=True)]


def _ensure_close(what: str, found: Any, expected: list[Any]) -> None:
    """There is little to round where there are few elements."""
    ours = [out.detach().array() for out in found]
    ensure_all_close(what, ours, [from_torch(t) for t in expected], tolerance=1e-10)
