"""Places that hold Python state: slots and containers, read, compared and written.

A *slot* is an entry of a mapping, a cell or an attribute; the members of a container are one place.
:mod:`.python_state` finds the places that a function can reach.
"""

from __future__ import annotations

import array
import datetime
import decimal
import fractions
import gc
import operator
import pathlib
import random
import re
import uuid
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import (
    CellType,
    FunctionType,
    MappingProxyType,
    ModuleType,
)
from typing import Any

import numpy as np

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.recording.append_recorder import AppendRecorder
from evergrad.compiler.frontend.recording.impure import is_stand_in
from evergrad.compiler.frontend.state.library_objects import MEMORY, content_of
from evergrad.compiler.frontend.state.raw_reads import (
    attribute_of,
    attributes_of,
    is_a,
    members_of_builtin,
)
from evergrad.core.deferred_arrays import DeferredArray
from evergrad.core.dtypes import dtype
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.python_numbers import DeferredNumber, PythonNumber
from evergrad.core.tensor import Tensor

# A place that holds one value: a mapping and a key, a cell and None, or an object and an attribute.
Slot = tuple[Any, Any]
PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range, slice)


# Immutable values of the standard library, compared by what they show.
_VALUES = (decimal.Decimal, fractions.Fraction, datetime.timedelta, datetime.date,
           datetime.timezone, uuid.UUID, pathlib.PurePosixPath, pathlib.PureWindowsPath,
           re.Pattern)  # fmt: skip
_TIMES = (datetime.datetime, datetime.time)


def is_library_value(value: Any) -> bool:
    """Whether a value is an immutable one of the standard library, of no subclass."""
    kind = type(value)
    if kind in _TIMES:
        return value.tzinfo is None or type(value.tzinfo) is datetime.timezone
    return kind in _VALUES


def same(now: Any, then: Any) -> bool:
    """Whether two values are interchangeable: the same object, or equal plain values, which have
    the same types in the same places: ``1 == 1.0 == True``."""
    if now is then:
        return True
    kind = type(then)
    if type(now) is not kind:
        return False
    if kind is tuple:
        return len(now) == len(then) and all(map(same, now, then))
    if kind is float:
        return bool(now.hex() == then.hex())
    if kind is frozenset:
        return are_same_sets(now, then)
    if not is_plain(then):
        return False
    if kind is complex or is_a(then, np.generic) or is_library_value(then):
        return repr(now) == repr(then)
    if kind in (slice, range):
        parts = ((now.start, then.start), (now.stop, then.stop), (now.step, then.step))
        return all(same(*part) for part in parts)
    return bool(now == then)


def are_same_sets(now: Any, then: Any) -> bool:
    """Whether two sets have interchangeable members."""
    return bool(now == then) and Counter(map(_kind_of, now)) == Counter(map(_kind_of, then))


def sets_predicate(guards: Sequence[StateGuard]) -> Callable[[], bool]:
    """Whether guards on sets hold: at once where the members are the same objects in the same
    order."""
    watched = [
        (g.place, list(g.place) if are_same_sets(g.place, g.value[0]) else [MISSING], g.value[0])
        for g in guards
    ]

    def hold() -> bool:
        for place, seen, then in watched:
            if len(place) == len(seen):
                try:
                    if not seen or all(map(operator.is_, place, seen)):
                        continue
                except RuntimeError:  # resized concurrently by another thread
                    return False
            if not are_same_sets(place, then):
                return False
        return True

    return hold


def _kind_of(member: Any) -> object:
    """What equal members of sets may differ in."""
    if type(member) in (tuple, frozenset):
        return type(member), *sorted(map(repr, member))
    return type(member), repr(member) if is_a(member, (float, complex)) else None


def is_plain(value: object) -> bool:
    """Whether a value is a number, a string, or a tuple of such."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return is_a(value, (*PLAIN, np.generic, dtype)) or is_library_value(value)


def is_key(key: object) -> bool:
    """Whether a key of a mapping is a value, of no class of the user's."""
    return type(key) in _KEYS or (type(key) is tuple and all(map(is_key, key)))


_KEYS = (str, int, float, bool, bytes, type(None))
# The containers that others have stood in for, by the ids of these.
Originals = Mapping[int, Any]
NO_ORIGINALS: Originals = MappingProxyType({})
# The mappings of which an entry can be set without running other code.
MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
BUFFERS = (bytearray, memoryview, array.array)


class StateGuard:
    """A guard on a place: on the value of a slot, or on the members of a container."""

    __slots__ = ("key", "name", "place", "value")

    def __init__(self, name: str, place: Any, key: Any, value: Any) -> None:
        self.name: str = name
        self.place = place
        self.key = key
        self.value = value

    def holds(self) -> bool:
        if self.key is MISSING:
            now = members_of(self.place)
            then = self.value
            return len(now) == len(then) and all(map(same, now, then))
        return same(read_slot(self.place, self.key), self.value)

    def predicate(self) -> Callable[[], bool]:
        """As :meth:`holds`, in the quickest form."""
        place = self.place
        if self.key is MISSING and type(place) is set:
            return partial(are_same_sets, place, self.value[0])
        if self.key is MISSING and type(place) is np.ndarray:
            content, shape, strides = self.value
            return lambda: (
                place.tobytes() == content and place.shape == shape and place.strides == strides
            )
        return self.holds


def read_slot(holder: Any, key: Any) -> Any:
    """What a slot holds; ``MISSING`` if there is nothing."""
    try:
        if key is None and is_a(holder, CellType):
            return holder.cell_contents
        if is_a(holder, dict):  # its own method may be another one
            return dict.get(holder, key, MISSING)
        if is_a(holder, MappingProxyType):
            return holder.get(key, MISSING)
        if is_a(holder, list) and isinstance(key, int):
            return holder[key] if -len(holder) <= key < len(holder) else MISSING
        return attribute_of(holder, key, MISSING)
    except ValueError:  # an empty cell
        return MISSING


