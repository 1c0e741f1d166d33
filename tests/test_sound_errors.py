"""Errors of compositions beside PyTorch's: extreme values, long sums and 16-bit types.

The exact result is PyTorch's in float64 for the same (rounded) arguments. What is compared is the
error of results and gradients, in units of the type's rounding: relative to the root mean square of
the result, and for activations to each element as well. Eager and compiled alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-11}
# Below these magnitudes errors are absolute: results there are subnormal or nearly so.
LEAST = {"float32": 1e-30, "bfloat16": 1e-30, "float16": 6.2e-5}


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def uniform(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape)


def points(low: float, high: float) -> Any:
    return np.concatenate([np.linspace(low, high, 2401), np.logspace(-7, 1, 50)])


Function = Callable[..., Any]

F32, HALVES = ("float32",), ("bfloat16", "float16")
ALL = (*F32, *HALVES)
WAVES = points(-12, 12)
ROWS = normal(32, 200, seed=3)
CLASSES = np.random.default_rng(9).integers(0, 200, 32)
NEAR = normal(1, 4, 21, 21, seed=1)

ACTIVATIONS: dict[str, tuple[Function, Any]] = {
    "silu": (lambda ns, x: ns.nn.functional.silu(x), WAVES),
    "mish": (lambda ns, x: ns.nn.functional.mish(x), WAVES),
    "gelu": (lambda ns, x: ns.nn.functional.gelu(x), points(-5, 12)),
    "gelu by tanh": (lambda ns, x: ns.nn.functional.gelu(x, approximate="tanh"), points(-4, 12)),
    "hardswish": (lambda ns, x: ns.nn.functional.hardswish(x), WAVES),
    "softplus": (lambda ns, x: ns.nn.functional.softplus(x), WAVES),
    "logsigmoid": (lambda ns, x: ns.nn.functional.logsigmoid(x), WAVES),
    "elu": (lambda ns, x: ns.nn.functional.elu(x), points(-60, 12)),
}

COMPOSITIONS: dict[str, tuple[Function, tuple[Any, ...], tuple[str, ...]]] = {
    "gated": (
        lambda ns, x, y: ns.nn.functional.silu(x) * y, (normal(64, 64) * 5, normal(64, 64, seed=1)),
        ALL,
    ),
    "glu": (lambda ns, x: ns.nn.functional.glu(x), (normal(64, 64) * 4,), ALL),
    "softmax of large": (lambda ns, x: ns.softmax(x, -1), (ROWS * 100,), ALL),
    "log_softmax of large": (lambda ns, x: ns.log_softmax(x, -1), (ROWS * 100,), ALL),
    "logsumexp far from 0": (lambda ns, x: ns.logsumexp(x, -1), (ROWS + 50,), ALL),
    "cross_entropy": (
        lambda ns, x: ns.nn.functional.cross_entropy(x, ns.tensor(CLASSES), label_smoothing=0.1),
        (ROWS * 30,), ALL,
    ),
    "cross_entropy of probabilities": (
        lambda ns, x, p: ns.nn.functional.cross_entropy(x, p),
        (normal(600, 20, seed=3) * 100, np.tile(np.eye(20)[:1] * 0.5 + 0.025, (600, 1))), ALL,
    ),
    "nll_loss": (
        lambda ns, x: ns.nn.functional.nll_loss(x, ns.tensor(np.arange(2000) % 4)),
        (normal(2000, 4, seed=3) - 60,), ALL,
    ),
    "bce with logits": (
        lambda ns, x, p: ns.nn.functional.binary_cross_entropy_with_logits(x, p, reduction="none"),
        (ROWS, uniform(32, 200, seed=10)), ALL,
    ),
    "layer_norm far from 0": (
        lambda ns, x, w, b: ns.nn.functional.layer_norm(x, (200,), w, b),
        (ROWS + 50, normal(200, seed=4), normal(200, seed=5)), F32,
    ),
    "rms_norm": (
        lambda ns, x, w: ns.nn.functional.rms_norm(x, (200,), w),
        (ROWS * 100, normal(200, seed=4)), ALL,
    ),
    "normalize": (lambda ns, x: ns.nn.functional.normalize(x), (ROWS * 100,), ALL),
    "var far from 0": (lambda ns, x: x.var(-1), (ROWS + 50,), ALL),
    "norm 3": (lambda ns, x: x.norm(p=3, dim=-1), (ROWS * 30,), ALL),
    "cumsum": (lambda ns, x: x.cumsum(-1), (ROWS + 50,), ALL),
    "running products": (lambda ns, x: (x * 0.01 + 1).cumprod(-1), (ROWS,), ALL),
    "long running products": (lambda ns, x: (x * 0.001 + 1).cumprod(0), (normal(5000),), F32),
    "wide running products": (lambda ns, x: (x * 0.01 + 1).cumprod(0), (normal(90, 200),), F32),
    "running log sums": (lambda ns, x: x.logcumsumexp(-1), (ROWS,), ALL),
    "long running log sums": (lambda ns, x: x.logcumsumexp(0), (normal(5000),), F32),
    "running log sums far from 0": (lambda ns, x: x.logcumsumexp(0), (normal(300, 40) + 50,), F32),
    "long product": (
        lambda ns, a, b: a @ b, (uniform(4, 1 << 14, seed=1), uniform(1 << 14, 4, seed=2)), ALL,
    ),
    "long mean": (lambda ns, x: x.mean(0), (uniform(1 << 15, 8),), F32),
    "attention": (
        lambda ns, q, k, v: ns.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        tuple(normal(1, 2, 40, 16, seed=n) * 3 for n in range(3)), ALL,
    ),
    "bilinear": (
        lambda ns, x: ns.nn.functional.interpolate(x, scale_factor=1.7, mode="bilinear"),
        (NEAR,), ALL,
    ),
    "bicubic": (
        lambda ns, x: ns.nn.functional.interpolate(x, size=(30, 33), mode="bicubic"), (NEAR,), ALL,
    ),
    "grid_sample": (
        lambda ns, x, g: ns.nn.functional.grid_sample(x, g, align_corners=False),
        (NEAR, uniform(1, 9, 9, 2, seed=6) * 1.8 - 0.9), F32,
    ),
    "convolution of 18,432 products": (
        lambda ns, x, w: ns.nn.functional.conv2d(x, w, padding=1),
        (uniform(1, 2048, 6, 6, seed=1), uniform(16, 2048, 3, 3, seed=2)), F32,
    ),
    "convolution of large kernels": (
        lambda ns, x, w: ns.nn.functional.conv2d(x, w),
        (uniform(2, 512, 8, 8, seed=1), uniform(32, 512, 6, 6, seed=2)), F32,
    ),
}  # fmt: skip
# These are held to PyTorch's error in each element: nothing in them cancels.
EACH = ("bilinear", "bicubic", "softmax of large")


def arguments(ns: Any, arrays: tuple[Any, ...], dtype: str, *, wide: bool) -> list[Any]:
    given = [ns.tensor(a.astype(np.float32)).to(getattr(ns, dtype)) for a in arrays]
    return [(t.to(ns.float64) if wide else t).requires_grad_() for t in given]


def results(
    ns: Any, function: Function, arrays: tuple[Any, ...], dtype: str, *, wide: bool = False,
    compiled: bool = False,
) -> list[Any]:  # fmt: skip
    """The value, and the gradients for a cotangent of normal numbers."""
    given = arguments(ns, arrays, dtype, wide=wide)
    shape = tuple(function(ns, *given).shape)
    cotangent = np.asarray(normal(*shape, seed=77) if shape else 1.0)
    (direction,) = arguments(ns, (cotangent,), dtype, wide=wide)

    def step(direction: Any, *given: Any) -> Any:
        value = function(ns, *given)
        return value, *ns.autograd.grad(value, given, direction)

    run = eg.compile(step) if compiled else step
    return [t.detach().double().numpy() for t in run(direction.detach(), *given)]


def errors(found: Any, exact: Any, least: float, dtype: str) -> tuple[float, float]:
    """The largest error and the root of the mean square, in units of rounding; of what is finite
    in both."""
    there = np.isfinite(exact) & np.isfinite(found)
    off = np.abs(found[there] - exact[there]) / np.maximum(np.abs(exact[there]), least)
    off = off / ROUNDING[dtype]
    return float(off.max(initial=0)), math.sqrt(np.mean(off**2)) if off.size else 0.0


def check(torch: Any, function: Function, arrays: tuple[Any, ...], dtype: str, each: bool) -> None:
    exact = results(torch, function, arrays, dtype, wide=True)
    theirs = results(torch, function, arrays, dtype)
    for compiled in (False, True):
        ours = results(eg, function, arrays, dtype, compiled=compiled)
        for number, (mine, other, true) in enumerate(zip(ours, theirs, exact, strict=True)):
            true, mine, other = (np.atleast_1d(a) for a in (true, mine, other))
            assert np.array_equal(np.isfinite(mine), np.isfinite(true))
            scale = math.sqrt(np.mean(true[np.isfinite(true)] ** 2))
            for least in (scale, LEAST[dtype]) if each else (scale,):
                largest, typical = errors(mine, true, least, dtype)
                their_largest, their_typical = errors(other, true, least, dtype)
                place = f"result {number}, compiled {compiled}"
                assert largest <= 6 * their_largest + 4, (place, largest, their_largest)
                assert typical <= 4 * their_typical + 1, (place, typical, their_typical)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, dtype: str, torch: ModuleType) -> None:
    """The derivative of silu in bfloat16 was off by 100 % where it is small."""
    function, values = ACTIVATIONS[name]
    check(torch, function, (values,), dtype, each=True)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(name: str, torch: ModuleType) -> None:
    function, arrays, types = COMPOSITIONS[name]
    for dtype in types:
        check(torch, function, arrays, dtype, each=name in EACH)
