"""Uneven inputs: processes that have run out of inputs take part in the collectives of the others.

A :class:`Joinable` calls collectives in every iteration; its :class:`JoinHook` calls those that a
process without inputs contributes in their place. Within :class:`Join` the processes count, before
every iteration, how many of them have an input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import evergrad
from evergrad.distributed.collectives import all_reduce
from evergrad.distributed.optim import ZeroRedundancyOptimizer
from evergrad.distributed.work import Work
from evergrad.extension import provides
from evergrad.nn.parallel.distributed import DistributedDataParallel


class JoinHook:
    """What a process does that has no more inputs."""

    def main_hook(self) -> None:
        """Call the collectives of one iteration of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once when no process has an input; ``is_last_joiner`` on those that had one in
        the last iteration."""


class Joinable(ABC):
    """A class whose collectives processes without inputs can take part in. In every iteration it
    calls ``Join.notify_join_context(self)`` before its collectives."""

    _join_context: Join | None = None

    @abstractmethod
    def join_hook(self, **kwargs: object) -> JoinHook:
        """The hook, made at the start of a join context with its keyword arguments."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of its collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of its collectives."""


Joinable.register(DistributedDataParallel)
Joinable.register(ZeroRedundancyOptimizer)


@provides("join_context")
class Join:
    """A context in which processes may have different numbers of inputs.

    >>> with Join([model, optimizer]):
    ...     for x in inputs:  # more of them on some ranks
    ...         model(x).sum().backward()
    ...         optimizer.step()

    ``throw_on_early_termination`` raises an error on all processes when the first has no input
    left. Further arguments go to the hooks of the joinables.
    """

    def __init__(
        self, joinables: Sequence[Any], enable: bool = True,
        throw_on_early_termination: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        if not all(isinstance(j, Joinable) for j in joinables):
            raise TypeError("a joinable has join_hook, join_device and join_process_group")
        groups = [j.join_process_group for j in joinables]
        if any(g is not groups[0] for g in groups):
            raise ValueError("Using join context manager with multiple process groups")
        self.joinables: list[Any] = list(joinables)
        self.group: Any = groups[0]
        self.enabled = enable
        self.throws = throw_on_early_termination
        self.hooks: list[Any] = [j.join_hook(**kwargs) for j in joinables] if enable else []

    def __enter__(self) -> None:
        if self.enabled:
            for joinable in self.joinables:
                joinable._join_context = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if not self.enabled:
            return
        try:
            if error is None:
                self._shadow()
        finally:
            for joinable in self.joinables:
                joinable._join_context = None

    def _shadow(self) -> None:
        is_last = True
        while self._count(has_input=False):
            for hook in self.hooks:
                hook.main_hook()
            is_last = False
        for hook in self.hooks:
            hook.post_hook(is_last)

    def _count(self, has_input: bool) -> int:
        """How many processes have an input."""
        count = evergrad.tensor(int(has_input), dtype=evergrad.int32)
        all_reduce(count, group=self.group, label="processes with an input")
        found = int(count.item())
        if self.throws and 0 < found < self.group.size():
            raise RuntimeError(
                f"Detected at least one rank that exhausted inputs: {found} of "
                f"{self.group.size()} have another (throw_on_early_termination=True)"
            )
        return found

    @staticmethod
    def notify_join_context(joinable: Any) -> Work | None:
        """Count the processes with an input, if this is the first joinable of a join context."""
        context = joinable._join_context
        if context is None or context.joinables[0] is not joinable:
            return None
        context._count(has_input=True)
        return Work()


__all__ = ["Join", "JoinHook", "Joinable"]
