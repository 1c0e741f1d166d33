"""Guards on the options of optimizers: numbers that a program reads at run time may change, whether
they are zero may not, and all others have to stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from evergrad.compiler.frontend.guards.native_guards import same_objects
from evergrad.compiler.frontend.state.places import Slot
from evergrad.core.functionalize import FunctionalizingTrace
from evergrad.core.tensor import Tensor

Guard = tuple[Callable[[], Any], Any, str]

# Entries of a parameter group that are no options of the update.
_NOT_OPTIONS = ("params", "param_names", "initial_lr")
# What the options are at one moment: whether those that are not read at run time are the same
# objects, and the values of the others.
Snapshot = tuple[Callable[[], bool], list[Any]]


class OptionGuards:
    """The guards on the options of optimizers. Those that are read at run time have the same values
    while ``numbers_token`` is the same object."""

    def __init__(self, trace: FunctionalizingTrace, skipped: Collection[Slot]) -> None:
        """``skipped`` are options that the program itself writes."""
        groups = list(trace.groups.values())
        inputs = {(id(container), key) for container, key, *_ in trace.numbers.values()}
        slots = [(group, key) for group in groups for key in group]
        slots = [(group, key) for group, key in slots if (id(group), key) not in skipped]
        # The options that are read at run time, with whether they are zero.
        self.inputs = [(g, key, _zeros(g, key)) for g, key in slots if (id(g), key) in inputs]
        self.groups = groups
        self.others = [(group, key) for group, key in slots if (id(group), key) not in inputs]
        self.predicates: list[Guard] = list(_options(trace, skipped))
        self.accept(self.snapshot())

    def snapshot(self) -> Snapshot:
        """What the options are now."""
        are_same = same_objects((), self.others, self.groups)
        return are_same, [group.get(key) for group, key, _ in self.inputs]

    def accept(self, snapshot: Snapshot) -> None:
        """These options satisfy the guards."""
        self.others_are_same, self.values = snapshot
        self.numbers_token: object = object()

    def hold_fast(self) -> bool:
        """Whether only floats that are read at run time have changed, if anything has."""
        values = self.values
        for n, (group, key, is_zero) in enumerate(self.inputs):
            value = group.get(key)
            if value is not values[n]:
                if value.__class__ is not float or (value == 0) is not is_zero:
                    return False
                values[n] = value
                self.numbers_token = object()
        return self.others_are_same()

    def hold(self) -> bool:
        """Whether the options, some of which have changed, satisfy their guards; those that are
        read at run time may have other values."""
        snapshot = self.snapshot()  # before the predicates are evaluated
        for predicate, expected, _ in self.predicates:
            if predicate() != expected:
                return False
        self.accept(snapshot)
        return True


def _options(trace: FunctionalizingTrace, skipped: Collection[Slot]) -> Iterator[Guard]:
    """Guards on options: of those read at run time, whether they are zero; of others, their
    value."""
    dynamic = {(id(container), key) for container, key, *_ in trace.numbers.values()}
    for group in trace.groups.values():
        is_params = partial(_entry_is, group, "params", group["params"])
        yield is_params, True, "the parameters of a group"
        for key in group:
            if key not in _NOT_OPTIONS and (id(group), key) not in skipped:
                of = _zeros if (id(group), key) in dynamic else _comparable
                value = partial(of, group, key)
                yield value, value(), f"the option {key}"


def _entry_is(group: dict[str, object], key: str, held: object) -> bool:
    return group.get(key) is held


def _comparable(group: dict[str, object], key: str) -> object:
    """An option as a comparable value: tensors compare by identity."""
    value = group.get(key)
    return id(value) if isinstance(value, Tensor) else value


def _zeros(group: dict[str, object], key: str) -> bool | tuple[bool, bool]:
    value = group[key]
    return tuple([v == 0 for v in value]) if isinstance(value, tuple) else value == 0
