"""Entries of containers and fields of records among the arguments that a call gives other values.

What they held before is part of the signature, or an input; what they hold afterwards is a result,
stored into the container at the same place among the arguments of the call that runs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from types import MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.effects.result_objects import object_at
from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.session import NotWholeError
from evergrad.compiler.frontend.state.places import StateGuard, is_key, read_slot, same
from evergrad.compiler.frontend.state.reached_state import ReachedState
from evergrad.compiler.frontend.state.slots import attribute_of

if TYPE_CHECKING:
    from evergrad.core.types import Tree

_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)


class ArgumentSlot:
    """An entry of a container among the arguments, by the way to it."""

    __slots__ = ("after", "before", "key", "name", "path", "place")
    of_module = False
    is_written = True

    def __init__(self, name: str, place: Any, key: Any, before: Any, path: Any) -> None:
        self.name: str = name
        self.place = place
        self.key = key
        self.path = path
        self.before = before
        self.after = read_slot(place, key)

    @property
    def identity(self) -> Any:
        return self.path, self.key

    def find(self, given: Tree) -> object:
        """Use the container among the arguments of the call that runs; returns it."""
        self.place = object_at(self.path, (), given)
        return self.place

    def writer(self) -> Callable[[Any], None]:
        """As :meth:`write`: the container is another one at each call."""
        return self.write

    def write(self, value: Any) -> None:
        if value is MISSING:
            self.place.pop(self.key, None)
        elif isinstance(self.place, dict):
            type(self.place).__setitem__(self.place, self.key, value)
        elif isinstance(self.place, list):
            self.place[self.key] = value
        else:
            object.__setattr__(self.place, self.key, value)


class ArgumentContent(ArgumentSlot):
    """All members of a list among the arguments, which the call has made longer or shorter."""

    __slots__ = ()

    def __init__(self, name: str, place: Any, before: Any, path: Any) -> None:
        self.name, self.place, self.path = name, place, path
        self.key = slice(None)
        self.before, self.after = before, list(place)

    @property
    def identity(self) -> Any:
        return self.path, "members"

    def write(self, value: Any) -> None:
        self.place[:] = value


def argument_slots(changed: Sequence[StateGuard], state: ReachedState) -> list[ArgumentSlot]:
    """The slots of changed containers among the arguments. Raises ``NotWholeError`` if a program
    could not repeat a change: of the keys, or of a container that is reached otherwise too."""
    paths = state.argument_paths
    found: list[ArgumentSlot] = []
    for guard in changed:
        place = guard.place
        path = paths.get(id(place))
        is_own = path is not None and id(place) not in state.seen
        if is_own and type(place) is list and len(place) != len(guard.value):
            found.append(ArgumentContent(guard.name, place, list(guard.value), path))
            continue
        keys = _changed_keys(guard) if is_own else []
        if not keys:
            raise NotWholeError(f"{guard.name} is changed by the function itself")
        found += [ArgumentSlot(guard.name, place, key, held, path) for key, held in keys]
    return found


def _changed_keys(guard: StateGuard) -> list[tuple[object, object]]:
    """The keys of what has changed in a container or a record, with what was there before; none if
    it cannot be stored without running code of the user's."""
    place, before = guard.place, guard.value
    if guard.key is not MISSING:
        now = read_slot(place, guard.key)
        is_stored = now is not MISSING and _is_stored(place, guard.key)
        return [(guard.key, before)] if is_stored else []
    if type(place) is list:
        pairs = list(enumerate(before)) if len(place) == len(before) else []
    elif type(place) in _MAPPINGS:
        return _changed_entries(place, before)
    else:
        return []
    return [(key, held) for key, held in pairs if not same(place[key], held)]


def _changed_entries(place: Any, members: Sequence[Any]) -> list[tuple[object, object]]:
    """The changed entries of a mapping, deleted ones first and those that were made last; none if
    writing them would give another order of keys."""
    count = len(members) // 2
    before = dict(zip(members[:count], members[count:], strict=True))
    now = list(place)
    made = [key for key in now if key not in before]
    kept = [key for key in before if key in place]
    is_natural = len(now) == len(kept) + len(made) and all(map(same, now, [*kept, *made]))
    if not is_natural or not all(map(is_key, now)):
        return []
    gone = [(key, held) for key, held in before.items() if key not in place]
    changed = [(key, before[key]) for key in kept if not same(place[key], before[key])]
    return [*gone, *changed, *((key, MISSING) for key in made)]


def _is_stored(place: Any, name: str) -> bool:
    """Whether an attribute is in the instance, or in a slot of it."""
    found = attribute_of(type(place), name)
    if isinstance(found, MemberDescriptorType):
        return True
    is_plain = type(place) is SimpleNamespace or not hasattr(type(found), "__set__")
    return is_plain and name in getattr(place, "__dict__", {})