def members_of(container: Any) -> Sequence[Any]:
    """The members of a container, the keys of a mapping first."""
    if is_a(container, MappingProxyType):
        return [*container.keys(), *container.values()]
    if is_a(container, BUFFERS):
        return (bytes(container),)
    if is_a(container, MEMORY):
        return content_of(container)
    if is_a(container, np.ndarray):
        return (np.ndarray.tobytes(container), container.shape, container.strides)
    if is_a(container, (set, frozenset)):
        return (frozenset(members_of_builtin(container)),)
    return members_of_builtin(container)


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


def is_watchable(place: object) -> bool:
    """Whether the members of a container can be compared by identity in their order."""
    if is_a(place, list):
        return type(place).__iter__ is list.__iter__
    return is_a(place, dict) and not is_a(place, OrderedDict)


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


class ThreadNamesSlot:
    """The names in a thread-local object as an attribute: those of the calling thread."""

    def __init__(self, held: Any) -> None:
        self.held = held

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(vars(self.held))


class KeysSlot:
    """The keys of a container as an attribute: the same object while they are the same."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self.last: tuple[Any, ...] = ()

    @property
    def now(self) -> tuple[Any, ...]:
        held = self.container
        now = tuple(range(len(held)) if is_a(held, list) else held)
        if len(now) != len(self.last) or not all(map(same, now, self.last)):
            self.last = now
        return self.last


class MemoSlot:
    """What a function of ``functools.lru_cache`` caches, as an attribute: the same object while
    it caches the same arguments and results."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.last: tuple[Any, ...] = ()
        self.ids: frozenset[int] = frozenset()

    @property
    def results(self) -> tuple[Any, ...]:
        held = gc.get_referents(self.function)
        for part in tuple(held):
            if type(part) is dict and part is not self.function.__dict__:
                held += part.values()
        ids = frozenset(map(id, held))
        if ids != self.ids:
            self.last, self.ids = tuple(held), ids  # held, so that no id is used again
        return self.last


class ContextSlot:
    """A context variable as an object with an attribute."""

    def __init__(self, variable: ContextVar[Any]) -> None:
        self.variable = variable

    @property
    def value(self) -> Any:
        return self.variable.get(MISSING)

    @value.setter
    def value(self, value: Any) -> None:
        self.variable.set(value)


class HooksSlot:
    """The tables of hooks that something may have as an attribute: ``None`` while they are empty.
    Registering a hook makes them."""

    def __init__(self, tables: Callable[[], Any]) -> None:
        self.tables = tables

    @property
    def used(self) -> Any:
        held = self.tables()
        is_used = held is not None and any(getattr(held, name) for name in type(held).__slots__)
        return held if is_used else None


class ReferenceSlot:
    """A weak reference as an object with an attribute: its referent is the same or gone."""

    def __init__(self, reference: weakref.ref[Any]) -> None:
        self.reference = reference

    @property
    def is_alive(self) -> bool:
        return self.reference() is not None


def write_slot(holder: Any, key: Any, value: Any) -> None:
    if key is None and is_a(holder, CellType):
        holder.cell_contents = value
    elif is_a(holder, dict):
        holder[key] = value
    elif is_a(holder, MappingProxyType):
        pass  # of a class: written through its attribute
    else:
        setattr(holder, key, value)


def replace_kept(numbers: list[PythonNumber]) -> None:
    """Put their values for the numbers of a session that containers hold which the walk does not
    see, such as that of a ``WeakKeyDictionary``."""
    for number in numbers:
        for holder in gc.get_referrers(number):
            if holder is numbers:
                continue
            if type(holder) is dict:
                for key, held in list(holder.items()):
                    if held is number:
                        holder[key] = number.value
            elif type(holder) is list:
                holder[:] = [number.value if held is number else held for held in holder]


def plain_numbers(value: Any, depth: int = 6, originals: Originals = NO_ORIGINALS) -> Any:
    """A value with Python floats for the numbers of a session: containers and objects are changed
    in place, tuples made anew. ``originals`` are what copies, by id, have stood in for."""
    if id(value) in originals:
        return originals[id(value)]
    if type(value) is SymbolicNumber:
        return float(value)
    if type(value) is DeferredNumber:
        return value.read()
    if type(value) is PythonNumber:
        return value.value
    if type(value) is DeferredArray:
        return value.tensor.numpy()
    if is_stand_in(value):
        return value.held
    if type(value) is AppendRecorder:
        value.pending = [plain_numbers(member) for member in value.pending]
        if value.content is not None:
            value.content = [plain_numbers(member) for member in value.content]
        return value.flush()
    if depth == 0 or is_a(value, (Tensor, type, ModuleType, FunctionType, *PLAIN)):
        return value
    if is_a(value, tuple):
        members = [plain_numbers(member, depth - 1, originals) for member in value]
        if all(map(operator.is_, members, value)):
            return value
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if is_a(value, set):
        _replace_members(value, depth)
        return value
    if is_a(value, (dict, list, deque)):
        if is_a(value, dict):
            _replace_keys(value, depth)
        pairs = value.items() if is_a(value, dict) else enumerate(value)
        for key, held in list(pairs):
            plain = plain_numbers(held, depth - 1, originals)
            if plain is not held:
                value[key] = plain
        return value
    own = attributes_of(value)
    if type(own) is dict and "_parameters" not in own:
        plain_numbers(own, depth - 1, originals)
    return value


def _replace_keys(held: dict[object, Any], depth: int) -> None:
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


def random_state(source: Any) -> object:
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
