"""Effects: the Python places that a call gives other values, as outputs of its program.

A place whose value a call has replaced (an attribute, a variable, an entry of a container) is a
:class:`Slot`. What it held before is an input of the program where it is a tensor, guarded on by
type, strides, history and aliasing as an argument is; what it holds afterwards is a result, stored
after each successful run. A program of which the slots end as they began serves the next call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Sequence
from operator import ne
from types import CellType, MappingProxyType, MemberDescriptorType
from typing import Any

from evergrad.compiler.frontend.arguments import aliases_of, key_of
from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.compiler.frontend.python_state import (
    PythonState,
    StateGuard,
    is_plain,
    members_of,
    read_slot,
    same,
)
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Var
from evergrad.core.tree import TreeSpec, children_of, tree_flatten

_CONTAINERS = (list, dict)


class Slot:
    """A place that a call gives another value, with its values before and after."""

    __slots__ = ("after", "before", "key", "name", "of_module", "owner", "place")

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

    def read(self) -> Any:
        return read_slot(self.place, self.key)

    def write(self, value: Any) -> None:
        place, key = self.place, self.key
        if key is None:
            place.cell_contents = value
        elif self.owner is not None:
            type.__setattr__(self.owner, key, value)
        elif isinstance(place, _CONTAINERS):
            place[key] = value
        else:
            object.__setattr__(place, key, value)
        if self.of_module:
            MUTATIONS.advance()


class Effects:
    """The slots of a program: read before a run, stored after it."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = list(slots)
        found = [tree_flatten(slot.before) for slot in slots]
        self.specs = [spec for _, spec in found]
        self.leaves = [leaf for leaves, _ in found for leaf in leaves]
        # The tensors before the call, which are arguments of the program.
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        self.keys: list[Any] = []
        self.aliases: Any = None

    def restore(self) -> None:
        """Let the slots hold what they held before the call."""
        for slot in self.slots:
            slot.write(slot.before)

    def repeat(self) -> None:
        """Let the slots hold what the call has stored."""
        for slot in self.slots:
            slot.write(slot.after)

    def release(self, arguments: Sequence[Tensor]) -> None:
        """Note the signature of the slots, and drop the values of the captured call."""
        self.keys = [slot_key(leaf) for leaf in self.leaves]
        self.aliases = aliases_of([*arguments, *self.tensors])
        self.leaves, self.tensors = [], []
        for slot in self.slots:
            slot.before = slot.after = None

    def read(self, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        """The tensors among the arguments of a call and those in the slots; ``None`` if the slots
        hold anything else than in the captured call."""
        leaves: list[Any] = []
        for slot, spec in zip(self.slots, self.specs, strict=True):
            held = slot.read()
            if spec.is_leaf():
                leaves.append(held)
            elif not read_leaves(held, spec, leaves):
                return None
        given = list(tensors)
        for leaf, key in zip(leaves, self.keys, strict=True):
            if slot_key(leaf) != key:
                return None
            if isinstance(leaf, Tensor):
                given.append(leaf)
        if self.aliases is None:
            storages = {id(tensor._storage) for tensor in given}
            return given if len(storages) == len(given) else None
        return given if aliases_of(given) == self.aliases else None

    def store(self, values: Sequence[Any]) -> None:
        """Store what a run has computed."""
        for slot, value in zip(self.slots, values, strict=True):
            slot.write(value)


def read_leaves(tree: Any, spec: TreeSpec, leaves: list[Any]) -> bool:
    """Append the leaves of a tree; false if it has another structure."""
    found, own = tree_flatten(tree)
    if own != spec:
        return False
    leaves += found
    return True


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


# -- finding them -------------------------------------------------------------------------------


def effects_of(trace: Session, state: PythonState) -> Effects | None:
    """The effects of a call on the places that have changed since the walk; ``None`` if there are
    none. Raises ``NotWholeError`` if a program could not repeat one."""
    found: dict[Any, Slot] = {}
    for guard in state.changed():
        if any(guard is own for own in state.own):
            raise NotWholeError(f"{guard.name} is changed by the function itself")
        for slot in slots_of(guard, state):
            found.setdefault((id(slot.place), slot.key), slot)
    if not found:
        return None
    modules = {id(guard.place) for guard in state.module_guards}
    for slot in found.values():
        slot.of_module = id(slot.place) in modules
    effects = Effects(list(found.values()))
    refuse_values(effects, trace)
    refuse_aliases(effects, trace, state)
    return effects


def slots_of(guard: StateGuard, state: PythonState) -> list[Slot]:
    """The slots of a changed place."""
    if guard.key is not MISSING:
        slots = [Slot(guard, guard.key, guard.value, state)] if is_writable(guard, state) else []
    else:
        slots = entries_of(guard)
    if not slots or any(slot.after is MISSING for slot in slots):
        raise NotWholeError(f"{guard.name} is changed by the function itself")
    return slots


def is_writable(guard: StateGuard, state: PythonState) -> bool:
    """Whether a slot can be written without running code of the user's."""
    place = guard.place
    return (
        isinstance(place, CellType) or type(place) is dict
        or type(state.class_of.get(id(place))) is type
        or isinstance(getattr(type(place), str(guard.key), None), MemberDescriptorType)
    )  # fmt: skip


def entries_of(guard: StateGuard) -> list[Slot]:
    """The changed entries of a container that has the same keys as before; else none."""
    place, before = guard.place, guard.value
    if type(place) is list:
        keys: Sequence[Any] = range(len(place))
    elif type(place) in (dict, OrderedDict, defaultdict):
        keys = list(place)
        if not all(map(same, keys, before)):
            return []
        before = before[len(before) // 2 :]
    else:
        return []
    if len(keys) != len(before):
        return []
    slots = [Slot(guard, key, held) for key, held in zip(keys, before, strict=True)]
    return [slot for slot in slots if not same(slot.after, slot.before)]


def refuse_values(effects: Effects, trace: Session) -> None:
    """Raise if a slot ends with a value of another kind than it began with: a program would not
    serve the next call."""
    kept: list[Tensor] = []
    for slot, spec in zip(effects.slots, effects.specs, strict=True):
        leaves, ended = tree_flatten(slot.after)
        before = tree_flatten(slot.before)[0]
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if not tensors:
            raise NotWholeError(f"{slot.name} is changed by the function itself")
        if ended != spec or any(map(ne, map(slot_key, leaves), map(slot_key, before))):
            trace.once = f"{slot.name} is given a value of another kind by the function"
            raise NotWholeError(trace.once)
        kept += tensors
    if aliasing_of(kept) != aliasing_of(effects.tensors):
        trace.once = f"{effects.slots[0].name} shares its memory with another place than before"
        raise NotWholeError(trace.once)


def aliasing_of(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor the first one on the same storage, and the first one that is the same."""
    storages, handles = [id(t._storage) for t in tensors], [id(t) for t in tensors]
    return [*map(storages.index, storages), *map(handles.index, handles)]


def refuse_aliases(effects: Effects, trace: Session, state: PythonState) -> None:
    """Raise if the function reaches the former tensors of the slots in other ways too, or reads
    what differs from call to call."""
    name = effects.slots[0].name
    if not _READS_MEMORY.isdisjoint(state.names):
        raise NotWholeError(f"{name} is changed, and the memory of tensors is read")
    own = {id(tensor) for tensor in effects.tensors}
    storages = {id(tensor._storage) for tensor in effects.tensors}
    reached = {id(tensor._storage) for tensor in state.tensors if id(tensor) not in own}
    if not storages.isdisjoint(reached) or not own.isdisjoint(state.weakly_held):
        raise NotWholeError(f"the tensor in {name} is reached through another place too")
    if not storages.isdisjoint(trace.read_storages):
        raise NotWholeError(f"elements of the tensor in {name} are read")
    within: Counter[int] = Counter()
    for slot in effects.slots:
        within.update(map(id, objects_in(slot.before)))
    inner = {id(held) for slot in effects.slots for held in containers_in(slot.before)}
    if any(id(slot.place) in inner for slot in effects.slots):
        raise NotWholeError(f"{name} is changed and replaced by the function")
    found = occurrences(state)
    if any(found[held] > count for held, count in within.items() if held in own | inner):
        raise NotWholeError(f"what is in {name} is reached through another place too")


# Names of attributes that tell tensors on other memory apart.
_READS_MEMORY = frozenset({"data_ptr", "_version", "untyped_storage", "storage"})


def objects_in(tree: Any) -> list[Any]:
    """A value, its members and theirs, as often as they are referenced."""
    found = children_of(tree)
    return [tree, *(part for child in (found[1] if found else ()) for part in objects_in(child))]


def containers_in(tree: Any) -> list[Any]:
    return [held for held in objects_in(tree) if isinstance(held, _CONTAINERS)]


def occurrences(state: PythonState) -> Counter[int]:
    """How many places hold an object, by id."""
    places: dict[Any, Any] = {}
    for guard in (*state.guards, *state.module_guards):
        if guard.key is not MISSING:
            places[id(guard.place), guard.key] = guard.value
        elif isinstance(guard.place, dict):
            count = len(guard.value) // 2
            pairs = zip(guard.value[:count], guard.value[count:], strict=True)
            places.update(((id(guard.place), k), v) for k, v in pairs)
        else:
            places.update(((id(guard.place), n), v) for n, v in enumerate(guard.value))
    found = Counter(map(id, places.values()))
    for held in state.seen.values():
        if isinstance(held, (tuple, frozenset)):
            found.update(map(id, held))
    return found


# -- guards on what is left ---------------------------------------------------------------------


def unwatch(effects: Effects, state: PythonState) -> None:
    """Remove the guards on the slots and on what they held: :meth:`Effects.read` checks these."""
    slots = state.slots_of_effects = {(id(slot.place), slot.key) for slot in effects.slots}
    places = {id(slot.place) for slot in effects.slots}
    inner = {id(held) for slot in effects.slots for held in containers_in(slot.before)}

    def rest(guards: Sequence[StateGuard]) -> list[StateGuard]:
        found: list[StateGuard] = []
        for guard in guards:
            if guard.key is not MISSING:
                found += [guard] if (id(guard.place), guard.key) not in slots else []
            elif id(guard.place) in places:
                found += guards_on_entries(guard, slots)
            elif id(guard.place) not in inner:
                found.append(guard)
        return found

    state.guards, state.module_guards = rest(state.guards), rest(state.module_guards)
    own = {id(tensor) for tensor in effects.tensors}
    state.tensors = [tensor for tensor in state.tensors if id(tensor) not in own]


def guards_on_entries(guard: StateGuard, slots: set[Any]) -> list[StateGuard]:
    """Guards on the keys of a container and on its entries that are no slots."""
    place, name = guard.place, guard.name
    keys = _Keys(place)
    held = members_of(place)[-len(keys.now) :] if keys.now else ()
    return [
        StateGuard(f"the keys of {name}", keys, "now", keys.now),
        *(
            StateGuard(name, place, key, value)
            for key, value in zip(keys.now, held, strict=True)
            if (id(place), key) not in slots
        ),
    ]


class _Keys:
    """The keys of a container as an attribute: the same object while they are the same."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self.last: tuple[Any, ...] = ()

    @property
    def now(self) -> tuple[Any, ...]:
        held = self.container
        now = tuple(range(len(held)) if isinstance(held, list) else held)
        if len(now) != len(self.last) or not all(map(same, now, self.last)):
            self.last = now
        return self.last


def undo_changes(state: PythonState) -> None:
    """Let every place that has changed since the walk hold what it held then."""
    for guard in state.changed():
        place, before = guard.place, guard.value
        if guard.key is not MISSING:
            if before is not MISSING and is_writable(guard, state):
                Slot(guard, guard.key, before, state).write(before)
            elif isinstance(place, dict):
                place.pop(guard.key, None)
        elif isinstance(place, dict):
            count = len(before) // 2
            place.clear()
            place.update(zip(before[:count], before[count:], strict=True))
        elif isinstance(place, (list, deque)):
            place.clear()
            place.extend(before)
        elif isinstance(place, set):
            place.clear()
            place.update(*before)
    if state.module_guards:
        MUTATIONS.advance()
