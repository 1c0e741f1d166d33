"""What tests of compiled convolutions and pooling share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import evergrad as eg

from .steps import assert_alike, programs_of

# The products of a convolution are added in another order.
TOLERANCES = {eg.float64: 1e-11, eg.float32: 3e-5}


def normal(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    numbers = np.random.default_rng([3, seed]).standard_normal(shape)
    return eg.tensor(numbers, dtype=dtype)


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives the result of another and its gradients, weighted unevenly."""

    def call(*tensors: Any) -> Any:
        leaves = [t.detach().requires_grad_() for t in tensors]
        out = function(*leaves)
        weights = eg.arange(out.numel(), dtype=out.dtype).reshape(out.shape).cos() / 8
        return (out.detach(), *eg.autograd.grad(out, leaves, weights))

    return call


def scaled(found: Any, expected: Any) -> tuple[list[Any], list[Any]]:
    """Results divided by the largest element expected, which is what rounding is relative to."""
    scales = [max(1.0, float(e.abs().max())) if e.numel() else 1.0 for e in expected]
    return (
        [f / s for f, s in zip(found, scales, strict=True)],
        [e / s for e, s in zip(expected, scales, strict=True)],
    )


def labels(compiled: Any) -> list[str]:
    return [i.label for program in programs_of(compiled) for i in program.instructions]


def kernels(compiled: Any) -> list[str]:
    instructions = [i for program in programs_of(compiled) for i in program.instructions]
    return [i.kernel.name for i in instructions if i.kernel is not None]


def numpy_calls(compiled: Any) -> list[str]:
    return [label for label in labels(compiled) if label.startswith("call")]


def check(function: Callable[..., Any], *tensors: Any, beside: tuple[str, ...] = ()) -> None:
    """Compiled and eager evaluation agree, and one to three threads bit for bit; nothing runs in
    NumPy but the ops named by ``beside``."""
    step = with_gradients(function)
    compiled = eg.compile(step)
    found = compiled(*tensors)
    tolerance = TOLERANCES[tensors[0].dtype]
    assert_alike(*scaled(found, step(*tensors)), tolerance)
    assert set(numpy_calls(compiled)) <= {f"call {op}" for op in beside}
    (program,) = programs_of(compiled)
    for threads in (1, 2, 3):
        program.threads = threads
        for a, b in zip(found, compiled(*tensors), strict=True):
            np.testing.assert_array_equal(a.array(), b.array())
