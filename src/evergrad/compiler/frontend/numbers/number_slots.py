"""The places with numbers that change, such as counters, and with containers that a compiled
function appends to.

The first call that changes one, or finds another number in it, is run by Python. From the next
session on the place holds a
:class:`~evergrad.core.python_numbers.PythonNumber` while the function runs, so that its program has
the number as an input and stores the new one; or an
:class:`~evergrad.compiler.frontend.recording.append_recorder.AppendRecorder`.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.arguments.base_arguments import BaseArgument
from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.numbers.number_trees import NumberTree, numbers_in
from evergrad.compiler.frontend.recording.append_recorder import APPENDABLE, AppendRecorder
from evergrad.compiler.frontend.recording.call_log import CallLog
from evergrad.compiler.frontend.recording.recorded_calls import CallRecorder
from evergrad.compiler.frontend.session import Session
from evergrad.compiler.frontend.state.places import (
    MAPPINGS,
    ContextSlot,
    Originals,
    Slot,
    plain_numbers,
    read_slot,
)
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.compiler.frontend.state.slots import ValueSlot, is_writable
from evergrad.core.python_numbers import NUMBERS, PythonNumber

if TYPE_CHECKING:
    from evergrad.compiler.frontend.variant import Variant
    from evergrad.core.types import Leaves


# Names of methods that give the numbers in tensors.
_READS_ITEMS = frozenset({"item", "tolist"})
# The most programs that are made for values that changed: where they keep changing, Python runs.
_MOST_PROGRAMS = 8
# The most combinations of values that are remembered.
_MOST_SEEN = 256
# The most combinations of offsets for which programs are made before they recur.
_MOST_OFFSETS = 4


class NumberSlots:
    """What is known of one compiled function: its changing numbers, and values that recurred."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.seen: dict[Any, None] = {}
        # Containers that are read too.
        self.excluded: set[object] = set()
        self.programs = 0
        self.programs_by_signature: Counter[object] = Counter()
        self.is_off: bool = False
        # The known places that hold tuples, lists or dictionaries with numbers.
        self.trees: set[object] = set()
        # The offsets of arguments in their storages for which programs were made.
        self.offsets: set[Any] = set()

    def part(self, identities: Collection[Any]) -> NumberSlots:
        """What is known of some places."""
        made = NumberSlots()
        made.known = {key: held for key, held in self.known.items() if key in identities}
        made.trees = self.trees
        return made

    def add_tree(self, slot: ValueSlot) -> None:
        """Note a container of numbers that a call has replaced."""
        self.add(slot)
        self.trees.add(slot.identity)

    def turn_off(self) -> None:
        """Have numbers as constants of programs from now on."""
        self.is_off = True
        self.known = {}

    def add(self, slot: ValueSlot) -> None:
        """Note a number that a call has changed."""
        if len(self.known) < _MOST_SEEN and slot.identity not in self.excluded:
            self.known[slot.identity] = slot.place if slot.owner is None else slot.owner

    def exclude(self, identity: object) -> None:
        """Note that a container is read or kept: it is not stood in for any more."""
        self.excluded.add(identity)
        self.known.pop(identity, None)

    def remove(self, installed: Installed, state: PythonState) -> Originals:
        """Let places hold their own again after a call that is no program, also where the function
        has put a recorder into another one; returns the containers that copies stood in for."""
        copies = [tree.copy for tree in installed.trees.values()]
        originals = {}
        for tree in installed.trees.values():
            originals.update(tree.originals())
        recorders = {key: weakref.ref(held) for key, held in installed.recorders.items()}
        calls = installed.recorder
        installed.remove()
        if calls is not None:
            calls.discard()
            if calls.keeps_stand_ins():
                state.replace_numbers()
        if any(reference() is not None for reference in recorders.values()):
            state.replace_numbers()
            for key in recorders:
                self.exclude(key)
        if originals:
            state.replace_numbers(originals)
        del copies
        return originals

    def recurs(self, values: object) -> bool:
        """Whether places have held these values before a call already: programs for other values
        would never run again."""
        if values in self.seen:
            self.programs += 1
            return self.programs <= _MOST_PROGRAMS
        if len(self.seen) < _MOST_SEEN:
            self.seen[values] = None
        return False

    def allows_offsets(self, bases: Sequence[BaseArgument]) -> bool:
        """Whether a program may be made for the offsets of arguments in their storages: for a few,
        and for those that recur."""
        key = tuple([(base.type, *base.offsets) for base in bases])
        if len(self.offsets) < _MOST_OFFSETS:
            self.offsets.add(key)
        return key in self.offsets or self.recurs(key)

    def count_program(self, signature: object) -> None:
        """A program was made that is guarded on outcomes of tests of numbers."""
        if len(self.programs_by_signature) > _MOST_SEEN:
            self.programs_by_signature.clear()
        self.programs_by_signature[signature] += 1
        if self.programs_by_signature[signature] > _MOST_PROGRAMS:
            self.turn_off()

    def install(
        self, session: Session, state: PythonState, log: CallLog | None = None,
        kept: Variant | None = None, computes: bool = False,
    ) -> Installed:  # fmt: skip
        """Let the known places hold numbers of the session; those of a variant that is kept, if one
        is given. With a log impure calls are recorded. ``computes`` says that there are other
        numbers of the session."""
        installed = Installed()
        if kept is not None:
            effects = kept.captured.effects
            known = set() if effects is None else effects.numbers
            return self.part(known).install(session, state, log, computes=computes)
        needs_types = state.calls_builtin("type")
        can_compute = not state.checks_number_types and not (needs_types and log is None)
        if computes and not can_compute:
            state.give_up("type() is called, and an argument is a number that varies")
        if state.replayable:
            is_known = can_compute and not self.is_off and state.opaque is None
            if log is not None and (log.made or is_known):
                installed.record_calls(CallRecorder(session, state, log))
            if installed.recorder is None or not is_known:
                state.give_up(f"{state.replayable[0].name} is used")
            if installed.recorder is not None and state.opaque is not None:
                installed.recorder.refuse(state.opaque)
        if (self.known or computes) and can_compute:
            if installed.recorder is None and log is not None:
                installed.record_calls(CallRecorder(session, state, log))
            if installed.recorder is not None and state.opaque is not None:
                installed.recorder.refuse(state.opaque)
            for slot in list(self.slots_in(state)):
                if type(slot.before) in NUMBERS:
                    installed.add(slot, session)
                elif slot.identity in self.trees:
                    if numbers_in(slot.before):
                        installed.add_tree(slot, session)
                elif can_stand_in(slot.before, state):
                    installed.add_recorder(slot)
        is_free = can_compute and not self.is_off and state.opaque is None
        is_wanted = (
            needs_types
            or any(map(state.calls_builtin, ("float", "id", "int")))
            or (session.reads_data and computes_items(state))
        )
        if log is not None and is_free and is_wanted and installed.recorder is None:
            installed.record_calls(CallRecorder(session, state, log))
        if installed.recorder is not None:
            installed.recorder.install_number_functions()
        is_recorded = installed.recorder is not None
        if state.loads_builtin("id") or (state.calls_builtin("id") and not is_recorded):
            state.give_up("id() is used")
        session.defers_items = session.defers_items and (is_recorded or not needs_types)
        if log is not None and log.made:
            installed.add_containers_of(log, state, session)
        return installed

    def repeating(
        self, state: PythonState, log: CallLog, reason: str, outputs: Sequence[bool]
    ) -> Installed:
        """Let places hold stand-ins that repeat the impure calls which were made for the present
        call, and record nothing; ``outputs`` says which of those with output were made."""
        installed = Installed()
        recorder = CallRecorder(None, state, log)
        recorder.refuse(reason)
        recorder.outputs_made = list(outputs)
        installed.record_calls(recorder)
        installed.add_containers_of(log, state, None)
        return installed

    def slots_in(self, state: PythonState) -> Iterator[ValueSlot]:
        keys: dict[int, Leaves] = {}
        for place, key in self.known:
            keys.setdefault(place, []).append(key)
        found: set[Slot] = set()
        for guard in (*state.guards, *state.module_guards):
            owner = state.class_of.get(id(guard.place), guard.place)
            owner = owner.variable if type(owner) is ContextSlot else owner
            for key in keys.get(id(owner), ()):
                if key != guard.key and guard.key is not MISSING:
                    continue
                held = read_slot(guard.place, key)
                if (id(guard.place), key) not in found and held is not MISSING:
                    found.add((id(guard.place), key))
                    yield ValueSlot(guard, key, held, state)


