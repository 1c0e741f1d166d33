"""Effects: the Python places that a call gives other values, as outputs of its program.

A place whose value a call has replaced (an attribute, a variable, an entry of a container) is a
slot. What it held before is an input of the program where it is a tensor, guarded on by type,
strides, history and aliasing as an argument is; what it holds afterwards is a result, stored after
each successful run. A program of which the slots end as they began serves the next call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

from evergrad.compiler.frontend.append_recorder import (
    AppendRecorder,
    append_all,
    set_members,
)
from evergrad.compiler.frontend.arguments import aliases_of
from evergrad.compiler.frontend.call_log import CallLog, RecordedCall, RecordedOutput
from evergrad.compiler.frontend.number_slots import Installed
from evergrad.compiler.frontend.places import plain_numbers
from evergrad.compiler.frontend.recorded_calls import CallRecorder
from evergrad.compiler.frontend.session import NotWholeError
from evergrad.compiler.frontend.slots import ValueSlot, slot_key
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.python_numbers import Expressions
from evergrad.core.tensor import Tensor
from evergrad.core.tree import TreeSpec, tree_flatten

_CONTAINERS = (list, dict)


class Effects:
    """The slots of a program and the expressions of its Python numbers: read before a run, stored
    after it."""

    def __init__(self, slots: Sequence[ValueSlot], expressions: Expressions) -> None:
        self.slots = list(slots)
        self.expressions = expressions
        self.written = [slot for slot in slots if slot.is_written]
        self.of_module = any(slot.of_module for slot in self.written)
        # The numbers among the arguments that are read: (index among the inputs, position).
        self.arguments: list[tuple[int, int]] = []
        # Whether anything is stored after a run.
        self.stores = bool(self.written)
        found = [tree_flatten(slot.before) for slot in slots]
        self.specs = [spec for _, spec in found]
        # The tensors before the call, which are arguments of the program.
        leaves = [leaf for leaves, _ in found for leaf in leaves]
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        # The containers that are appended to, with their recorders.
        self.appended: list[tuple[ValueSlot, AppendRecorder]] = []
        self.containers: list[tuple[Callable[[Any, list[Any]], None], Any]] = []
        self.keys: list[Any] = []
        # The slots that hold numbers which are inputs.
        self.numbers: set[Any] = set()
        self.aliases: Any = None
        # The impure calls before and after a run, the tensors that the former return, and which of
        # the latter are still to be made for this run.
        self.calls: list[RecordedCall] = []
        self.outputs: list[RecordedOutput] = []
        self.log: CallLog | None = None
        self.drawn: list[Tensor] = []
        self.aliases_of_drawn: Any = None
        self.waiting: list[int] = []

    def record_calls(self, recorder: CallRecorder) -> None:
        self.calls, self.outputs, self.log = recorder.calls, recorder.outputs, recorder.log
        self.stores = self.stores or bool(self.outputs)
        self.drawn = [tensor for call in self.calls for tensor in call.tensors]

    def restore(self) -> None:
        """Let the slots hold what they held before the call."""
        for slot in self.slots:
            slot.write(slot.before)
        if self.of_module:
            MUTATIONS.advance()
        for slot, recorder in self.appended:
            slot.write(recorder.held)

    def refuse_kept_recorders(self, result: Any, installed: Installed) -> None:
        """Raise if a recorder is a result, or is kept by Python: by more than the session."""
        own = [installed.recorders, *self.appended]
        for slot, recorder in self.appended:
            others = [
                held for held in gc.get_referrers(recorder)
                if type(held) is not ValueSlot and not any(held is known for known in own)
            ]  # fmt: skip
            if others or result is recorder:
                raise NotWholeError(f"{slot.name} is kept or returned by the function")

    def values(self) -> list[Any]:
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
        for slot, recorder in self.appended:
            self.numbers.add(slot.identity)
            store = append_all if recorder.content is None else set_members
            self.containers.append((store, recorder.held))
            recorder.pending, recorder.content, recorder.calls = [], None, None
            recorder.known = {}
        self.appended = []
        self.aliases = aliases_of([*arguments, *self.tensors]) if self.tensors else None
        self.aliases_of_drawn = aliases_of([*arguments, *self.tensors, *self.drawn])
        self.has_tensors = bool(self.tensors)
        self.tensors, self.drawn = [], []
        for output in self.outputs:
            output.given = None
        for call in self.calls:
            call.release()

    def read(self, tensors: Sequence[Tensor], numbers: list[Any]) -> list[Tensor] | None:
        """The tensors among the arguments of a call and those in the slots; ``None`` if the slots,
        or the numbers among the arguments, hold anything that the program is not for."""
        leaves: list[Any] = []
        for slot, spec in zip(self.slots, self.specs):  # noqa: B905 - equal lengths
            held = slot.read()
            if spec.kind is None:
                leaves.append(held)
            elif not read_leaves(held, spec, leaves):
                return None
        given = list(tensors)
        for leaf, key in zip(leaves, self.keys):  # noqa: B905 - equal lengths
            if (leaf.__class__ if key.__class__ is type else slot_key(leaf)) != key:
                return None
            if isinstance(leaf, Tensor):
                given.append(leaf)
        for index, position in self.arguments:
            self.expressions.arguments[position] = numbers[index]
        if not self.calls and not self.expressions.evaluate():
            return None
        if not self.has_tensors:
            return given
        if self.aliases is None:
            storages = {id(tensor._storage) for tensor in given}
            return given if len(storages) == len(given) else None
        return given if aliases_of(given) == self.aliases else None

    def draw(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """Make the impure calls before a run, once everything else allows it; returns the tensors
        with those that they return. ``None`` if the program is not for what they return: the log
        has it."""
        self.waiting = list(range(len(self.outputs)))
        if not self.is_ready():
            return None
        if not self.calls or self.log is None:
            return tensors
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
        return given

    def is_ready(self) -> bool:
        """Whether the impure calls after a run can be made without Python."""
        return all([output.is_ready() for output in self.outputs])  # noqa: C419

    def store(self, values: Sequence[Any]) -> bool:
        """Store what a run has computed; whether the counter of mutations was advanced, once."""
        for slot, value in zip(self.written, values, strict=False):
            slot.write(value)
        added = values[len(self.written) :]
        for (store, container), members in zip(self.containers, added, strict=False):
            store(container, members)
        if self.of_module:
            MUTATIONS.advance()
        return self.of_module

    def emit(self, values: Sequence[Any]) -> None:
        """Make the impure calls after a run, each once."""
        first = len(self.written) + len(self.containers)
        while self.waiting:
            number = self.waiting.pop(0)
            self.outputs[number].perform(values[first + number])


def read_leaves(tree: Any, spec: TreeSpec, leaves: list[Any]) -> bool:
    """Append the leaves of a tree; false if it has another structure."""
    found, own = tree_flatten(tree)
    if own != spec:
        return False
    leaves += found
    return True
