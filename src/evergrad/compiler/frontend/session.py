"""A session: one call of a compiled function that Python runs, with its ops recorded.

Ops of the call are equations of a trace. When Python reads a value (``.item()``, ``if``, an index
by a mask, ``print``), and at the end of the call, the equations so far run as one *segment*, and
every live handle, storage and residual that is symbolic gets its value. Nothing symbolic outlives
the call. A session is therefore always the call that eager code would have made; whether its trace
is also a program for later calls is decided at its end (:mod:`.capture`).
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.frontend.data_exchange import (
    can_exchange,
    exchange,
    forget_captures,
    handles_on,
)
from evergrad.compiler.frontend.effects.sparse_gradients import make_sparse
from evergrad.compiler.frontend.paths.data_reads import DATA, DataReads, slice_of, subgraph
from evergrad.compiler.frontend.reasons import trace_error
from evergrad.compiler.frontend.recording.returned_values import is_returned
from evergrad.core.compound import Compound
from evergrad.core.functionalize import FunctionalizingTrace
from evergrad.core.node import GraphNode, Leaf, Node, next_sequence
from evergrad.core.op import Specialization
from evergrad.core.python_numbers import Expressions, PythonNumber
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.saved_values import Packed
from evergrad.core.source_location import SourceLocation, describe, user_location
from evergrad.core.state import State, using
from evergrad.core.storage import Storage, checksum
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Trace, Var

if TYPE_CHECKING:
    from evergrad.compiler.frontend.state.gradient_flags import GradientFlags
    from evergrad.core.types import Array

# Runs a graph on the arrays of its inputs.
RunSegment = Callable[[Graph, list[Any]], list[Any]]


class NotWholeError(Exception):
    """The trace of a call cannot serve later calls; the message says why."""


class Break:
    """The end of a segment: why and where Python read a value."""

    __slots__ = ("location", "what")

    def __init__(self, what: str, location: SourceLocation | None) -> None:
        self.what: str = what
        self.location: SourceLocation | None = location

    def __str__(self) -> str:
        return f"{self.what}, at {describe(self.location)}"


class Session(FunctionalizingTrace):
    """The trace of one call. ``breaks`` are the ends of its segments but the last. With
    ``fullgraph`` a break is an error."""

    is_lazy = True

    def __init__(
        self, parent: Trace | None, run: RunSegment, fullgraph: bool = False,
        visible: Sequence[Array] = (),
    ) -> None:  # fmt: skip
        """``visible`` are the NumPy arrays that the function can reach."""
        super().__init__(parent)
        self.visible = visible
        # The storages outside of the call that share memory with another one, by id.
        self.overlapping: set[int] = set()
        # The captured tensors on memory that Python can write meanwhile, as they were.
        self.copies: dict[Var, Any] = {}
        # What captured tensors showed when they were captured: an array, and the storage it is of.
        self.shown: dict[Var, tuple[Array, Storage]] = {}
        self.run_segment = run
        self.fullgraph = fullgraph
        self.breaks: list[Break] = []
        # Where Python has read elements of an outside tensor that was not computed by the call.
        self.data_read: Break | None = None
        self.argument_storages: set[int] = set()
        # Outside storages, not of arguments, that other calls have seen with other elements.
        self.varying: Collection[Storage] = ()
        # Nodes with smaller numbers are outside, and whether a backward pass has run one of them.
        self.first_node: int = next_sequence()
        self.differentiates_outside: bool = False
        # What is done once values are computed: printing them.
        self.after_flush: Callable[[], None] | None = None
        # Whether what makes it no program is expected to pass.
        self.is_passing = False
        # What segments have computed so far: equations, and elements of their results.
        self.equation_count = self.elements = 0
        # The code of the function, if it is one of Python, and of what calls it.
        self.codes: tuple[CodeType, CodeType] | None = None
        # The modes when the function returned.
        self.modes: State | None = None
        # Which tensors required grad when it was called.
        self.flags: GradientFlags | None = None
        self.handles: list[weakref.ref[Tensor]] = []
        self.nodes: list[weakref.ref[object]] = []
        # Whether sparse gradients are recorded, and those which are not all rows as they are.
        self.records_sparse = self.records_unlike = False
        self.sparse_weights: list[Tensor] = []
        # Those, by id, of which the gradient is not the sum of the rows that are looked up.
        self.unlike_rows: set[int] = set()
        # Whether Python has read one of their gradients.
        self.reads_sparse: bool = False
        # Handles on outside storages that the call has made, by id.
        self.made: dict[int, Tensor] = {}
        self.made_numbers: list[weakref.ref[object]] = []
        # The default generator, if it was named.
        self.named_default: list[object] = []
        # The expressions of Python numbers, and the changed numbers that are known from now on.
        self.expressions: Expressions = Expressions()
        # What Python has read of the data, and whether programs may read it too.
        self.data: DataReads = DataReads()
        self.reads_data = False
        # Whether shapes may depend on what is read.
        self.reads_sizes = True

    def emit(
        self, specialization: Specialization, args: tuple[object, ...],
        location: SourceLocation | None, layout: object = None, no_grad: bool = False,
    ) -> tuple[Var, ...]:  # fmt: skip
        """Append an equation. The default generator is the same stream whether it is named or
        not."""
        op, attrs = specialization.op, specialization.attrs
        generator = attrs.get("generator") if op.random else None
        if generator is not None and generator is default_generator():
            if all(known is not generator for known in self.named_default):
                self.named_default.append(generator)
            attrs = {**attrs, "generator": None}
            key = (specialization.types, tuple(attrs.items()))
            found = op.specializations.get(key)
            specialization = found or op.resolve(key, specialization.types, attrs)
        return super().emit(specialization, args, location, layout, no_grad)

    def note_backward_through(self, node: GraphNode) -> None:
        if node.seq < self.first_node and not isinstance(node, Leaf):
            self.differentiates_outside = True

    def note_handle(self, tensor: Tensor) -> None:
        self.handles.append(weakref.ref(tensor))

    def note_sparse(self, weight: Tensor, has_all_rows: bool) -> None:
        """Sparse gradients are recorded as dense ones, which optimizers apply by rows, and made
        sparse again where they are left behind; what cannot be recorded so runs eagerly."""
        self.sparse_weights.append(weight)
        if not has_all_rows:
            self.unlike_rows.add(id(weight))
        is_recorded = self.records_sparse if has_all_rows else self.records_unlike
        if not is_recorded or isinstance(weight._grad, Compound):  # it would be added to that
            self.leave("the gradient of an embedding is sparse")

    def keeps_sparse_gradients(self) -> bool:
        """Whether a gradient is left behind that is sparse in eager code only."""
        kept = [weight for weight in self.sparse_weights if weight._grad is not None]
        if self.is_off:
            return any(id(weight) in self.unlike_rows for weight in kept)
        return not all(isinstance(weight._grad, Compound) for weight in kept)

    def note_grad_read(self, tensor: Tensor) -> None:
        """A gradient that is sparse in eager code is one when Python reads it."""
        is_sparse = any(tensor is weight for weight in self.sparse_weights)
        if not is_sparse or tensor._grad is None or self.is_off:
            return
        self.reads_sparse = True
        make_sparse(self)
        self.leave("a sparse gradient is read")
        if id(tensor) in self.unlike_rows:
            tensor._grad = tensor._grad.to_sparse(1)

    def note_made(self, tensor: Tensor) -> None:
        self.made[id(tensor)] = tensor

    def note_grad(self, tensor: Tensor) -> None:
        if id(tensor) not in self.made:  # the gradient of a handle of the call is its own
            super().note_grad(tensor)

    def note_number(self, number: object) -> None:
        self.made_numbers.append(weakref.ref(number))

    def keeps_numbers(self) -> bool:
        """Whether Python keeps a number of the session, after its end."""
        return any(reference() is not None for reference in self.made_numbers)

    def live_numbers(self) -> list[PythonNumber]:
        """The numbers of Python state that are alive."""
        alive = (reference() for reference in self.made_numbers)
        return [number for number in alive if type(number) is PythonNumber]

    def note_node(self, node: object) -> None:
        self.nodes.append(weakref.ref(node))

    def capture(self, tensor: Tensor) -> Var:
        var = super().capture(tensor)
        storage = tensor._storage
        if not isinstance(tensor._value, Var):
            self.shown[var] = tensor._value, storage
        if storage.shared and var not in self.copies and self.is_visible(storage):
            self.copies[var] = tensor._value.copy()
        return var

    def note_shared(self, shared: Sequence[Storage]) -> None:
        """Note which of the storages that NumPy sees overlap: they may be read, and a write to one
        of them ends recording."""
        self.overlapping = {
            id(storage)
            for n, a in enumerate(shared) for b in shared[:n]
            if np.may_share_memory(a.value, b.value) for storage in (a, b)
        }  # fmt: skip

    def must_write_now(self, storage: Storage) -> bool:
        """Whether a write to a storage is visible through other memory."""
        return storage.shared and (
            id(storage) in self.overlapping
            or self.is_visible(storage)
            or any(
                other is not storage and other.shared
                and np.may_share_memory(self.memory_of(other), self.memory_of(storage))
                for other in self._read.values()
            )
        )  # fmt: skip

    def is_visible(self, storage: Storage) -> bool:
        memory = self.memory_of(storage)
        return any(np.may_share_memory(array, memory) for array in self.visible)

    def memory_of(self, storage: Storage) -> object:
        """The memory of a storage before the session: the layout of a symbolic value has an address
        but none of the memory behind it."""
        write = self.written.get(id(storage))
        value = storage.value if write is None else write.value
        return () if isinstance(value, Var) else value

    def leave(self, what: str) -> None:
        """Compute what was recorded, and run the rest of the call eagerly."""
        if self.is_off:
            return
        self.materialize(what)
        self.is_off = True
        self.functionalizer = None

    def note_outside_read(self, storage: Storage) -> None:
        """The elements of an argument, or of memory that others write, differ from call to call;
        those of other tensors are guarded on by version."""
        if self.varies(storage):
            if self.fullgraph:
                raise trace_error("the elements of an argument were read")
            if self.data_read is None:
                self.data_read = Break(
                    "the elements of an outside tensor are read", user_location(2)
                )
        else:
            self.guard_version(storage)

    def varies(self, storage: Storage) -> bool:
        """Whether an outside storage may have other elements at each call."""
        is_read = id(storage) in self.argument_storages or id(storage) in self._read
        return is_read or storage.shared or storage in self.varying

    def read_and_written(self) -> list[Storage]:
        """The outside storages of which Python has read elements that the call replaces: no other
        call would find those again."""
        return [s for key, s in self.read_storages.items() if key in self.written]

    def read_data(self, tensor: Tensor) -> PythonNumber | None:
        """The number in a tensor, read without an end of the segment."""
        storage = tensor._storage
        is_computed = self.is_own(storage.value) or self.is_own(tensor._value)
        if not self.reads_data or self.is_off or not (is_computed or self.varies(storage)):
            return None
        return self.data.number(self, tensor)

    def read_size(self, tensor: Tensor) -> int | None:
        """An integer of the data that a shape depends on: the program is for its value."""
        number = self.read_data(tensor) if self.reads_sizes else None
        if number is None:
            return None
        self.data.has_sizes = True
        return operator.index(number)

    def set_data(self, tensor: Tensor, value: Tensor) -> bool:
        """The memory of a tensor is about to be replaced by that of a value. Where the tensor is
        from before the call, their contents are exchanged, or else the rest of the call runs
        eagerly. Whether they were exchanged."""
        if self.flags is None or self.flags.has(tensor) or not self.is_of_the_call(tensor):
            if can_exchange(self, tensor, value):
                exchange(self, tensor, value)
                return True
            self.leave(f".data of a {tensor._type} from outside was set to a {value._type}")
        else:
            forget_captures(self, tensor)
            self.handles.append(weakref.ref(tensor))
        return False

    def is_of_the_call(self, tensor: Tensor) -> bool:
        """Whether the call has made a tensor."""
        return any(handle is tensor for handle in handles_on(self, tensor._storage))

    def is_returned(self, frame: FrameType) -> bool:
        return self.codes is not None and is_returned(frame, *self.codes)

    def note_exact_read(self, number: PythonNumber) -> None:
        """A program for one exact float of the data would hardly run again."""
        if any(place == DATA for place, _ in number.sources) and not isinstance(number.value, int):
            self.materialize("a number of the data was read")

    def materialize(self, what: str) -> None:
        if self.fullgraph:
            raise trace_error(what)
        self.breaks.append(Break(what, user_location(1)))
        self.flush()
        if self.after_flush is not None:
            self.after_flush()

    # -- running what was recorded ----------------------------------------------------------------

    def flush(self) -> None:
        """Run the equations so far and give every live symbolic value its array. If they fail,
        outside tensors, gradients and versions are as before the first of them."""
        make_sparse(self)
        handles, nodes = self.live_handles(), self.live_nodes()
        storages = self.live_storages(handles)
        producers = self.producers()
        try:
            values = self.compute(self.wanted_values(storages, nodes, producers))
        except BaseException:
            self.abandon()
            self.forget()
            raise
        resolve = _Resolver({**values, **self.residual_inputs()}, producers)
        with using(trace=None):
            self.fill_storages(storages, values)
            for tensor in handles:
                tensor._value = _array_of(tensor)
            self.fill_nodes(nodes, resolve)
        self.forget()

    def producers(self) -> dict[Var, Equation]:
        """The equations of view ops by their results."""
        return {out: e for e in self.equations if e.op.alias for out in e.outs}

    def wanted_values(
        self, storages: Sequence[Storage], nodes: Sequence[Node], producers: dict[Var, Equation]
    ) -> dict[Var, None]:
        """The values of storages and residuals, without views."""
        wanted: dict[Var, None] = {}
        for storage in storages:
            wanted[storage.value] = None  # type: ignore[index]
        for var in self.saved_vars(nodes):
            wanted[_root(var, producers)] = None
        return wanted

    def live_values(self) -> dict[Var, None]:
        """The values that Python can still reach."""
        handles = self.live_handles()
        return self.wanted_values(self.live_storages(handles), self.live_nodes(), self.producers())

    def live_handles(self) -> list[Tensor]:
        alive = (reference() for reference in self.handles)
        return [t for t in alive if t is not None and self.is_own(t._value)]

    def live_nodes(self) -> list[Node]:
        alive = (reference() for reference in self.nodes)
        return [n for n in alive if n is not None and isinstance(n, Node) and n.saved]

    def live_storages(self, handles: Sequence[Tensor]) -> list[Storage]:
        """The storages with a symbolic value that can be reached."""
        found = {id(t._storage): t._storage for t in handles}
        found.update((id(w.storage), w.storage) for w in self.written.values())
        return [storage for storage in found.values() if self.is_own(storage.value)]

    def is_own(self, value: object) -> bool:
        return isinstance(value, Var) and value.trace is self

    def saved_vars(self, nodes: Sequence[Any]) -> Iterator[Var]:
        for node in nodes:
            for entry in node.saved:
                if entry.__class__ is not Packed and self.is_own(entry[0]):
                    yield entry[0]

    def compute(self, wanted: dict[Var, None]) -> dict[Var, Array]:
        """The arrays of values: those of inputs as they are, others by running the equations."""
        captured: dict[Var, Any] = {
            var: self.array_of(var, tensor) for var, tensor in self.captures
        }
        for *_, number in self.numbers.values():  # as they were when they were read
            array = np.asarray(number.value, np.float64)
            captured[number.tensor._storage.value] = array  # type: ignore[index]
        known = {**captured, **self.data.values}
        values = {var: known[var] for var in wanted if var in known}
        outputs = [var for var in wanted if var not in values]
        graph = self.rest(known, outputs)
        if graph.equations:
            self.equation_count += len(graph.equations)
            self.elements += sum(o.type.numel for eqn in graph.equations for o in eqn.outs)
            given = [known[var] for var in graph.inputs]
            for var, array in zip(outputs, self.run_segment(graph, given), strict=True):
                values[var] = array
        # An input that becomes the value of another storage is copied before anything is written.
        return {v: a.copy() if v in captured else a for v, a in values.items()}

    def rest(self, known: dict[Var, Any], outputs: Sequence[Var]) -> Graph:
        """The graph of values that are not computed yet, with the effects since the last read."""
        if not self.data.reads:
            return Graph(list(known), (), self.equations, outputs).without_dead_code()
        first = self.data.position
        numbers = slice_of(
            self.equations, outputs, known, lambda n, eqn: n >= first and eqn.op.has_effect
        )
        kept = [self.equations[number] for number in numbers]
        if any(eqn.op.random for number, eqn in zip(numbers, kept) if number < first):  # noqa: B905
            raise AssertionError("a random number that was computed is drawn again")
        read = {a for eqn in kept for a in eqn.args if a.__class__ is Var}
        return subgraph(kept, [var for var in known if var in read], outputs)

    def array_of(self, var: Var, tensor: Tensor) -> Any:
        """The array of a captured tensor."""
        return self.copies.get(var, self.captured_array(var, tensor))

    def captured_array(self, var: Var, tensor: Tensor) -> Array:
        """The array that a tensor from outside had when it was captured; since then the function
        may have made its handle another view, or one of other memory."""
        return self.shown[var][0] if var in self.shown else tensor._value

    def residual_inputs(self) -> dict[Var, Array]:
        """The arrays of captured tensors for residuals: by reference, unless this trace writes to
        their storage."""
        arrays: dict[Var, Array] = {}
        for var, tensor in self.captures:
            array, storage = self.shown.get(var, (tensor._value, tensor._storage))
            arrays[var] = array.copy() if id(storage) in self.written else array
        return arrays

    def fill_storages(self, storages: Sequence[Storage], values: dict[Var, Any]) -> None:
        used: set[Var] = set()
        for storage in storages:
            var: Any = storage.value
            write = self.written.get(id(storage))
            if write is not None and not isinstance(write.value, Var):
                storage.value = write.value  # outside: its memory is written
                np.copyto(write.value, values[var])
            else:
                array = values[var].copy() if var in used else values[var]
                used.add(var)
                storage.fill(array, storage.type.nbytes)

    def fill_nodes(self, nodes: Sequence[Any], resolve: _Resolver) -> None:
        for node in nodes:
            node.saved = type(node.saved)(self.filled(entry, resolve) for entry in node.saved)

    def filled(self, entry: Any, resolve: _Resolver) -> Any:
        """A residual with its array: that of its storage, if this still has the saved value."""
        if entry.__class__ is Packed or not self.is_own(entry[0]):
            return entry
        var, storage, version, _ = entry
        array = resolve(var)
        if self.is_own(storage.value):
            storage.value = array
        return array, storage, version, checksum(array) if storage.shared else None

    def end(self) -> None:
        """Compute what is left, at the end of a call."""
        if not self.is_off:
            self.flush()
        self.abandon()

    def release(self) -> None:
        """Drop the references to the compiled function and to itself: values of the graph, which
        programs keep, reference the session."""
        self.run_segment = _ended
        self.after_flush = self.marks_text = None
        self.modes = self.flags = None
        self.visible = ()
        self.copies, self.made, self.sparse_weights = {}, {}, []
        self.shown = {}
        self.data.forget()

    def forget(self) -> None:
        """Clear what was recorded: the values are those of outside tensors from now on."""
        self.grads.clear()
        self.grads_set.clear()
        self.written.clear()
        self.states.clear()
        self.abandon()
        self.functionalizer = self
        self.handles, self.nodes, self.copies, self.made = [], [], {}, {}
        self.shown = {}
        self.data.forget()


def _ended(graph: Graph, arrays: list[object]) -> list[object]:
    raise RuntimeError("the session has ended")


class _Resolver:
    """Maps symbolic values to arrays, views to views of the arrays they alias."""

    def __init__(self, values: dict[Var, object], producers: dict[Var, Equation]) -> None:
        self.values = values
        self.producers = producers

    def __call__(self, var: Var) -> Any:
        if var not in self.values:
            eqn = self.producers[var]
            self.values[var] = eqn.op.eval(self(eqn.args[0]), **eqn.attrs)
        return self.values[var]


def _root(var: Var, producers: dict[Var, Equation]) -> Var:
    """The value that a chain of view ops begins with."""
    while var in producers:
        var = producers[var].args[0]
    return var


def _array_of(tensor: Tensor) -> Array:
    """The array of a handle, by its view ops from the array of its storage."""
    array: Any = tensor._storage.value
    if tensor._view is not None:
        for op, attrs in tensor._view.chain:
            array = op.eval(array, **attrs)
    result: Array = array
    return result
