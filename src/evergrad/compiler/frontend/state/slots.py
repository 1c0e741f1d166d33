"""Slots that are written: places in Python objects that hold one value."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from types import CellType, MappingProxyType, MemberDescriptorType
from typing import Any

from evergrad.compiler.frontend.arguments.signature import key_of
from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.state.places import (
    MAPPINGS,
    ContextSlot,
    StateGuard,
    is_plain,
    read_slot,
)
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.compiler.frontend.state.raw_reads import class_member
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Var


class ValueSlot:
    """A place that a call gives another value, with its values before and after."""

    __slots__ = (
        "after", "before", "is_deleted", "is_written", "key", "name", "of_module", "owner", "place",
    )  # fmt: skip

    def __init__(
        self, guard: StateGuard, key: Any, before: Any, state: PythonState | None = None
    ) -> None:
        self.name: str = guard.name
        self.place = guard.place
        self.key = key
        self.before = before
        self.after = read_slot(guard.place, key)
        # The class of which it is an attribute, if it is.
        self.owner = None
        if state is not None and isinstance(guard.place, MappingProxyType):
            self.owner = state.class_of.get(id(guard.place))
        # Whether it is in a module, which counts its mutations.
        self.of_module: bool = False
        # Whether the call stores anything: a number may only be read.
        self.is_written: bool = True
        self.is_deleted: bool = self.after is MISSING

    @property
    def identity(self) -> Any:
        """The place by id, the same in all sessions."""
        if type(self.place) is ContextSlot:
            return id(self.place.variable), self.key
        return id(self.place if self.owner is None else self.owner), self.key

    def now(self) -> ValueSlot:
        """The slot with what it holds now."""
        self.after = self.read()
        self.is_deleted = self.after is MISSING
        return self

    def read(self) -> Any:
        return read_slot(self.place, self.key)

    def reader(self) -> Callable[[], object]:
        """As :meth:`read`, in the quickest form."""
        place, key = self.place, self.key
        if isinstance(place, dict):
            return partial(dict.get, place, key, MISSING)
        return partial(read_slot, place, key)

    def writer(self) -> Callable[[object], None]:
        """As :meth:`write`, in the quickest form."""
        place, key = self.place, self.key
        if isinstance(place, dict) and self.owner is None and not self.is_deleted:
            return partial(_setter(place), place, key)
        return self.write

    def write(self, value: Any) -> None:
        """Store a value, or ``MISSING``; where it is in a module, the counter of mutations has to
        be advanced."""
        place, key = self.place, self.key
        if value is MISSING:
            self.delete()
        elif isinstance(place, CellType):
            place.cell_contents = value
        elif self.owner is not None:
            type.__setattr__(self.owner, key, value)
        elif isinstance(place, dict):
            _setter(place)(place, key, value)
        elif isinstance(place, list):
            place[key] = value
        else:
            object.__setattr__(place, key, value)

    def delete(self) -> None:
        """Let the place hold nothing."""
        place, key = self.place, self.key
        if self.read() is MISSING:
            return
        if isinstance(place, CellType):
            del place.cell_contents
        elif self.owner is not None:
            type.__delattr__(self.owner, key)
        elif isinstance(place, OrderedDict):
            OrderedDict.__delitem__(place, key)
        elif isinstance(place, dict):
            dict.__delitem__(place, key)
        else:
            object.__delattr__(place, key)


def _setter(place: dict[object, Any]) -> Callable[[Any, Any, Any], None]:
    """What sets an entry of a mapping without running code of the user's."""
    return OrderedDict.__setitem__ if isinstance(place, OrderedDict) else dict.__setitem__


def attribute_of(kind: type, name: str) -> object:
    """An attribute of a class, as it is in its tables: descriptors are not run."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def is_writable(guard: StateGuard | ValueSlot, state: PythonState) -> bool:
    """Whether a slot can be written without running code of the user's."""
    place = guard.place
    return (
        isinstance(place, (CellType, ContextSlot)) or type(place) is list
        or type(place) in MAPPINGS
        or _is_set_plainly(state.class_of.get(id(place)), str(guard.key))
        or isinstance(attribute_of(type(place), str(guard.key)), MemberDescriptorType)
    )  # fmt: skip


def _is_set_plainly(kind: type | None, name: str) -> bool:
    """Whether an attribute of a class can be set without running code of the user's."""
    metaclass = type(kind)
    if metaclass is type:
        return True
    is_plain = issubclass(metaclass, type) and class_member(metaclass, name) is None
    return is_plain and (
        metaclass.__setattr__ is type.__setattr__ and metaclass.__delattr__ is type.__delattr__
    )


def slot_key(leaf: Any) -> Any:
    """What a program depends on of a value in a slot: of a tensor its type, strides and history; of
    others all."""
    if leaf.__class__ is Tensor:
        if leaf._value is NO_ARRAY or leaf._leaf is not None or leaf.__dict__:
            return None, id(leaf)
        if leaf._value.__class__ is Var:  # computed by the call that is captured
            return leaf._type, None, *((False, None) if leaf.requires_grad else ())
        return key_of(leaf)
    return key_of(leaf) if is_plain(leaf) else (None, id(leaf))
