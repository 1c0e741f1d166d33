"""Functionalization: traces of programs that run again, with all effects as inputs and outputs.

An ordinary trace evaluates ops on outside tensors at once; a :class:`FunctionalizingTrace` emits
them too, so that parameters, optimizer state and running statistics are read and written each time
the graph runs. What Python decides while tracing (numbers, modes, which gradients exist) becomes a
run-time input or a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from evergrad.core.state import STATE
from evergrad.core.trace import Equation, Trace, Var
from evergrad.core.types import Args
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.op import Specialization
    from evergrad.core.python_numbers import PythonNumber
    from evergrad.core.source_location import SourceLocation
    from evergrad.core.storage import Storage
    from evergrad.core.tensor import Tensor

_combined: ExtensionPoint[[str, SymbolicNumber, object, bool], object] = ExtensionPoint(
    "number_arithmetic"
)
_compared: ExtensionPoint[[str, SymbolicNumber, object], object] = ExtensionPoint(
    "number_comparison"
)


# Where an input number is read from: a container, a key, and the part of a tuple.
Source = tuple[Any, Any, int | None]


class SymbolicNumber:
    """A Python float that is an input of the traced program.

    With tensors it is promoted as a Python number (it never widens their element type), with other
    numbers it computes in float64. ``value`` is its value in the traced call, and ``sources`` are
    the inputs it was computed from (``None`` for a number that the program itself computes). Where
    Python reads the value, its sources are guarded on: by the outcome of a comparison, or else by
    their values.
    """

    __slots__ = ("__weakref__", "kind", "sources", "tensor", "value")
    __array_ufunc__ = None

    def __init__(
        self, tensor: Tensor, value: float | None = None, sources: tuple[Source, ...] | None = None
    ) -> None:
        self.tensor: Tensor = tensor
        self.value: float | None = value
        self.sources: tuple[Source, ...] | None = sources
        # As which type it is promoted.
        self.kind: type = float
        trace = functionalizing_trace()
        if trace is not None:
            trace.note_number(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float  # for isinstance() in the traced function

    def read(self) -> float:
        """Its value, which Python reads."""
        trace = functionalizing_trace()
        if self.value is None or self.sources is None:
            return float(self.tensor.array())
        if trace is not None:
            trace.guard_sources(self.sources)
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(float, name):
            raise AttributeError(f"'float' object has no attribute {name!r}")
        return getattr(self.read(), name)

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (self.read(),)

    def __neg__(self) -> object:
        return _combined("mul", self, -1.0, False)

    def __pos__(self) -> SymbolicNumber:
        return self


def _attach_arithmetic() -> None:
    for name, op in (
        ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("pow", "pow"),
    ):  # fmt: skip
        setattr(SymbolicNumber, f"__{name}__", _binary(op, swapped=False))
        setattr(SymbolicNumber, f"__r{name}__", _binary(op, swapped=True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(SymbolicNumber, f"__{name}__", _comparison(name))
    for name in (
        "bool", "float", "int", "hash", "repr", "str", "abs", "round", "trunc", "floor",
        "ceil", "floordiv", "rfloordiv", "mod", "rmod", "divmod", "rdivmod",
    ):  # fmt: skip
        setattr(SymbolicNumber, f"__{name}__", _reading(f"__{name}__"))


def _reading(method: str) -> Callable[..., object]:
    """A method of floats, on the value."""
    function = getattr(float, method)
    return lambda self, *args: function(self.read(), *args)


def _binary(op: str, swapped: bool) -> Callable[[SymbolicNumber, object], object]:
    return lambda self, other: _combined(op, self, other, swapped)


def _comparison(op: str) -> Callable[[SymbolicNumber, object], object]:
    return lambda self, other: _compared(op, self, other)


_attach_arithmetic()


class FunctionalizingTrace(Trace):
    """A trace that emits every op, and notes what its graph depends on besides tensors."""

    def __init__(self, parent: Trace | None) -> None:
        super().__init__(parent)
        self.functionalizer: FunctionalizingTrace | None = self
        # Tensors whose .grad was read or set, with its value before.
        self.grads: dict[int, tuple[Tensor, Tensor | None]] = {}
        # The run-time numbers by where they are read from: (container, key, part).
        self.numbers: dict[
            tuple[int, Any, int | None], tuple[Any, Any, int | None, SymbolicNumber]
        ] = {}
        # The numbers among them whose values Python has read, and outcomes of comparisons:
        # (source, predicate, expected).
        self.number_guards: list[tuple[Source, Callable[[float], object], object]] = []
        # The guards of the graph: (predicate, expected value, name).
        self.guards: list[tuple[Callable[[], object], Any, str]] = []
        # Those of them that are checked at every call; the others only if the members of one of
        # these collections have changed.
        self.per_call_guards: list[tuple[Callable[[], object], object, str]] = []
        self.watched_collections: list[Collection[object]] = []
        self.modules: dict[int, Any] = {}
        # The options of the optimizers that were stepped.
        self.groups: dict[int, dict[str, Any]] = {}
        self.read_storages: dict[int, Storage] = {}
        # Their versions when they were read.
        self.read_versions: list[tuple[Storage, int]] = []
        # Optimizer states before the step: (state, its entries, copies of these).
        self.states: dict[int, tuple[Any, list[tuple[Any, Any, Any]]]] = {}
        # The results of random equations that are emitted a second time.
        self.replayed_random: list[tuple[Var, ...]] = []
        # Whether numbers of computed tensors need no value until Python reads them.
        self.defers_items = False
        # The places that hold numbers of the trace, unless the function sets them.
        self.number_places: set[tuple[int, object]] = set()
        # Marks a number in a text that is only put out: (number, format, frame); None elsewhere.
        self.marks_text: Callable[[object, str, object], str | None] | None = None
        # Why the graph is valid for this call alone, if it is.
        self.once: str | None = None
        # The outside tensors of which Python has read whether they require grad, by id.
        self.flags_read: dict[int, Tensor] = {}
        # The tensors, by id, whose gradient was assigned.
        self.grads_set: set[int] = set()

    def emit(
        self,
        specialization: Specialization,
        args: Args,
        location: SourceLocation | None,
        layout: Any = None,
        no_grad: bool = False,
    ) -> tuple[Var, ...]:
        if self.replayed_random and specialization.op.random:
            return self.replayed_random.pop(0)
        return super().emit(specialization, args, location, layout, no_grad)

    def repeat(self, first: Sequence[Equation], act: Callable[[], object]) -> None:
        """Run the function that emitted the ``first`` equations again, with the same random
        numbers. Its other equations are reused, so that only its writes to the outside are new."""
        outer = self.replayed_random
        self.replayed_random = [e.outs for e in first if e.op.random]
        try:
            act()
        finally:
            self.replayed_random = outer

    def note_state(self, state: Any) -> None:
        """Note the state of an optimizer before this trace."""
        if id(state) not in self.states:
            entries = [(p, kept, _copy_of(kept)) for p, kept in state.items()]
            self.states[id(state)] = (state, entries)

    def restore_states(self) -> None:
        """Restore the states of optimizers after a trace that failed."""
        for state, entries in self.states.values():
            state.clear()
            for parameter, kept, before in entries:
                if isinstance(kept, dict):
                    kept.clear()
                    kept.update(before)
                state[parameter] = kept

    def note_grad(self, tensor: Tensor) -> None:
        """Note a gradient before this trace."""
        if not isinstance(tensor._storage.value, Var) or id(tensor._storage) in self.written:
            self.grads.setdefault(id(tensor), (tensor, tensor._grad))

    def note_grad_read(self, tensor: Tensor) -> None:
        """Python is about to read a gradient."""

    def add_guard(
        self,
        predicate: Callable[[], object],
        name: str,
        watched: list[Collection[object]] | None = None,
    ) -> Any:
        """Guard on the present value of a predicate, and return it.

        While the members of ``watched`` collections (lists, dictionaries for their values) are the
        same objects the guard is taken to hold.
        """
        value = predicate()
        entry = (predicate, value, name)
        self.guards.append(entry)
        if watched is None:
            self.per_call_guards.append(entry)
        else:
            self.watched_collections += watched
        return value

    def note_number(self, number: object) -> None:
        """A number of this trace was made."""

    def guard_sources(self, sources: Sequence[Source]) -> None:
        """Guard on the values of input numbers."""
        for source in sources:
            self.guard_number(source, exact_value)

    def guard_number(self, source: Source, predicate: Callable[[float], object]) -> object:
        """Guard on a predicate of an input number; returns its present value."""
        found = predicate(read_source(source))
        self.number_guards.append((source, predicate, found))
        return found

    def note_outside_read(self, storage: Storage) -> None:
        """Python reads elements of an outside tensor."""
        self.guard_version(storage)

    def varies(self, storage: Storage) -> bool:
        """Whether an outside storage may have other elements at each run, without a guard."""
        return False

    def read_data(self, tensor: Tensor) -> Any:
        """The number in a tensor as one that programs read from the data while they run; ``None``
        if the value has to be read otherwise."""
        return None

    def read_size(self, tensor: Tensor) -> int | None:
        """The integer in a tensor, which decides on a shape; ``None`` if the value has to be read
        otherwise."""
        return None

    def set_data(self, tensor: Tensor, value: Tensor) -> bool:
        """The memory of a tensor is about to be replaced by that of a value; whether this trace
        has done it."""
        return False

    def is_returned(self, frame: FrameType) -> bool:
        """Whether the traced function only returns what the call that a frame is in gives it."""
        return False

    def note_exact_read(self, number: PythonNumber) -> None:
        """Python reads the value of a number of this trace."""

    def guard_version(self, storage: Storage) -> None:
        """Guard on the version of a storage."""
        if id(storage) not in self.read_storages:
            self.read_storages[id(storage)] = storage
            name = "a tensor of which numbers were read (.item())"
            version = self.add_guard(lambda: storage.version, name)
            self.read_versions.append((storage, version))

    def final_grads(self) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
        """The tensors whose gradient was read or set, with its value before and now."""
        return [(tensor, before, tensor._grad) for tensor, before in self.grads.values()]

    def abandon(self) -> None:
        for tensor, before in self.grads.values():
            tensor._grad = before
        noted: tuple[dict[Any, Any], ...] = (self.grads, self.numbers, self.modules)
        for table in (*noted, self.groups, self.read_storages, self.states):
            table.clear()
        self.grads_set.clear()
        self.flags_read.clear()
        self.guards, self.per_call_guards, self.watched_collections = [], [], []
        self.read_versions = []
        self.number_guards = []
        self.functionalizer = None
        super().abandon()


def exact_value(number: float) -> str:
    """A number in a form that is equal for the same number only, the sign of zero included."""
    return number.hex()


def read_source(source: Source) -> float:
    """The present value of an input number."""
    container, key, part = source
    value = container[key]
    return float(value if part is None else value[part])


def _copy_of(kept: object) -> object:
    return dict(kept) if isinstance(kept, dict) else kept


def functionalizing_trace() -> FunctionalizingTrace | None:
    """The functionalizing trace, if one is running."""
    trace = STATE.get().trace
    return None if trace is None else trace.functionalizer


def note_grad_access(tensor: Tensor) -> None:
    """Note in a functionalizing trace that a gradient is about to be read or set."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_grad(tensor)


