"""Pooling at random places: PyTorch's windows for PyTorch's samples."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from twins import agree, derivatives, refuse

SIZES: list[dict[str, Any]] = [
    {"output_size": 3}, {"output_size": (4, 1)}, {"output_ratio": (0.5, 0.6)},
]  # fmt: skip


def images(rank: int) -> Any:
    return np.random.default_rng(0).standard_normal((2, 3, 7, 9, 8)[: rank + 2])


@pytest.mark.parametrize("settings", SIZES, ids=str)
def test_planes(settings: dict[str, Any], torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(3)  # both draw the same samples
        pool = ns.nn.functional.fractional_max_pool2d
        return pool(ns.tensor(images(2)), (2, 3), return_indices=True, **settings)

    agree(program, torch)


def test_volumes(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(3)
        pool = ns.nn.FractionalMaxPool3d((2, 3, 1), output_size=(4, 1, 3), return_indices=True)
        return pool(ns.tensor(images(3)))

    agree(program, torch)


def test_derivatives(torch: ModuleType) -> None:
    samples = np.random.default_rng(1).random((2, 3, 2))

    def program(ns: Any) -> Any:
        pool = ns.nn.FractionalMaxPool2d(2, output_ratio=0.5, _random_samples=ns.tensor(samples))
        return derivatives(ns, lambda _, x: pool(x) ** 2, images(2))

    agree(program, torch)


def test_layers(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(5)
        pool = ns.nn.FractionalMaxPool2d(2, output_size=(3, 4))
        return pool(ns.tensor(images(2))), pool(ns.tensor(images(2)[0])), repr(pool)

    agree(program, torch)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ns: ns.nn.FractionalMaxPool2d(2),
        lambda ns: ns.nn.FractionalMaxPool2d(2, output_size=2, output_ratio=0.5),
        lambda ns: ns.nn.FractionalMaxPool2d(2, output_ratio=1.5),
        lambda ns: ns.nn.functional.fractional_max_pool2d(ns.ones(1, 1, 4, 4), 2),
        lambda ns: ns.nn.functional.fractional_max_pool2d(ns.ones(1, 1, 4, 4), 2, output_size=4),
    ],
)
def test_misuse_is_refused(misuse: Any, torch: ModuleType) -> None:
    refuse(misuse, torch)


def test_what_is_drawn_can_be_given() -> None:
    x = evergrad.tensor(images(2))
    samples = evergrad.zeros(2, 3, 2, dtype=evergrad.float64)
    pool = evergrad.nn.functional.fractional_max_pool2d
    first, second = (pool(x, 2, output_size=3, _random_samples=samples) for _ in range(2))
    assert first.equal(second)
