"""Finding the effects of a traced call: the places that have changed, as slots of its program; or
why a program could not repeat them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.arguments.argument_slots import argument_slots
from evergrad.compiler.frontend.arguments.signature import ARGUMENT
from evergrad.compiler.frontend.effects.changed_keys import OrderSlot, slots_of_keys
from evergrad.compiler.frontend.effects.effect import Effects
from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.numbers.number_slots import Installed, NumberSlots, slots_holding
from evergrad.compiler.frontend.numbers.number_trees import numbers_in
from evergrad.compiler.frontend.paths.data_reads import DATA
from evergrad.compiler.frontend.recording.append_recorder import APPENDABLE
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.compiler.frontend.state.places import (
    MAPPINGS,
    KeysSlot,
    MemoSlot,
    StateGuard,
    is_plain,
    members_of,
    same,
)
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.compiler.frontend.state.slots import ValueSlot, is_writable, slot_key
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.python_numbers import NUMBERS, DeferredNumber, exactly, value_of
from evergrad.core.tensor import Tensor
from evergrad.core.tree import children_of, tree_flatten

if TYPE_CHECKING:
    from evergrad.core.tree import TreeSpec
    from evergrad.core.types import Leaves

_CONTAINERS = (list, dict)


def effects_of(
    trace: Session, state: PythonState, numbers: NumberSlots, installed: Installed
) -> Effects | None:
    """The effects of a call on the places that have changed since the walk; ``None`` if there are
    none. Raises ``NotWholeError`` if a program could not repeat one."""
    found: dict[object, ValueSlot] = {}
    recorded = {id(r.held) for r in installed.recorders.values() if not r.is_read}
    changed = state.changed()
    for guard in changed:
        if type(guard.place) is MemoSlot:  # the next call finds what this one has computed
            count = guard.place.function.cache_info().currsize
            trace.once = f"{guard.name} is changed by the function, to {count} results"
            raise NotWholeError(trace.once)
    of_arguments = [guard for guard in changed if any(guard is own for own in state.own)]
    arguments = argument_slots(of_arguments, state)
    for guard in changed:
        if id(guard.place) in recorded or guard in of_arguments:  # members were popped
            continue
        if has_grown(guard) or has_other_members(guard):
            note_container(guard, trace, state, numbers)
        for slot in slots_of(guard, state, changed):
            found.setdefault(slot.identity, slot)
    found = in_order_of_keys(found)
    for slot in installed.slots:  # also where the number was set to what it was
        found.setdefault(slot.identity, slot.now())
    refuse_changed_inputs(found, trace)
    calls = installed.recorder
    if not found:
        makes_calls = calls is not None and bool(calls.calls or calls.outputs)
        is_used = trace.expressions.are_used or bool(trace.data.reads)
        if not (makes_calls or is_used or arguments):
            return None
        effects = Effects((), trace.expressions)
        effects.add_arguments(arguments, state)
        if calls is not None:
            effects.record_calls(calls)
        refuse_new_values([], trace, numbers, installed)
        return effects
    if state.memoizes:
        name = next(iter(found.values())).name
        raise NotWholeError(f"{name} is changed, and results of a function are cached by Python")
    appended = [(found.pop(key), recorder) for key, recorder in installed.recorders.items()]
    for slot, recorder in appended:
        if recorder.is_read or slot.after is not recorder:
            numbers.exclude(slot.identity)
            raise NotWholeError(f"{slot.name} is changed by the function itself")
    modules = {id(guard.place) for guard in state.module_guards}
    for slot in found.values():
        slot.of_module = id(slot.place) in modules
        slot.is_written = not installed.is_unchanged(slot)
        tree = installed.trees.get(slot.identity)
        if tree is not None and tree.is_changed():
            numbers.exclude(slot.identity)
            raise NotWholeError(f"{slot.name} is changed by the function itself")
    effects = Effects(list(found.values()), trace.expressions)
    effects.appended = appended
    effects.add_arguments(arguments, state)
    effects.stores = effects.stores or bool(appended)
    if calls is not None:
        effects.record_calls(calls)
    try:
        refuse_values(effects, trace, numbers, installed)
        refuse_aliases(effects, trace, state)
    except NotWholeError as reason:
        if not effects.stores:  # numbers that are only read can be constants
            trace.once = str(reason)
            for slot in effects.slots:
                numbers.exclude(slot.identity)
        raise
    return effects


def refuse_changed_inputs(found: dict[object, ValueSlot], trace: Session) -> None:
    """Raise if a number that is an input of the program was changed unseen."""
    for container, key, part, number in trace.numbers.values():
        if not isinstance(container, dict) or (id(container), key) in found:
            continue
        now = container.get(key)
        if part is not None:
            now = now[part] if isinstance(now, tuple) and len(now) > part else None
        known = now.value if type(now) is SymbolicNumber else value_of(now)
        if not isinstance(known, (int, float)) or known != number.value:
            raise NotWholeError(f"the option {key!r} is changed by the function itself")


def has_grown(guard: StateGuard) -> bool:
    """Whether a call has only added members to a container."""
    place, before = guard.place, guard.value
    if guard.key is not MISSING or type(place) not in APPENDABLE:
        return False
    if type(place) is set:
        return bool(place > before[0])
    is_full = type(place) is deque and place.maxlen == len(before)
    return is_full or (len(place) > len(before) and all(map(same, place, before)))


def has_other_members(guard: StateGuard) -> bool:
    """Whether a call has changed more of a container than single entries."""
    return guard.key is MISSING and type(guard.place) in APPENDABLE and not entries_of(guard)


def note_container(
    guard: StateGuard, trace: Session, state: PythonState, numbers: NumberSlots
) -> None:
    """Raise if a container that one place holds was appended to: it is known to grow from now
    on."""
    container = guard.place
    if numbers.is_off or occurrences(state)[id(container)] != 1:
        return
    for slot in slots_holding(container, state):
        if slot.identity not in numbers.excluded and slot.identity not in numbers.known:
            numbers.add(slot)
            trace.once = f"{guard.name} is appended to by the function"
            raise NotWholeError(trace.once)


def slots_of(
    guard: StateGuard, state: PythonState, changed: Sequence[StateGuard]
) -> list[ValueSlot]:
    """The slots of a changed place."""
    slots: list[ValueSlot] | None = slots_of_keys(guard, state, changed)
    if slots is None and guard.key is not MISSING and is_writable(guard, state):
        slots = [ValueSlot(guard, guard.key, guard.value, state)]
    elif slots is None and guard.key is MISSING:
        slots = entries_of(guard)
    if not slots:
        raise NotWholeError(f"{guard.name} is changed by the function itself")
    return slots


def in_order_of_keys(found: dict[object, ValueSlot]) -> dict[object, ValueSlot]:
    """The slots in the order in which they are written: entries that are made in the order of the
    keys, and the order itself last."""

    def position(entry: tuple[Any, ValueSlot]) -> tuple[int, int]:
        slot = entry[1]
        if type(slot) is OrderSlot:
            return 2, 0
        is_made = slot.before is MISSING and isinstance(slot.place, dict)
        return (1, list(slot.place).index(slot.key)) if is_made else (0, 0)

    return dict(sorted(found.items(), key=position))


def entries_of(guard: StateGuard) -> list[ValueSlot]:
    """The changed entries of a container that has the same keys as before; else none."""
    place, before = guard.place, guard.value
    if type(place) is list:
        keys: Sequence[Any] = range(len(place))
    elif type(place) in MAPPINGS or is_table(place):
        keys = list(place)
        if not all(map(same, keys, before)):
            return []
        before = before[len(before) // 2 :]
    else:
        return []
    if len(keys) != len(before):
        return []
    slots = [ValueSlot(guard, key, held) for key, held in zip(keys, before, strict=True)]
    return [slot for slot in slots if not same(slot.after, slot.before)]


def is_table(place: object) -> bool:
    """Whether a mapping is one of the tables of a module, which count their changes."""
    return isinstance(place, dict) and type(place).__module__ == "evergrad.nn.tables"


def refuse_values(
    effects: Effects, trace: Session, numbers: NumberSlots, installed: Installed
) -> None:
    """Raise if a program would not serve a later call: a slot ends with a value of another kind
    than it began with, or begins with a value that does not recur."""
    note_numbers(effects, trace, numbers, installed)
    constant: list[ValueSlot] = []
    # What slots begin with that end with a value of another kind: programs are made for what
    # recurs, others would never run again.
    passing: list[tuple[ValueSlot, Any]] = []
    kept: list[Tensor] = []
    inputs = {(place, key) for place, key, _ in trace.numbers}
    for slot, spec in zip(effects.slots, effects.specs, strict=True):
        if slot.identity in inputs:
            (numbers.add_tree if numbers_in(slot.before) else numbers.add)(slot)
            raise NotWholeError(f"{slot.name} is read by an optimizer and changed by the function")
        before, after = slot.before, tree_flatten(slot.after)
        tensors = [leaf for leaf in after[0] if isinstance(leaf, Tensor)]
        kept += tensors
        if installed.number_in(slot) is not None:
            if not is_number_like(slot.after, type(before)):
                raise other_kind(slot, trace)
        elif slot.identity in installed.trees:
            if after[1] != spec or not has_kinds_of(before, slot.after):
                raise other_kind(slot, trace)
        elif not tensors and is_plain(before) and is_plain(slot.after):
            constant.append(slot)
        elif begins_with(slot, spec) != begins_with(slot, after[1], after[0]):
            passing.append((slot, begins_with(slot, spec)))
    aliasing = aliasing_of(effects.tensors)
    if aliasing_of(kept) != aliasing:
        passing.append((effects.slots[0], tuple(aliasing)))
    refuse_passing(passing, effects, trace, numbers)
    fix_read_numbers(effects, trace, numbers)
    refuse_new_values(constant, trace, numbers, installed)


def begins_with(slot: ValueSlot, spec: TreeSpec, leaves: Sequence[Any] | None = None) -> object:
    """What a program depends on of the value that a slot begins with, or of other ``leaves``."""
    if leaves is None:
        leaves = tree_flatten(slot.before)[0]
    return spec, tuple(map(slot_key, leaves))


def refuse_passing(
    passing: Sequence[tuple[ValueSlot, Any]], effects: Effects, trace: Session, numbers: NumberSlots
) -> None:
    """Raise if slots end with values of another kind than they began with, unless these have
    recurred: the program would never run again."""
    if not passing:
        return
    for slot, _ in passing:
        for leaf in tree_flatten(slot.before)[0]:
            key = slot_key(leaf)
            if key[0] is None:  # compared by identity
                effects.kept.append(leaf)
                if isinstance(leaf, Tensor):
                    raise other_kind(slot, trace)
    if not numbers.recurs(tuple((slot.identity, key) for slot, key in passing)):
        raise other_kind(passing[0][0], trace)


def fix_read_numbers(effects: Effects, trace: Session, numbers: NumberSlots) -> None:
    """Raise if Python has read a number that others change: it is a constant from now on."""
    exact = frozenset().union(*(sources for _, sources in trace.expressions.exact))
    read = [slot for slot in effects.slots if not slot.is_written and slot.identity in exact]
    for slot in read:
        numbers.exclude(slot.identity)
    if read:
        trace.once = f"the value of {read[0].name} is read"
        raise NotWholeError(trace.once)


def note_numbers(
    effects: Effects, trace: Session, numbers: NumberSlots, installed: Installed
) -> None:
    """Raise if numbers were changed that are not known to change: they are from now on."""
    changed = [
        slot for slot in effects.slots
        if installed.number_in(slot) is None and type(slot.before) in NUMBERS
        and is_number_like(slot.after, type(slot.before))
    ]  # fmt: skip
    trees = [
        slot for slot in effects.slots
        if slot.identity not in installed.trees and numbers_in(slot.before)
        and slot.identity not in numbers.excluded and has_kinds_of(slot.before, slot.after)
    ]  # fmt: skip
    if (changed or trees) and not numbers.is_off:
        for slot in trees:
            numbers.add_tree(slot)
        changed += trees
        for slot in changed:
            numbers.add(slot)
        trace.once = f"{changed[0].name} is a number that the function changes"
        raise NotWholeError(trace.once)


def has_kinds_of(before: object, after: object) -> bool:
    """Whether two trees have the same structure, and numbers and tensors of the same kinds."""
    (old, spec), (new, other) = tree_flatten(before), tree_flatten(after)
    return spec == other and all(
        is_number_like(b, type(a)) if type(a) in (int, float) else slot_key(a) == slot_key(b)
        for a, b in zip(old, new, strict=True)
    )


def is_number_like(value: object, kind: type) -> bool:
    """Whether a value is a Python number of a kind, or will be one."""
    if type(value) is SymbolicNumber:
        return kind is float
    if type(value) is DeferredNumber:
        return value.kind is kind
    return type(value_of(value)) is kind


def other_kind(slot: ValueSlot, trace: Session) -> NotWholeError:
    trace.once = f"{slot.name} is given a value of another kind by the function"
    return NotWholeError(trace.once)


def refuse_new_values(
    constant: Sequence[ValueSlot], trace: Session, numbers: NumberSlots, installed: Installed
) -> None:
    """Raise if the program would be for values that places have not held before."""
    exact = [entry for entry in trace.expressions.exact if not is_of_the_call(entry[1])]
    values = [(slot.identity, exactly(slot.before)) for slot in constant]
    # A value may be read another number of times: caches of the engine know it the second time.
    if (values or exact) and not numbers.recurs(tuple(dict.fromkeys((*values, *exact)))):
        read = frozenset().union(*(sources for _, sources in exact))
        slots = [*constant, *(slot for slot in installed.slots if slot.identity in read)]
        if not slots:
            raise NotWholeError("a program would be for one value that is drawn")
        raise NotWholeError(f"{slots[0].name} is changed by the function itself")


def is_of_the_call(sources: frozenset[Any]) -> bool:
    """Whether a number depends on nothing but arguments, which are then part of the signature, and
    the data, which decides on a path."""
    return all(place in (ARGUMENT, DATA) for place, _ in sources)


def aliasing_of(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor the first one on the same storage, and the first one that is the same."""
    storages, handles = [id(t._storage) for t in tensors], [id(t) for t in tensors]
    return [*map(storages.index, storages), *map(handles.index, handles)]