def computes_items(state: PythonState) -> bool:
    """Whether functions of numbers may be called with the numbers in tensors."""
    is_called = bool(state.number_functions) or bool(state.builtin_calls())
    return is_called and not _READS_ITEMS.isdisjoint(state.names)


def can_stand_in(value: object, state: PythonState) -> bool:
    """Whether the function would take a recorder for a container: its class is not mentioned, whose
    methods would refuse it."""
    kind = type(value)
    is_used = kind.__name__ in state.names or state.matches_patterns
    return kind in APPENDABLE and not is_used


def slots_holding(container: Any, state: PythonState) -> list[ValueSlot]:
    """The places that hold a container."""
    found: list[ValueSlot] = []
    for holder in (*state.guards, *state.module_guards):
        place = holder.place
        if holder.key is not MISSING:
            if holder.value is container and is_writable(holder, state):
                found.append(ValueSlot(holder, holder.key, container, state))
        elif type(place) is list or type(place) in MAPPINGS:
            pairs = enumerate(place) if type(place) is list else place.items()
            found += [ValueSlot(holder, k, v, state) for k, v in list(pairs) if v is container]
    return found


class Installed:
    """The numbers and recorders that places hold during one session."""

    def __init__(self) -> None:
        self.slots: list[ValueSlot] = []
        self.numbers: dict[Any, PythonNumber] = {}
        self.recorders: dict[Any, AppendRecorder] = {}
        self.trees: dict[Any, NumberTree] = {}
        # What records impure calls.
        self.recorder: CallRecorder | None = None

    def flush_outputs(self) -> None:
        if self.recorder is not None:
            self.recorder.flush_outputs()

    def record_calls(self, recorder: CallRecorder) -> None:
        self.recorder = recorder
        if recorder.session is not None:
            recorder.session.after_flush = recorder.flush_outputs
            recorder.session.marks_text = recorder.mark
        recorder.installed = self
        recorder.install()

    def remove_stand_ins(self) -> None:
        if self.recorder is not None:
            self.recorder.remove()

    def add_containers_of(self, log: CallLog, state: PythonState, session: Session | None) -> None:
        """Stand in for the containers of which members were read or popped already."""
        if self.recorder is None:
            recorder = CallRecorder(session, state, log)
            recorder.refuse("containers are not stood in for any more")
            self.record_calls(recorder)
        for container in log.containers():
            if all(known.held is not container for known in self.recorders.values()):
                for slot in slots_holding(container, state)[:1]:
                    self.add_recorder(slot)

    def add_recorder(self, slot: ValueSlot) -> None:
        recorder = self.recorders[slot.identity] = AppendRecorder(slot.before, self.recorder)
        self.slots.append(slot)
        slot.write(recorder)

    def add(self, slot: ValueSlot, session: Session) -> None:
        place, key = slot.place, slot.key
        source = slot.identity
        number = PythonNumber(
            session, session.expressions, slot.before, lambda: read_slot(place, key),
            frozenset([source]),
        )  # fmt: skip
        self.slots.append(slot)
        session.number_places.add((id(place), key))
        self.numbers[source] = number
        slot.write(number)

    def add_tree(self, slot: ValueSlot, session: Session) -> None:
        tree = self.trees[slot.identity] = NumberTree(slot, session)
        self.slots.append(slot)
        slot.write(tree.copy)

    def is_unchanged(self, slot: ValueSlot) -> bool:
        """Whether a place holds the stand-in that was put there."""
        if slot.identity in self.trees:
            return slot.after is self.trees[slot.identity].copy
        return slot.after is not None and slot.after is self.number_in(slot)

    def all_numbers(self) -> list[PythonNumber]:
        parts = [tree.numbers.values() for tree in self.trees.values()]
        return [*self.numbers.values(), *(number for part in parts for number in part)]

    def number_in(self, slot: ValueSlot) -> PythonNumber | None:
        return self.numbers.get(slot.identity)

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def discard(self) -> None:
        """Drop what was appended: the call has no effects."""
        for recorder in self.recorders.values():
            recorder.pending, recorder.content, recorder.known = [], None, {}

    def remove(self) -> None:
        """Let the places hold the numbers themselves."""
        self.remove_stand_ins()
        for slot in self.slots:
            held = slot.read()
            if type(held) is PythonNumber:
                slot.write(held.value)
            elif type(held) is AppendRecorder:
                slot.write(held.held)
            elif slot.identity in self.trees and held is self.trees[slot.identity].copy:
                slot.write(slot.before)
        for tree in self.trees.values():
            tree.write_back()
        for recorder in self.recorders.values():
            plain_numbers(recorder)
            recorder.calls = None
        self.slots, self.numbers, self.recorders, self.trees = [], {}, {}, {}
