"""Effects: the Python places that a call gives other values, as outputs of its program.

A place whose value a call has replaced (an attribute, a variable, an entry of a container) is a
slot. What it held before is an input of the program where it is a tensor, guarded on by type,
strides, history and aliasing as an argument is; what it holds afterwards is a result, stored after
each successful run. A program of which the slots end as they began serves the next call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.arguments.argument_slots import ArgumentSlot
from evergrad.compiler.frontend.arguments.match_arguments import leaf_reader
from evergrad.compiler.frontend.arguments.signature import aliases_of
from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.numbers.number_slots import Installed
from evergrad.compiler.frontend.paths.path import Path
from evergrad.compiler.frontend.recording.append_recorder import (
    AppendRecorder,
    append_all,
    set_members,
)
from evergrad.compiler.frontend.recording.call_log import CallLog, RecordedCall, RecordedOutput
from evergrad.compiler.frontend.recording.recorded_calls import CallRecorder
from evergrad.compiler.frontend.session import NotWholeError
from evergrad.compiler.frontend.state.places import plain_numbers
from evergrad.compiler.frontend.state.reached_state import ReachedState
from evergrad.compiler.frontend.state.slots import ValueSlot, slot_key
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.python_numbers import Expressions
from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_flatten

if TYPE_CHECKING:
    from evergrad.core.tree import TreeSpec
    from evergrad.core.types import Leaves

_CONTAINERS = (list, dict)


class Effects:
    """The slots of a program and the expressions of its Python numbers: read before a run, stored
    after it."""

    def __init__(self, slots: Sequence[ValueSlot], expressions: Expressions) -> None:
        self.slots: list[ValueSlot] = list(slots)
        self.expressions = expressions
        self.written: Leaves = [slot for slot in slots if slot.is_written]
        self.of_module: bool = any(slot.of_module for slot in self.written)
        # The numbers among the arguments that are read: (index among the inputs, position).
        self.arguments: list[tuple[int, int]] = []
        # Whether anything is stored after a run.
        self.stores: bool = bool(self.written)
        found = [tree_flatten(slot.before) for slot in slots]
        self.specs: list[TreeSpec] = [spec for _, spec in found]
        # The tensors before the call, which are arguments of the program.
        leaves = [leaf for leaves, _ in found for leaf in leaves]
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        # What slots begin with that is compared by identity.
        self.kept: Leaves = []
        # Whether entries of modules are made or deleted.
        self.changes_modules: bool = any(
            slot.of_module and (slot.is_deleted or slot.before is MISSING) for slot in self.written
        )
        # The containers that are appended to, with their recorders.
        self.appended: list[tuple[ValueSlot, AppendRecorder]] = []
        self.containers: list[tuple[Callable[[Any, Leaves], None], Any]] = []
        self.keys: Leaves = []
        # The slots that hold numbers which are inputs.
        self.numbers: set[Any] = set()
        self.aliases: Any = None
        # The impure calls before and after a run, the tensors that the former return, and which of
        # the latter are still to be made for this run.
        self.calls: list[RecordedCall] = []
        self.outputs: list[RecordedOutput] = []
        self.log: CallLog | None = None
        self.drawn: list[Tensor] = []
        self.drawn_count: int = 0
        self.aliases_of_drawn: object = None
        self.waiting: list[int] = []
        # The stages of a call that decides by the data.
        self.path: Path | None = None
        # The entries of containers among the arguments that are stored, and the objects that the
        # function reached otherwise, by id.
        self.argument_slots: list[ArgumentSlot] = []
        self.reached: set[int] = set()
        # How the slots are read (with those that append the leaves of containers) and written.
        self.readers: list[
            tuple[Callable[[], object], Callable[[object, list[object]], bool] | None]
        ] = []
        self.writers: list[Callable[[object], None]] = []

    def add_arguments(self, slots: Sequence[ArgumentSlot], state: ReachedState) -> None:
        """Store into containers among the arguments too."""
        self.argument_slots = list(slots)
        self.written = [*self.written, *slots]
        self.stores = self.stores or bool(slots)
        if slots:
            self.reached = set(state.seen)

    def find_arguments(self, given: object) -> bool:
        """Use the containers among the arguments of a call; whether none of them is reached
        otherwise too."""
        return all(id(slot.find(given)) not in self.reached for slot in self.argument_slots)

    def record_calls(self, recorder: CallRecorder) -> None:
        self.calls, self.outputs, self.log = recorder.calls, recorder.outputs, recorder.log
        self.stores = self.stores or bool(self.outputs)
        self.drawn = [tensor for call in self.calls for tensor in call.tensors]

    def restore(self) -> None:
        """Let the slots hold what they held before the call."""
        for slot in self.slots:
            slot.write(slot.before)
        for own in self.argument_slots:
            own.write(own.before)
        if self.of_module:
            MUTATIONS.advance()
        for slot, recorder in self.appended:
            slot.write(recorder.held)

    def refuse_kept_recorders(self, installed: Installed, made: Collection[int]) -> None:
        """Raise if a recorder is kept by Python: by more than the session, and the containers
        among its results that the call has ``made``."""
        own = [installed.recorders, *self.appended]
        for slot, recorder in self.appended:
            others = [
                held for held in gc.get_referrers(recorder)
                if type(held) is not ValueSlot and not any(held is known for known in own)
                and id(held) not in made
            ]  # fmt: skip
            if others:
                raise NotWholeError(f"{slot.name} is kept by the function")

    def values(self) -> Leaves:
        """What the captured call has stored and appended."""
        pending = [
            list(recorder.pending if recorder.content is None else recorder.content)
            for _, recorder in self.appended
        ]
        given = [output.given for output in self.outputs]
        return [*(slot.after for slot in self.written), *pending, *given]

    def repeat(self) -> None:
        """Let the slots hold what the call has stored."""
        for slot in self.slots:
            slot.write(plain_numbers(slot.after) if slot.is_written else slot.before)
        for own in self.argument_slots:
            own.write(plain_numbers(own.after))
        if self.of_module:
            MUTATIONS.advance()

    def release(self, arguments: Sequence[Tensor], installed: Installed) -> None:
        """Note the signature of the slots, and drop the values of the captured call."""
        for slot in self.slots:
            number, tree = installed.number_in(slot), installed.trees.get(slot.identity)
            if number is not None or tree is not None:
                self.numbers.add(slot.identity)
            inputs = {0} if number is not None else set() if tree is None else set(tree.numbers)
            leaves = tree_flatten(slot.before)[0]
            self.keys += [
                type(leaf) if index in inputs else slot_key(leaf)
                for index, leaf in enumerate(leaves)
            ]
            slot.before = slot.after = None
        for own in self.argument_slots:
            own.before = own.after = own.place = None
        self.readers = [
            (slot.reader(), None if spec.is_leaf() else leaf_reader(spec))
            for slot, spec in zip(self.slots, self.specs, strict=True)
        ]
        self.writers = [slot.writer() for slot in self.written]
        for slot, recorder in self.appended:
            self.numbers.add(slot.identity)
            store = append_all if recorder.content is None else set_members
            self.containers.append((store, recorder.held))
            recorder.pending, recorder.content, recorder.calls = [], None, None
            recorder.known = {}
        self.appended = []
        self.aliases = aliases_of([*arguments, *self.tensors]) if self.tensors else None
        self.aliases_of_drawn = aliases_of([*arguments, *self.tensors, *self.drawn])
        self.has_tensors: bool = bool(self.tensors)
        self.drawn_count = len(self.drawn)
        self.tensors, self.drawn = [], []
        for output in self.outputs:
            output.release()
        for call in self.calls:
            call.release()

    def read(self, tensors: Sequence[Tensor], numbers: Leaves) -> list[Tensor] | None:
        """The tensors among the arguments of a call and those in the slots; ``None`` if the slots,
        or the numbers among the arguments, hold anything that the program is not for."""
        leaves: Leaves = []
        for read, read_leaves in self.readers:
            held = read()
            if read_leaves is None:
                leaves.append(held)
            elif not read_leaves(held, leaves):
                return None
        given = list(tensors)
        for leaf, key in zip(leaves, self.keys):  # noqa: B905 - equal lengths
            if (leaf.__class__ if key.__class__ is type else slot_key(leaf)) != key:
                return None
            if isinstance(leaf, Tensor):
                given.append(leaf)
        for index, position in self.arguments:
            self.expressions.arguments[position] = numbers[index]
        if not (self.calls or self.path is not None or self.expressions.evaluate()):
            return None
        if not self.has_tensors:
            return given
        if self.aliases is None:
            storages = {id(tensor._storage) for tensor in given}
            return given if len(storages) == len(given) else None
        return given if aliases_of(given) == self.aliases else None

    def draw(self, tensors: list[Tensor], wholes: Sequence[Any] = ()) -> list[Tensor] | None:
        """Make the impure calls before a run and run the stages of a path, once everything else
        allows it; returns the tensors with those that the calls return and the ``wholes``.
        ``None`` if the program is not for what they return, which the log has, or for the data."""
        self.waiting = list(range(len(self.outputs)))
        if not self.is_ready():
            return None
        if self.path is not None:
            self.path.begin(self.argument_of(tensors, wholes))
        if self.calls or self.path is not None:
            if self.log is not None:
                self.log.rewind()
            if not self.expressions.evaluate():
                return None
        given = list(tensors)
        for call in self.calls:
            drawn = call.tensors
            if drawn:
                given += drawn
                call.release()
        if len(given) > len(tensors) and aliases_of(given) != self.aliases_of_drawn:
            return None
        return [*given, *wholes]

    def argument_of(
        self, tensors: Sequence[Tensor], wholes: Sequence[Any]
    ) -> Callable[[int], Tensor]:
        """The argument of an index, while the impure calls are made: given, returned by them, or
        one of the ``wholes``, which are the last."""

        def argument(index: int) -> Tensor:
            if index < len(tensors):
                return tensors[index]
            if not self.drawn_count:
                return wholes[index - len(tensors)]  # type: ignore[no-any-return]
            drawn = [tensor for call in self.calls for tensor in call.tensors]
            place = index - len(tensors)
            return drawn[place] if place < self.drawn_count else wholes[place - self.drawn_count]

        return argument

    def is_for_log(self) -> bool:
        """Whether the guards hold with the impure calls that were made."""
        if self.log is None:
            return self.expressions.evaluate()
        with self.log.closed():
            return self.expressions.evaluate()

    def is_ready(self) -> bool:
        """Whether the impure calls after a run can be made without Python."""
        return all([output.is_ready() for output in self.outputs])  # noqa: C419

    def store(self, values: Sequence[Any]) -> bool:
        """Store what a run has computed; whether the counter of mutations was advanced, once."""
        for write, value in zip(self.writers, values):  # noqa: B905 - then the containers
            write(value)
        if self.containers:
            added = values[len(self.writers) :]
            for (store, container), members in zip(self.containers, added, strict=False):
                store(container, members)
        if self.of_module:
            MUTATIONS.advance()
        return self.of_module

    def emit(self, values: Sequence[object]) -> None:
        """Make the impure calls after a run, each once."""
        first = len(self.written) + len(self.containers)
        while self.waiting:
            number = self.waiting.pop(0)
            self.outputs[number].perform(values[first + number])
