"""Winograd on images with outliers and infinities: as exact as direct convolution."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

from .convolutions import kernels

F = eg.nn.functional


def image(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SHAPE, WEIGHT = (2, 48, 20, 20), (40, 48, 3, 3)


def compiled(x: Any, w: Any, **options: Any) -> Any:
    run = eg.compile(lambda x, w: F.conv2d(x, w, padding=1, **options))
    return run(eg.from_numpy(x), eg.from_numpy(w)).numpy()


def componentwise(found: Any, x: Any, w: Any, torch: ModuleType) -> float:
    """The error of each output, relative to the sum of the magnitudes it is made of."""
    f = torch.nn.functional.conv2d
    wide = [torch.from_numpy(v.astype(np.float64)) for v in (x, w)]
    exact = f(*wide, padding=1).numpy()
    scale = f(*(v.abs() for v in wide), padding=1).numpy()
    return float((np.abs(found - exact) / scale).max())


@pytest.mark.usefixtures("made_anew")
def test_winograd_is_used_for_such_images() -> None:
    run = eg.compile(lambda x, w: F.conv2d(x, w, padding=1))
    x, w = eg.from_numpy(image(*SHAPE)), eg.from_numpy(image(*WEIGHT))
    run(x, w)
    assert any(name.startswith("conv_winograd_guard") for name in kernels(run))


@pytest.mark.parametrize("size", [1.0, 10.0, 100.0, 1e4, 1e8])
def test_outliers(size: float, torch: ModuleType) -> None:
    """It was 50 times as inexact where one element in 500 is 10,000 times as large."""
    x, w = image(*SHAPE), image(*WEIGHT, seed=1)
    x.reshape(-1)[::499] *= size
    theirs = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1)
    bound = 6 * max(componentwise(theirs.numpy(), x, w, torch), 1e-7)
    assert componentwise(compiled(x, w), x, w, torch) <= bound


@pytest.mark.parametrize("has_relu", [False, True])
def test_outliers_of_weights(has_relu: bool, torch: ModuleType) -> None:
    """It was 20,000 times as inexact where one weight in 500 is a million times as large: the image
    alone was measured."""
    run = eg.compile(lambda x, w: F.conv2d(x, w, padding=1))
    for size in (1.0, 64.0, 1e3, 1e6):
        x, w = image(*SHAPE), image(*WEIGHT, seed=1)
        x = np.maximum(x, 0) if has_relu else x
        w.reshape(-1)[::499] *= size
        theirs = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1)
        bound = 5 * max(componentwise(theirs.numpy(), x, w, torch), 1e-7)
        found = run(eg.from_numpy(x), eg.from_numpy(w)).numpy()
        assert componentwise(found, x, w, torch) <= bound, size


LAYOUTS = {
    "contiguous": lambda w: w,
    "taps transposed": lambda w: w.mT,
    "taps reversed": lambda w: w.flip(3).flip(3),
    "a slice": lambda w: w.repeat_interleave(2, 3)[..., ::2],
    "channels transposed": lambda w: w.transpose(0, 1).contiguous().transpose(0, 1),
    "expanded": lambda w: w[:, :1].expand(*WEIGHT),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_of_any_layout_are_measured(layout: str, torch: ModuleType) -> None:
    def forward(ns: Any, x: Any, w: Any) -> Any:
        return ns.nn.functional.conv2d(x, LAYOUTS[layout](w), padding=1)

    run = eg.compile(lambda x, w: forward(eg, x, w))
    for value in (math.inf, -math.inf, math.nan, 1e6):
        x, w = image(*SHAPE), image(*WEIGHT, seed=1)
        w[3, 0, 1, 1] = value
        found = run(eg.from_numpy(x), eg.from_numpy(w)).numpy()
        theirs = forward(torch, torch.from_numpy(x), torch.from_numpy(w)).numpy()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(theirs))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(theirs))
        there = np.isfinite(theirs)
        np.testing.assert_allclose(found[there], theirs[there], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_in_its_windows(value: float, torch: ModuleType) -> None:
    """One infinity became NaN in its tile."""
    x, w = image(*SHAPE), image(*WEIGHT, seed=1)
    x[1, 7, 5, 6] = value
    found = compiled(x, w)
    theirs = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1).numpy()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(theirs))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(theirs))
    there = np.isfinite(theirs)
    np.testing.assert_allclose(found[there], theirs[there], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("fill", [0.0, 1.0, 1e-40, 1e30])
def test_even_images(fill: float, torch: ModuleType) -> None:
    x, w = np.full(SHAPE, fill, np.float32), image(*WEIGHT, seed=1)
    found = compiled(x, w)
    exact = torch.nn.functional.conv2d(
        torch.from_numpy(x.astype(np.float64)), torch.from_numpy(w.astype(np.float64)), padding=1
    ).numpy()
    scale = max(float(np.abs(exact).max()), 1e-30)
    assert np.abs(found - exact).max() <= 2e-6 * scale


def test_gradients_with_outliers_and_threads(torch: ModuleType) -> None:
    x, w, g = image(*SHAPE), image(*WEIGHT, seed=1), image(2, 40, 20, 20, seed=2)
    g[0, 3, 4, 5] = 1e6

    def gradients(ns: Any, x: Any, w: Any, g: Any) -> Any:
        y = ns.nn.functional.conv2d(x, w, padding=1)
        return ns.autograd.grad((y * g).sum(), (x, w))

    run = eg.compile(lambda x, w, g: gradients(eg, x, w, g))
    theirs = gradients(torch, *(torch.from_numpy(v).double().requires_grad_() for v in (x, w)),
                       torch.from_numpy(g).double())  # fmt: skip
    before = eg.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            args = [eg.from_numpy(v.copy()).requires_grad_() for v in (x, w)]
            found.append([t.numpy() for t in run(*args, eg.from_numpy(g))])
    finally:
        eg.set_num_threads(before)
    for ours, expected in zip(found[0], theirs, strict=True):
        scale = expected.abs().max().item()
        np.testing.assert_allclose(ours, expected.numpy(), atol=3e-6 * scale)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_a_bias_and_an_activation_follow_either_kernel(torch: ModuleType) -> None:
    w, b = image(*WEIGHT, seed=1), image(40, seed=3)
    run = eg.compile(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)))
    for size in (1.0, 1e6):  # one program, both ways
        x = image(*SHAPE)
        x[0, 0, 0, 0] = size
        expected = torch.relu(
            torch.nn.functional.conv2d(
                *(torch.from_numpy(v).double() for v in (x, w, b)), padding=1
            )
        ).numpy()
        found = run(*(eg.from_numpy(v) for v in (x, w, b))).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6 * max(size, 30))


@pytest.mark.usefixtures("made_anew")
@pytest.mark.parametrize("threads", [1, 2])
def test_weight_gradients_of_cotangents_that_are_not_finite(
    threads: int, torch: ModuleType
) -> None:
    """Elements that are infinite were NaN. A sum of two cotangents that overflows is none of the
    gradient's."""

    def gradient(ns: Any, x: Any, w: Any, g: Any) -> Any:
        return ns.autograd.grad(ns.nn.functional.conv2d(x, w, padding=1), w, g)[0]

    step = eg.compile(lambda x, w, g: gradient(eg, x, w, g))
    x, w = image(*SHAPE), image(*WEIGHT, seed=1)
    before = eg.get_num_threads()
    try:
        eg.set_num_threads(threads)
        for value, size in ((1.0, 1.0), (math.inf, 1.0), (-math.inf, 1.0), (math.nan, 1.0),
                            (3e38, 1e-4)):  # fmt: skip
            g = image(2, 40, 20, 20, seed=2)
            g[1, 7, 5, 6:8] = value
            given = [[eg, eg.from_numpy], [torch, torch.from_numpy]]
            found, theirs = (
                (step if ns is eg else lambda *a: gradient(torch, *a))(
                    convert(x * np.float32(size)), convert(w).requires_grad_(), convert(g)
                ).numpy()
                for ns, convert in given
            )
            np.testing.assert_array_equal(np.isnan(found), np.isnan(theirs))
            infinite = np.isinf(theirs)
            np.testing.assert_array_equal(found[infinite], theirs[infinite])
            there = np.isfinite(theirs)
            np.testing.assert_allclose(found[there], theirs[there], rtol=1e-3, atol=1e-3)
    finally:
        eg.set_num_threads(before)
    assert any(name.startswith("conv_winograd_weight_grad") for name in kernels(step))