def note_grad_read(tensor: Tensor) -> None:
    """Note in a functionalizing trace that Python is about to read a gradient."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_grad(tensor)
        trace.note_grad_read(tensor)


def note_grad_set(tensor: Tensor) -> None:
    """Note in a functionalizing trace that a gradient is about to be assigned."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_grad(tensor)
        trace.grads_set.add(id(tensor))


def note_new_handle(tensor: Tensor) -> None:
    """Note in a functionalizing trace that a handle on an existing storage was made."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_handle(tensor)


def note_flag_read(tensor: Tensor) -> None:
    """Note in a functionalizing trace that Python reads whether a tensor requires grad."""
    trace = functionalizing_trace()
    if trace is not None and not isinstance(tensor._value, Var):
        trace.flags_read[id(tensor)] = tensor


def note_property_read(tensor: Tensor, name: str) -> None:
    """Note in a functionalizing trace that Python reads a property of an outside tensor on which
    there is no guard."""
    trace = functionalizing_trace()
    if trace is None:
        return
    storage = tensor._storage
    is_written = id(storage) in trace.written and id(storage) not in trace.local
    if is_written or not isinstance(storage.value, Var):
        trace.once = f"Python reads {name} of a tensor"


def data_number(tensor: Tensor) -> PythonNumber | None:
    """The number in a tensor as one that a program reads from the data while it runs; ``None`` if
    it has to be read otherwise."""
    trace = functionalizing_trace()
    return None if trace is None else trace.read_data(tensor)


def data_size(tensor: Tensor) -> int | None:
    """The integer in a tensor, on which a shape depends: programs read it from the data while they
    run, and are for one value. ``None`` if it has to be read otherwise."""
    trace = functionalizing_trace()
    return None if trace is None else trace.read_size(tensor)


def note_module(module: object) -> None:
    """Note in a functionalizing trace that a module is called."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.modules[id(module)] = module


