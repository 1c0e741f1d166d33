"""What a workload is, before any framework: its loss, its parameters, its data.

A peer makes a step out of a :class:`Task` in its own way: eagerly, compiled in part or whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SEED = 1234
Array = np.ndarray[Any, Any]


def numbers() -> np.random.Generator:
    """The source of a workload's data: the same arrays in every process."""
    return np.random.default_rng(SEED)


@dataclass(frozen=True)
class Optimizer:
    """One of PyTorch's optimizers and its options, for frameworks that have to write their own."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A loss (or a value with a ``cotangent``) of named parameters and given data.

    With an optimizer a step trains and results in the loss; without one, a step results in the
    value and the gradient of every parameter.
    """

    function: Callable[..., Any]
    parameters: dict[str, Any]
    data: tuple[Any, ...] = ()
    optimizer: Optimizer | None = None
    cotangent: Any = None
