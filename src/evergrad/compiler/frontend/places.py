"""Places that hold Python state: slots and containers, read, compared and written.

A *slot* is an entry of a mapping, a cell or an attribute; the members of a container are one place.
:mod:`.python_state` finds the places that a function can reach.
"""

from __future__ import annotations

import array
import operator
import random
import weakref
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import (
    CellType,
    FunctionType,
    MappingProxyType,
    ModuleType,
)
from typing import Any

import numpy as np

from evergrad.compiler.frontend.append_recorder import AppendRecorder
from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.compiler.frontend.impure import is_stand_in
from evergrad.core.dtypes import dtype
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.python_numbers import DeferredNumber, PythonNumber
from evergrad.core.tensor import Tensor

# A place that holds one value: a mapping and a key, a cell and None, or an object and an attribute.
Slot = tuple[Any, Any]
PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, slice)


def same(now: Any, then: Any) -> bool:
    """Whether two values are interchangeable: the same object, or equal plain values."""
    if now is then:
        return True
    if type(now) is frozenset and type(then) is frozenset:
        return now == then
    if type(now) is not type(then) or not is_plain(then):
        return False
    return now.hex() == then.hex() if type(then) is float else bool(now == then)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a string, or a tuple of such."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return isinstance(value, (*PLAIN, np.generic, dtype))


BUFFERS = (bytearray, memoryview, array.array)


class StateGuard:
    """A guard on a place: on the value of a slot, or on the members of a container."""

    __slots__ = ("key", "name", "place", "value")

    def __init__(self, name: str, place: Any, key: Any, value: Any) -> None:
        self.name = name
        self.place = place
        self.key = key
        self.value = value

    def holds(self) -> bool:
        if self.key is MISSING:
            now = members_of(self.place)
            then = self.value
            return len(now) == len(then) and all(map(same, now, then))
        return same(read_slot(self.place, self.key), self.value)


def read_slot(holder: Any, key: Any) -> Any:
    """What a slot holds; ``MISSING`` if there is nothing."""
    try:
        if key is None and isinstance(holder, CellType):
            return holder.cell_contents
        if isinstance(holder, (dict, MappingProxyType)):
            return holder.get(key, MISSING)
        if isinstance(holder, list) and isinstance(key, int):
            return holder[key] if -len(holder) <= key < len(holder) else MISSING
        return getattr(holder, key, MISSING)
    except ValueError:  # an empty cell
        return MISSING


def members_of(container: Any) -> Sequence[Any]:
    """The members of a container, the keys of a mapping first."""
    if isinstance(container, (list, tuple)):
        return container
    if isinstance(container, (dict, MappingProxyType)):
        return [*container.keys(), *container.values()]
    if isinstance(container, BUFFERS):
        return (bytes(container),)
    if isinstance(container, np.ndarray):
        return (container.tobytes(), container.shape, container.strides)
    if isinstance(container, (set, frozenset)):
        return (frozenset(container),)
    return list(container)


def hook_counts(tensor: Tensor) -> tuple[int, ...]:
    """The number of hooks in each table of a leaf."""
    leaf = tensor._leaf
    if leaf is None:
        return ()
    hooks = leaf.hooks
    accumulated = len(leaf.accumulated or ())
    if hooks is None:
        return (accumulated, 0, 0, 0)
    on_result = sum(map(len, hooks.on_result.values()))
    return (accumulated, on_result, len(hooks.before), len(hooks.after))


def is_watchable(place: Any) -> bool:
    """Whether the members of a container can be compared by identity in their order."""
    return isinstance(place, (list, dict)) and not isinstance(place, OrderedDict)


class NamesSlot:
    """The names in a mapping as an attribute of an object: the same object while they are the
    same."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        self.mapping = mapping
        self.last: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        now = tuple(self.mapping)
        if now != self.last:
            self.last = now
        return self.last


class ContextSlot:
    """A context variable as an object with an attribute."""

    def __init__(self, variable: ContextVar[Any]) -> None:
        self.variable = variable

    @property
    def value(self) -> Any:
        return self.variable.get(MISSING)


class ReferenceSlot:
    """A weak reference as an object with an attribute: its referent is the same or gone."""

    def __init__(self, reference: weakref.ref[Any]) -> None:
        self.reference = reference

    @property
    def is_alive(self) -> bool:
        return self.reference() is not None


def write_slot(holder: Any, key: Any, value: Any) -> None:
    if key is None and isinstance(holder, CellType):
        holder.cell_contents = value
    elif isinstance(holder, dict):
        holder[key] = value
    elif isinstance(holder, MappingProxyType):
        pass  # of a class: written through its attribute
    else:
        setattr(holder, key, value)


def plain_numbers(value: Any, depth: int = 6) -> Any:
    """A value with Python floats for the numbers of a session: containers and objects are changed
    in place, tuples made anew."""
    if type(value) is SymbolicNumber:
        return float(value)
    if type(value) is DeferredNumber:
        return value.read()
    if type(value) is PythonNumber:
        return value.value
    if is_stand_in(value):
        return value.held
    if type(value) is AppendRecorder:
        value.pending = [plain_numbers(member) for member in value.pending]
        if value.content is not None:
            value.content = [plain_numbers(member) for member in value.content]
        return value.flush()
    if depth == 0 or isinstance(value, (Tensor, type, ModuleType, FunctionType, *PLAIN)):
        return value
    if isinstance(value, tuple):
        members = [plain_numbers(member, depth - 1) for member in value]
        if all(map(operator.is_, members, value)):
            return value
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if isinstance(value, set):
        _replace_members(value, depth)
        return value
    if isinstance(value, (dict, list, deque)):
        if isinstance(value, dict):
            _replace_keys(value, depth)
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, held in list(pairs):
            plain = plain_numbers(held, depth - 1)
            if plain is not held:
                value[key] = plain
        return value
    own = getattr(value, "__dict__", None)
    if type(own) is dict and "_parameters" not in own:
        plain_numbers(own, depth - 1)
    return value


def _replace_keys(held: dict[Any, Any], depth: int) -> None:
    """Have Python floats for the numbers of a session among the keys."""
    keys = [plain_numbers(key, depth - 1) for key in held]
    if not all(map(operator.is_, keys, held)):
        members = list(zip(keys, held.values(), strict=True))
        held.clear()
        held.update(members)


def _replace_members(held: set[Any], depth: int) -> None:
    members = [plain_numbers(member, depth - 1) for member in held]
    if not all(map(operator.is_, members, held)):
        held.clear()
        held.update(members)


def random_state(source: Any) -> Any:
    """The state of a source of random numbers, for comparison."""
    if isinstance(source, np.random.Generator):
        return repr(source.bit_generator.state)
    if source is random or isinstance(source, random.Random):
        try:
            return source.getstate()
        except NotImplementedError:  # of the operating system
            return None
    kind, keys, *rest = source.get_state()
    return (kind, keys.tobytes(), *rest)
