"""Containers, arrays and other places of values that the walk over Python state reaches."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from types import CodeType
from typing import Any

import numpy as np

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.numbers.number_functions import is_number_function
from evergrad.compiler.frontend.recording import impure
from evergrad.compiler.frontend.state.places import (
    PLAIN,
    ContextSlot,
    KeysSlot,
    MemoSlot,
    NamesSlot,
    ReferenceSlot,
    StateGuard,
    is_library_value,
    members_of,
    random_state,
    read_slot,
)
from evergrad.compiler.frontend.state.raw_reads import attributes_of, is_a, members_of_builtin
from evergrad.compiler.frontend.state.reached_state import ReachedState
from evergrad.core.dtypes import dtype

_IMMUTABLE = (*PLAIN, dtype, np.generic, np.dtype, np.ufunc, CodeType)
# Arrays up to this size are compared by their elements; larger ones are opaque.
_ARRAY_BYTES = 1 << 16
# Longer containers are opaque: to compare their members at every call would cost more than a trace.
_LONGEST = 1 << 16
_FROZEN = (tuple, frozenset)


class ReachedContainers(ReachedState):
    """The part of the walk that visits containers, and the places that it notes."""

    def push(self, value: object, name: str) -> None:
        if type(value) is decimal.Decimal:  # arithmetic with it reads the context
            self.libraries.add("decimal")
        elif is_a(value, np.generic):
            self.libraries.add("numpy")
        is_fixed = value is MISSING or is_a(value, _IMMUTABLE) or is_library_value(value)
        if not is_fixed and id(value) not in self.seen:
            self.seen[id(value)] = value
            self._waiting.append((value, name))

    def visit_class_of(self, value: Any) -> None:
        """The class of an object that exists: its methods without its constructor."""
        raise NotImplementedError

    def give_up(self, reason: str) -> None:
        if self.opaque is None:
            self.opaque = reason

    def note(
        self, name: str, holder: object, key: str | None, guards: list[StateGuard] | None = None
    ) -> Any:
        """Watch a slot; returns what it holds, if that is to be visited."""
        value = read_slot(holder, key)
        if (id(holder), key) not in self._noted:
            self._noted.add((id(holder), key))
            guard = StateGuard(name, holder, key, value)
            (self.guards if guards is None else guards).append(guard)
            if impure.is_replayable(value):
                self.note_replayable(guard)
            elif is_number_function(value):
                self.number_functions.append(guard)
        if impure.is_stand_in(value):
            self.give_up(f"{name} is called, and another thread is tracing it")
            return MISSING
        return MISSING if impure.is_replayable(value) else value

    def note_replayable(self, guard: StateGuard) -> None:
        self.replayable.append(guard)
        if impure.is_source(guard.value):
            self.visit_random(guard.value, guard.name)
        elif impure.is_draw(guard.value):
            self.visit_random(getattr(guard.value, "__self__", np.random), guard.name)

    def visit_container(self, value: object, name: str) -> None:
        if is_a(value, _FROZEN):
            for member in members_of_builtin(value):
                self.push(member, f"a member of {name}")
            return
        members = members_of_builtin(value)
        count = len(members) // 2 if is_a(value, dict) else len(members)
        if count > _LONGEST:
            self.give_up(f"{name} has {count:,} members")
            return
        key = (id(value), MISSING)
        if key not in self._noted:
            self._noted.add(key)
            self.guards.append(StateGuard(f"{name}", value, MISSING, list(members_of(value))))
        if type(value) in (list, dict) and any(map(impure.is_replayable, members)):
            self.visit_replayable(value, name)
            return
        for member in members:
            self.push(member, f"a member of {name}")

    def visit_replayable(self, value: Any, name: str) -> None:
        """Visit a container that holds impure functions or objects."""
        for key, member in value.items() if type(value) is dict else enumerate(value):
            self.push(key, f"a key of {name}")
            if impure.is_replayable(member):
                if (id(value), key) not in self._noted:
                    self._noted.add((id(value), key))
                    self.note_replayable(StateGuard(f"a member of {name}", value, key, member))
            else:
                self.push(member, f"a member of {name}")

    def visit_array(self, value: Any, name: str) -> None:
        self.arrays.append(value)
        own = attributes_of(value)
        if own is not None:  # such as the mask of a masked array
            self.visit_container(own, name)
            self.visit_class_of(value)
        if value.nbytes > _ARRAY_BYTES:
            self.give_up(f"{name} is a NumPy array of {value.nbytes:,} bytes")
        else:
            self.guards.append(StateGuard(f"the elements of {name}", value, MISSING,
                                          list(members_of(value))))  # fmt: skip
        if value.dtype.hasobject:
            for member in value.ravel().tolist():
                self.push(member, f"a member of {name}")

    def visit_buffer(self, value: object, name: str) -> None:
        members = list(members_of(value))
        self.guards.append(StateGuard(f"the elements of {name}", value, MISSING, members))

    def visit_view(self, value: Any, name: str) -> None:
        self.push(value.mapping, name)

    def visit_proxy(self, value: Any, name: str) -> None:
        members = [*value.keys(), *value.values()]
        self.guards.append(StateGuard(name, value, MISSING, members))
        for member in members:
            self.push(member, f"a member of {name}")

    def watch_names(self, mapping: Mapping[str, object], name: str) -> None:
        """Watch which attributes a class has."""
        holder = NamesSlot(mapping)
        if (id(mapping), MISSING) not in self._noted:
            self._noted.add((id(mapping), MISSING))
            self.guards.append(
                StateGuard(f"the attributes of {name}", holder, "names", holder.names)
            )

    def watch_keys(
        self, mapping: dict[str, object] | set[Any], name: str, guards: list[StateGuard]
    ) -> None:
        """Watch which attributes an instance has: code may give it others."""
        if (id(mapping), "keys") not in self._noted:
            self._noted.add((id(mapping), "keys"))
            keys = KeysSlot(mapping)
            guards.append(StateGuard(f"the attributes of {name}", keys, "now", keys.now))

    def visit_random(self, value: Any, name: str) -> None:
        self._random.append((value, random_state(value)))

    def visit_context_variable(self, value: Any, name: str) -> None:
        holder = ContextSlot(value)
        self.push(self.note(f"the context variable {value.name}", holder, "value"), value.name)

    def visit_memoized(self, value: Any, name: str) -> None:
        """A function that caches its results: they are visited, and so is what computes them."""
        slot = MemoSlot(value)
        self.guards.append(StateGuard(f"what {name} caches", slot, "results", slot.results))
        for held in (value.__wrapped__, *slot.results):
            self.push(held, f"what {name} caches")

    def visit_reference(self, value: Any, name: str) -> None:
        """The referent is visited, but not kept alive."""
        self.note(f"whether the referent of {name} is alive", ReferenceSlot(value), "is_alive")
        referent = value()
        self.weakly_held.add(id(referent))
        self.push(referent, name)
