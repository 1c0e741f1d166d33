"""What a workload is, and the table of all of them.

A workload is a function of the namespace (``torch`` or ``evergrad``) that builds a :class:`Work`:
parameters from the namespace's generator, seeded alike, data from NumPy. It is named after its
function and belongs to the family of its module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

SEED = 1234


@dataclass(frozen=True)
class Work:
    """A step and what it is called with; call ``i`` gets ``batches[i % len(batches)]``.

    The step gives a tensor, a number, or a tuple of these: all are compared with PyTorch's.
    """

    step: Callable[..., Any]
    batches: tuple[tuple[Any, ...], ...] = ((),)

    def calls(self, step: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
        """The calls of a run, without end; ``step`` is the step itself or compiled."""
        for batch in itertools.cycle(self.batches):
            yield lambda batch=batch: step(*batch)


@dataclass(frozen=True)
class Workload:
    """One entry of the table; ``tolerance`` is relative, for what the first steps result in."""

    name: str
    family: str
    build: Callable[[Any], Work]
    tolerance: float

    def make(self, torch: Any) -> Work:
        """Build it with a namespace, from the common seed."""
        torch.manual_seed(SEED)
        return self.build(torch)


WORKLOADS: dict[str, Workload] = {}


def workload(tolerance: float = 1e-3) -> Callable[[Callable[[Any], Work]], Callable[[Any], Work]]:
    """Enter a function into the table."""

    def enter(build: Callable[[Any], Work]) -> Callable[[Any], Work]:
        family = build.__module__.rpartition(".")[2]
        assert build.__name__ not in WORKLOADS, build.__name__
        WORKLOADS[build.__name__] = Workload(build.__name__, family, build, tolerance)
        return build

    return enter


class Data:
    """Tensors with the same numbers in every namespace."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._random = np.random.default_rng(SEED)

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        """Normal numbers in float32."""
        return self._torch.tensor(scale * self._random.standard_normal(shape, np.float32))

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Any:
        """Evenly spread numbers in float32."""
        return self._torch.tensor(self._random.uniform(low, high, shape).astype(np.float32))

    def integers(self, high: int, *shape: int, low: int = 0) -> Any:
        """Integers below ``high`` in int64."""
        return self._torch.tensor(self._random.integers(low, high, shape))