def refuse_aliases(effects: Effects, trace: Session, state: PythonState) -> None:
    """Raise if the function reaches the former tensors of the slots in other ways too, or reads
    what differs from call to call."""
    if not effects.slots:
        return
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
    found = occurrences(state, [recorder.held for _, recorder in effects.appended])
    if any(found[held] > count for held, count in within.items() if held in own | inner):
        raise NotWholeError(f"what is in {name} is reached through another place too")


# Names of attributes that tell tensors on other memory apart.
_READS_MEMORY = frozenset({"data_ptr", "_version", "untyped_storage", "storage"})


def objects_in(tree: Any) -> list[object]:
    """A value, its members and theirs, as often as they are referenced."""
    found = children_of(tree)
    return [tree, *(part for child in (found[1] if found else ()) for part in objects_in(child))]


def containers_in(tree: Any) -> Leaves:
    return [held for held in objects_in(tree) if isinstance(held, _CONTAINERS)]


def occurrences(state: PythonState, left_out: Collection[Any] = ()) -> Counter[int]:
    """How many places hold an object, by id; but for the members of some containers."""
    skipped = set(map(id, left_out))
    places: dict[object, Any] = {}
    for guard in (*state.guards, *state.module_guards):
        if id(guard.place) in skipped:
            continue
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
    appended = [recorder.held for _, recorder in effects.appended]
    inner = {id(held) for slot in effects.slots for held in containers_in(slot.before)}
    inner |= set(map(id, appended))

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
    found = occurrences(state)
    own |= {id(member) for held in appended for member in held if found[id(member)] <= 1}
    state.tensors = [tensor for tensor in state.tensors if id(tensor) not in own]


def guards_on_entries(guard: StateGuard, slots: set[Any]) -> list[StateGuard]:
    """Guards on the keys of a container and on its entries that are no slots."""
    place, name = guard.place, guard.name
    keys = KeysSlot(place)
    held = members_of(place)[-len(keys.now) :] if keys.now else ()
    return [
        StateGuard(f"the keys of {name}", keys, "now", keys.now),
        *(
            StateGuard(name, place, key, value)
            for key, value in zip(keys.now, held, strict=True)
            if (id(place), key) not in slots
        ),
    ]


def undo_changes(state: PythonState, kept: Collection[int] = ()) -> None:
    """Let every place that has changed since the walk hold what it held then, but for those of
    ``kept`` guards (by id)."""
    for guard in state.changed():
        if id(guard) in kept:
            continue
        place, before = guard.place, guard.value
        if isinstance(place, KeysSlot):
            for key in [key for key in place.container if key not in before]:
                del place.container[key]
        elif guard.key is not MISSING:
            if before is not MISSING and is_writable(guard, state):
                ValueSlot(guard, guard.key, before, state).write(before)
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
    state.restore_environment()
