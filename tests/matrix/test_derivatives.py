"""Derivatives of first and second order, against finite differences and against PyTorch."""

from __future__ import annotations

from types import ModuleType

import numpy as np

import evergrad
from evergrad.testing.samples import Sample
from evergrad.testing.subject import Array, Subject, ensure, ensure_close

from .checks import (
    cases,
    cases_of,
    from_torch,
    gradients_of,
    run,
    to_torch,
    torch_call,
    torch_gradients,
)

# Derivatives are longer sums and products than values: each order is given one digit.
_FIRST, _SECOND = 1e-9, 1e-8


@cases_of("gradient")
def test_gradient(sample: Sample) -> None:
    run("gradient", sample)


@cases_of("second_gradient")
def test_second_gradient(sample: Sample) -> None:
    run("second_gradient", sample)


def _torch_differentiates(sample: Sample) -> bool:
    return sample.torch and bool(Subject(sample).active)


@cases(_torch_differentiates)
def test_gradients_of_torch(sample: Sample, torch: ModuleType) -> None:
    """The same results require a gradient, and first and second gradients are the same."""
    subject = Subject(sample)
    ours = subject.tensors()
    theirs = [to_torch(torch, a) for a in subject.arrays]
    points = [ours[k].requires_grad_() for k in subject.active]
    torch_points = [theirs[k].requires_grad_() for k in subject.active]
    pairs = list(zip(subject.seeded_call(*ours), torch_call(torch, subject, theirs), strict=True))
    for i, (a, b) in enumerate(pairs):
        ensure(
            a.requires_grad == b.requires_grad,
            f"{sample}, result {i}: requires_grad={a.requires_grad}, PyTorch has {b.requires_grad}",
        )
    for order, tolerance in ((1, _FIRST), (2, _SECOND)):
        pairs = [(a, b) for a, b in pairs if a.requires_grad and b.requires_grad]
        if not pairs or (order == 2 and not sample.smooth):
            return
        expected = torch_gradients(torch, [b for _, b in pairs], torch_points, order)
        if expected is None:
            return
        found = gradients_of(evergrad, [a for a, _ in pairs], points, seed=order)
        pairs = []
        for k, (a, b, point) in enumerate(zip(found, expected, points, strict=True)):
            zeros = np.zeros(tuple(point.shape), point.dtype.np)
            expected_array = zeros if b is None else from_torch(b)
            ensure_close(
                f"{sample}: gradient of order {order} by input {k}",
                zeros if a is None else a.detach().array(), expected_array,
                max(tolerance, sample.tolerance), _size(expected_array),
            )  # fmt: skip
            if a is not None and b is not None:
                pairs.append((a, b))


def _size(gradient: Array) -> float:
    """What rounding is relative to; terms that cancel are of the size of the random directions."""
    finite = np.abs(gradient[np.isfinite(gradient)])
    return max(1e-3, float(finite.max(initial=0)))
