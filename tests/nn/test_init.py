"""Starting values: the same numbers as PyTorch's for the same seed, and the same refusals."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import pytest

from twins import agree, refuse


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("uniform_", ()),
        ("uniform_", (-2.0, 3.0)),
        ("normal_", ()),
        ("normal_", (1.0, 0.1)),
        ("constant_", (0.3,)),
        ("ones_", ()),
        ("zeros_", ()),
        ("trunc_normal_", ()),
        ("trunc_normal_", (0.5, 2.0, -1.0, 1.5)),
        ("trunc_normal_", (0.0, 1.0, 1.5, 3.0)),
        ("xavier_uniform_", (1.5,)),
        ("xavier_normal_", ()),
        ("kaiming_uniform_", (0.1, "fan_out")),
        ("kaiming_normal_", (0.0, "fan_in", "relu")),
    ],
)
@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 2), (40, 50)])
def test_random_values(name: str, given: Any, shape: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(11)
        return getattr(ns.nn.init, name)(ns.empty(shape), *given)

    agree(program, torch, 1e-6)


@pytest.mark.parametrize("shape", [(5, 4), (4, 5), (4, 4), (3, 2, 2)])
def test_orthogonal(shape: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(11)
        return ns.nn.init.orthogonal_(ns.empty(shape, dtype=ns.float64), 1.5)

    agree(program, torch)


def test_structured_values(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(11)
        init = ns.nn.init
        return (
            init.eye_(ns.empty(3, 5)),
            init.dirac_(ns.empty(4, 2, 3)),
            init.dirac_(ns.empty(4, 2, 3, 3), groups=2),
            init.sparse_(ns.empty(10, 4), 0.3),
        )

    agree(program, torch)


def test_generators(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        generator = ns.Generator()
        generator.manual_seed(3)
        return [
            getattr(ns.nn.init, name)(ns.empty(4, 3), generator=generator)
            for name in ("uniform_", "normal_", "xavier_uniform_", "kaiming_normal_")
        ]

    agree(program, torch, 1e-6)


@pytest.mark.parametrize(
    "given",
    [
        ("linear",), ("conv2d",), ("sigmoid",), ("tanh",), ("relu",), ("leaky_relu",),
        ("leaky_relu", 0.3), ("selu",),
    ],
)  # fmt: skip
def test_gains(given: Any, torch: ModuleType) -> None:
    agree(lambda ns: float(ns.nn.init.calculate_gain(*given)), torch)


@pytest.mark.parametrize(
    "act",
    [
        lambda ns: ns.nn.init.calculate_gain("other"),
        lambda ns: ns.nn.init.calculate_gain("leaky_relu", "x"),
        lambda ns: ns.nn.init.eye_(ns.empty(3)),
        lambda ns: ns.nn.init.dirac_(ns.empty(3, 3)),
        lambda ns: ns.nn.init.dirac_(ns.empty(3, 3, 3), groups=2),
        lambda ns: ns.nn.init.xavier_uniform_(ns.empty(3)),
        lambda ns: ns.nn.init.kaiming_uniform_(ns.empty(3, 3), mode="other"),
        lambda ns: ns.nn.init.orthogonal_(ns.empty(3)),
        lambda ns: ns.nn.init.sparse_(ns.empty(3), 0.1),
    ],
)
def test_mistakes_are_refused(act: Any, torch: ModuleType) -> None:
    refuse(act, torch)


def test_former_spellings(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = ns.nn.init.uniform(ns.empty(3))
        return value, [w.category.__name__ for w in caught]

    agree(program, torch)


def test_parameters_stay_leaves(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        p = ns.nn.Parameter(ns.empty(2, 2))
        same = ns.nn.init.ones_(p) is p
        return same, p.requires_grad, p.is_leaf

    agree(program, torch)
