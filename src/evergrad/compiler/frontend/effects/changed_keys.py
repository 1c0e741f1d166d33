"""Keys that come and go: entries that a call makes or deletes, and the order of a mapping's keys.

A slot holds ``MISSING`` where there is no entry. Which keys a mapping has before a call is guarded
on, so that a program serves the calls that begin with the same ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.state.places import (
    MAPPINGS,
    KeysSlot,
    NamesSlot,
    StateGuard,
    is_key,
    same,
)
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.compiler.frontend.state.slots import ValueSlot, is_writable


class OrderSlot(ValueSlot):
    """The order of the keys of a mapping, as a slot that is written after those of its entries."""

    __slots__ = ()

    def __init__(self, guard: StateGuard, place: Any, before: Sequence[Any]) -> None:
        super().__init__(StateGuard(guard.name, place, _ORDER, tuple(before)), _ORDER, before)
        self.before, self.after = tuple(before), tuple(place)
        self.is_deleted = False

    def read(self) -> Any:
        return tuple(self.place)

    def reader(self) -> Callable[[], object]:
        return partial(tuple, self.place)

    def writer(self) -> Callable[[object], None]:
        return self.write

    def write(self, value: Any) -> None:
        place = self.place
        if tuple(place) == value:
            return
        if isinstance(place, OrderedDict):
            for key in value:
                place.move_to_end(key)
            return
        entries = [(key, dict.__getitem__(place, key)) for key in value]
        dict.clear(place)
        dict.update(place, entries)


# Instead of a key: the order of all.
_ORDER = object()


def slots_of_keys(
    guard: StateGuard, state: PythonState, changed: Sequence[StateGuard]
) -> list[ValueSlot] | None:
    """The slots of a mapping whose keys a call has changed; ``None`` if a program could not repeat
    that."""
    place: Any = guard.place
    if type(place) in (KeysSlot, NamesSlot):
        mapping = place.container if type(place) is KeysSlot else place.mapping
        if not isinstance(mapping, (dict, MappingProxyType)):
            return None
        known = {g.key: g.value for g in changed if g.place is mapping}
        keys = guard.value
        before = [(key, known.get(key, _UNKNOWN)) for key in keys]
    elif guard.key is MISSING and type(place) in MAPPINGS:
        mapping, count = place, len(guard.value) // 2
        before = list(zip(guard.value[:count], guard.value[count:], strict=True))
    else:
        return None
    return _slots(guard, mapping, before, state)


def _slots(
    guard: StateGuard, mapping: Any, before: list[tuple[Any, Any]], state: PythonState
) -> list[ValueSlot] | None:
    keys, now = [key for key, _ in before], list(mapping)
    if not all(map(is_key, (*keys, *now))):
        return None
    had, has = set(keys), set(now)
    gone = [(key, held) for key, held in before if key not in has]
    made = [key for key in now if key not in had]
    of_class = not isinstance(mapping, dict)
    slots = [slot_at(guard, mapping, key, held, state) for key, held in gone]
    slots += [
        slot_at(guard, mapping, key, held, state)
        for key, held in before
        if key in has and held is not _UNKNOWN and not same(mapping[key], held)
    ]
    slots += [slot_at(guard, mapping, key, MISSING, state) for key in made]
    if any(slot.before is _UNKNOWN for slot in slots):
        return None
    if not all(is_writable(slot, state) for slot in slots):
        return None
    natural = [key for key in keys if key in has] + made
    is_tail = [key for key, _ in gone] == keys[len(keys) - len(gone) :]
    if now != natural or not is_tail:
        if of_class or set(map(type, now)) - {type(key) for key in natural}:
            return None
        slots.append(OrderSlot(guard, mapping, keys))
    return slots


def slot_at(
    guard: StateGuard, place: Any, key: Any, before: Any, state: PythonState
) -> ValueSlot:  # fmt: skip
    """The slot of an entry of a mapping."""
    return ValueSlot(StateGuard(guard.name, place, key, before), key, before, state)


_UNKNOWN = object()
