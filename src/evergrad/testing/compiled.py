"""Checks of compiled programs: they compute what eager evaluation computes.

A program that draws random numbers must also leave the stream where eager evaluation leaves it,
so each comparison ends with one number more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import evergrad
from evergrad.core.rng.default_generator import manual_seed
from evergrad.testing.derivatives import first_gradient, gradient_function
from evergrad.testing.samples import Sample
from evergrad.testing.subject import (
    SEED,
    Array,
    Function,
    Subject,
    ensure,
    ensure_close,
    is_continuous,
)

# Sums are added in another order, and exp and its kind have another last bit.
VALUE_TOLERANCE = 1e-12
GRADIENT_TOLERANCE = 1e-11


def ensure_same_compiled(
    what: str, function: Callable[..., object], tensors: Sequence[object], tolerance: float
) -> None:
    """The function gives the same, compiled and not."""
    expected = _results(function, tensors)
    found = _results(evergrad.compile(function), tensors)
    ensure(len(found) == len(expected), f"{what}: {len(found)} results, not {len(expected)}")
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        name = f"{what} compiled, result {number}"
        ensure(a.dtype == b.dtype, f"{name}: {a.dtype}, not {b.dtype}")
        ensure_close(name, a, b, tolerance)


def _results(function: Callable[..., Any], tensors: Sequence[object]) -> list[Array]:
    """What a function gives from the start of the random stream on, and the next number of it."""
    manual_seed(SEED)
    found = [t.detach() for t in function(*tensors)]
    found.append(evergrad.rand(1, dtype=evergrad.float64))
    return [np.array(t.resolve_conj().array()) for t in found]


def check_compiled_values(samples: Sequence[Sample]) -> None:
    """The calls of these samples of a row, as one program: compiling them together is much
    cheaper."""
    subjects = [Subject(sample) for sample in samples]
    starts = np.cumsum([0, *(len(s.arrays) for s in subjects)]).tolist()

    def call_all(*tensors: object) -> list[object]:
        return [
            result
            for subject, start, end in zip(subjects, starts, starts[1:], strict=False)
            for result in subject.call(*tensors[start:end])
        ]

    tensors = [tensor for subject in subjects for tensor in subject.tensors()]
    what = str(samples[0]) if len(samples) == 1 else f"samples of {samples[0].row}"
    ensure_same_compiled(what, call_all, tensors, VALUE_TOLERANCE)


def check_compiled_gradient(sample: Sample) -> None:
    """The gradient, compiled."""
    subject = Subject(sample)
    _, points = first_gradient(subject)
    function = gradient_function(_unseeded(subject), len(subject.active))
    ensure_same_compiled(f"gradient of {sample}", function, points, GRADIENT_TOLERANCE)


def _unseeded(subject: Subject) -> Function:
    """From what can be differentiated by to results, without setting the random stream."""
    constants = subject.tensors()

    def function(*points: Any) -> Any:
        given = list(constants)
        for place, point in zip(subject.active, points, strict=True):
            given[place] = point
        return tuple(filter(is_continuous, subject.call(*given)))

    return function
