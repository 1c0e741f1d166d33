"""Short-time Fourier transforms against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from twins import agree, derivatives, refuse

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIONS: list[dict[str, Any]] = [
    {},
    {"hop_length": 3},
    {"win_length": 5, "hop_length": 2},
    {"center": False},
    {"normalized": True},
]


def numbers(*shape: int, complex: bool = False) -> Array:
    generator = np.random.default_rng(shape)
    found: Any = generator.standard_normal(shape)
    return np.asarray(found + 1j * generator.standard_normal(shape) if complex else found)


def window_for(options: dict[str, Any], n_fft: int) -> Array:
    size = options.get("win_length") or n_fft
    return np.random.default_rng(size).uniform(0.3, 2.0, size)


def compare(torch: ModuleType, call: Callable[..., Any], *arrays: Array) -> None:
    agree(lambda ns: derivatives(ns, call, *arrays), torch, 1e-9)


@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("options", [*OPTIONS, {"onesided": False}, {"pad_mode": "constant"}])
def test_stft(torch: ModuleType, options: dict[str, Any], complex: bool) -> None:
    for shape, n_fft in (((20,), 8), ((2, 20), 7)):
        x, window = numbers(*shape, complex=complex), window_for(options, n_fft)

        def call(ns: Any, x: Any, w: Any, n: int = n_fft) -> Any:
            return ns.stft(x, n, window=w, return_complex=True, **options)

        compare(torch, call, x, window)


def test_stft_as_pairs(torch: ModuleType) -> None:
    compare(torch, lambda ns, x: ns.stft(x, 4, return_complex=False), numbers(2, 12))


@pytest.mark.parametrize("shape", [(5, 6), (2, 5, 6), (8, 6)])
@pytest.mark.parametrize("options", [*OPTIONS, {"length": 7}, {"length": 30}])
def test_istft(torch: ModuleType, options: dict[str, Any], shape: Any) -> None:
    x, window = numbers(*shape, complex=True), window_for(options, 8)
    compare(torch, lambda ns, x, w: ns.istft(x, 8, window=w, **options), x, window)


def test_istft_to_complex_signals(torch: ModuleType) -> None:
    x = numbers(8, 6, complex=True)
    compare(torch, lambda ns, x: ns.istft(x, 8, return_complex=True), x)


def test_round_trip() -> None:
    x = evergrad.tensor(numbers(40))
    window = evergrad.hann_window(8, dtype=evergrad.float64)
    spectra = evergrad.stft(x, 8, window=window, return_complex=True)
    back = evergrad.istft(spectra, 8, window=window, length=40)
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-14)


@pytest.mark.parametrize(
    "program",
    [
        lambda ns: ns.stft(ns.ones(16), 8),
        lambda ns: ns.stft(ns.ones(2, 2, 16), 8, return_complex=True),
        lambda ns: ns.stft(ns.ones(4), 8, return_complex=True, center=False),
        lambda ns: ns.stft(ns.ones(16), 8, hop_length=0, return_complex=True),
        lambda ns: ns.stft(ns.ones(16), 8, win_length=9, return_complex=True),
        lambda ns: ns.stft(ns.ones(16), 8, window=ns.ones(4), return_complex=True),
        lambda ns: ns.stft(ns.ones(16).long(), 8, return_complex=True),
        lambda ns: ns.stft(ns.ones(16) * 1j, 8, onesided=True),
        lambda ns: ns.istft(ns.ones(5, 4), 8),
        lambda ns: ns.istft(ns.ones(5, 4) * 1j, 8, center=False, window=ns.hann_window(8)),
        lambda ns: ns.istft(ns.ones(4, 4) * 1j, 8),
        lambda ns: ns.istft(ns.ones(5, 4) * 1j, 8, hop_length=9),
        lambda ns: ns.istft(ns.ones(1, 2, 5, 4) * 1j, 8),
        lambda ns: ns.istft(ns.ones(5, 0) * 1j, 8),
        lambda ns: ns.istft(ns.ones(5, 4) * 1j, 8, onesided=False),
        lambda ns: ns.istft(ns.ones(5, 4) * 1j, 8, return_complex=True),
    ],
)
def test_refusals(torch: ModuleType, program: Callable[[Any], Any]) -> None:
    refuse(program, torch)
