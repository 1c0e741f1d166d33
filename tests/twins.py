"""Programs that run in evergrad and in PyTorch alike, and what both make of them.

A program is a function of a namespace, ``program(ns)``, and gives tensors, numbers, strings,
``None`` or nested lists, tuples and dicts of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad

Program = Callable[[Any], Any]


def leaf(ns: Any, values: Any) -> Any:
    """A float64 tensor that asks for its gradient."""
    return ns.tensor(values, dtype=ns.float64, requires_grad=True)


def fixed(ns: Any, values: Any) -> Any:
    """A float64 tensor that does not."""
    return ns.tensor(values, dtype=ns.float64)


def plain(value: Any) -> Any:
    """Tensors as arrays; lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if hasattr(value, "detach"):
        return np.array(value.detach().tolist()).reshape(tuple(value.shape))
    return value


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    """Equal structure, shapes and (within the tolerance) numbers."""
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a, b, tolerance)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key], tolerance)
    elif isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray), (ours, theirs)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=tolerance, nan_ok=True)
    else:
        assert ours == theirs


def quietly(program: Program, torch: ModuleType) -> Any:
    """What PyTorch makes of a program, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program(torch)


def agree(program: Program, torch: ModuleType, tolerance: float = 1e-9) -> Any:
    """Check that both give the same; gives what evergrad gave."""
    theirs = plain(quietly(program, torch))
    ours = program(evergrad)
    assert_same(plain(ours), theirs, tolerance)
    return ours


def refuse(program: Program, torch: ModuleType, match: str | None = None) -> Exception:
    """Check that both raise, evergrad an exception PyTorch's users would catch; gives it."""
    with pytest.raises(Exception) as theirs:
        quietly(program, torch)
    with pytest.raises(theirs.type, match=match) as ours:
        program(evergrad)
    return ours.value


def derivatives(ns: Any, call: Callable[..., Any], *arrays: Any) -> tuple[Any, Any, Any]:
    """Values, and gradients of first and second order by all arrays, in fixed random directions."""
    points = [ns.tensor(array).requires_grad_() for array in arrays]
    generator = np.random.default_rng(0)

    def gradients(results: Any) -> Any:
        live = [r for r in results if r.requires_grad]
        zeros = tuple(ns.zeros_like(point) for point in points)
        if not live:
            return zeros
        directions = [ns.tensor(_direction(generator, r)) for r in live]
        found = ns.autograd.grad(live, points, directions, create_graph=True, allow_unused=True)
        return tuple(z if g is None else z + g for z, g in zip(zeros, found, strict=True))

    result = call(ns, *points)
    values = result if isinstance(result, tuple) else (result,)
    first = gradients(values)
    return tuple(values), first, gradients(first)


def _direction(generator: np.random.Generator, tensor: Any) -> Any:
    shape = tuple(tensor.shape)
    direction: Any = generator.standard_normal(shape)
    return direction + 1j * generator.standard_normal(shape) if tensor.is_complex() else direction


def cube(ns: Any, style: str) -> Any:
    """x ** 3 with a derivative that can be told from the true one: 3 x² · 1."""

    class Combined(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    class Separate(ns.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            (x,) = inputs
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            (x,) = ctx.saved_tensors
            return t * 3 * x * x

    return {"combined": Combined, "separate": Separate}[style]