def guard(predicate: Callable[[], object], name: str) -> Any:
    """The value of a predicate; while a program is traced, guarded on."""
    trace = functionalizing_trace()
    return predicate() if trace is None else trace.add_guard(predicate, name)


def concrete_item(tensor: Tensor) -> float:
    """The number in an outside tensor before the program runs, for a guard."""
    value = tensor._value
    if isinstance(value, Var) or isinstance(tensor._storage.value, Var):
        value = tensor.array()
    return float(value)


def note_state(state: object) -> None:
    """Note in a functionalizing trace that an optimizer with this state is about to be stepped."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_state(state)


def note_options(group: dict[str, object]) -> None:
    """Note in a functionalizing trace that an optimizer reads options of this group: those that are
    not run-time numbers are guarded on."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.groups[id(group)] = group


def mark_single_use(reason: str) -> None:
    """Note in a functionalizing trace that its graph is valid for this call alone."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.once = reason


def materialize_trace(what: str) -> None:
    """Have a functionalizing trace compute its values before an effect that it cannot express."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.materialize(what)


def note_outside_read(tensor: Tensor) -> None:
    """Note in a functionalizing trace that Python reads elements of an outside tensor: the program
    is valid while these are the same. What a function has read elements for has no plan."""
    state = STATE.get()
    if state.recorder is not None:
        state.recorder.failed = True
    trace = None if state.trace is None else state.trace.functionalizer
    if trace is not None and id(tensor._storage) not in trace.local:
        trace.note_outside_read(tensor._storage)
