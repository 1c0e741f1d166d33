"""Slots that are written: places in Python objects that hold one value."""

from __future__ import annotations

from types import CellType, MappingProxyType, MemberDescriptorType
from typing import Any

from evergrad.compiler.frontend.arguments import key_of
from evergrad.compiler.frontend.places import StateGuard, is_plain, read_slot
from evergrad.compiler.frontend.python_state import PythonState
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Var


class ValueSlot:
    """A place that a call gives another value, with its values before and after."""

    __slots__ = ("after", "before", "is_written", "key", "name", "of_module", "owner", "place")

    def __init__(
        self, guard: StateGuard, key: Any, before: Any, state: PythonState | None = None
    ) -> None:
        self.name = guard.name
        self.place = guard.place
        self.key = key
        self.before = before
        self.after = read_slot(guard.place, key)
        # The class of which it is an attribute, if it is.
        self.owner = None
        if state is not None and isinstance(guard.place, MappingProxyType):
            self.owner = state.class_of.get(id(guard.place))
        # Whether it is in a module, which counts its mutations.
        self.of_module = False
        # Whether the call stores anything: a number may only be read.
        self.is_written = True

    @property
    def identity(self) -> Any:
        """The place by id, the same in all sessions."""
        return id(self.place if self.owner is None else self.owner), self.key

    def now(self) -> ValueSlot:
        """The slot with what it holds now."""
        self.after = self.read()
        return self

    def read(self) -> Any:
        return read_slot(self.place, self.key)

    def write(self, value: Any) -> None:
        """Store a value; where it is in a module, the counter of mutations has to be advanced."""
        place, key = self.place, self.key
        if isinstance(place, CellType):
            place.cell_contents = value
        elif self.owner is not None:
            type.__setattr__(self.owner, key, value)
        elif isinstance(place, dict):
            dict.__setitem__(place, key, value)
        elif isinstance(place, list):
            place[key] = value
        else:
            object.__setattr__(place, key, value)


def is_writable(guard: StateGuard, state: PythonState) -> bool:
    """Whether a slot can be written without running code of the user's."""
    place = guard.place
    return (
        isinstance(place, CellType) or type(place) in (dict, list)
        or type(state.class_of.get(id(place))) is type
        or isinstance(getattr(type(place), str(guard.key), None), MemberDescriptorType)
    )  # fmt: skip


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
