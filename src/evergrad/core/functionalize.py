"""Functionalization: traces of programs that run again, with all effects as inputs and outputs.

An ordinary trace evaluates ops on outside tensors at once; a :class:`FunctionalizingTrace` emits
them too, so that parameters, optimizer state and running statistics are read and written each time
the graph runs. What Python decides while tracing (numbers, modes, which gradients exist) becomes a
run-time input or a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.source_location import user_line
from evergrad.core.state import STATE
from evergrad.core.trace import Equation, Trace, Var
from evergrad.errors import TraceError
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.op import Specialization
    from evergrad.core.source_location import SourceLocation
    from evergrad.core.storage import Storage
    from evergrad.core.tensor import Tensor

_combined: ExtensionPoint[[str, SymbolicNumber, Any, bool], Any] = ExtensionPoint(
    "number_arithmetic"
)
_compared: ExtensionPoint[[str, SymbolicNumber, Any], Any] = ExtensionPoint("number_comparison")


class SymbolicNumber:
    """A Python number whose value is known only when the traced program runs.

    With tensors it is promoted as a Python number (it never widens their element type), with other
    numbers it computes in float64. Reading its value while tracing is an error.
    """

    __slots__ = ("tensor",)
    __array_ufunc__ = None

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def refuse(self, *_: Any) -> Any:
        raise TraceError(
            "the value of a run-time number (a float given to a compiled function, or an option "
            "of an optimizer) was read while tracing; the program is to run with any value."
            f"\n  where: {user_line()}\n  fix: compute with it only (evergrad.where instead of "
            "`if`), or give it as a string or an int, which are constants of the program."
        )

    __bool__ = __float__ = __int__ = __index__ = __complex__ = refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __round__ = __abs__ = refuse
    __hash__ = object.__hash__

    def __neg__(self) -> Any:
        return _combined("mul", self, -1.0, False)

    def __pos__(self) -> SymbolicNumber:
        return self

    def __repr__(self) -> str:
        return "<a number known at run time>"


def _attach_arithmetic() -> None:
    for name, op in (
        ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("pow", "pow"),
    ):  # fmt: skip
        setattr(SymbolicNumber, f"__{name}__", _binary(op, swapped=False))
        setattr(SymbolicNumber, f"__r{name}__", _binary(op, swapped=True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(SymbolicNumber, f"__{name}__", _comparison(name))


def _binary(op: str, swapped: bool) -> Callable[[SymbolicNumber, Any], Any]:
    return lambda self, other: _combined(op, self, other, swapped)


def _comparison(op: str) -> Callable[[SymbolicNumber, Any], Any]:
    return lambda self, other: _compared(op, self, other)


_attach_arithmetic()


class FunctionalizingTrace(Trace):
    """A trace that emits every op, and notes what its graph depends on besides tensors."""

    def __init__(self, parent: Trace | None) -> None:
        super().__init__(parent)
        self.functionalizer = self
        # Tensors whose .grad was read or set, with its value before.
        self.grads: dict[int, tuple[Tensor, Tensor | None]] = {}
        # The run-time numbers by where they are read from: (container, key, part).
        self.numbers: dict[
            tuple[int, Any, int | None], tuple[Any, Any, int | None, SymbolicNumber]
        ] = {}
        # Their values while tracing.
        self.seen: dict[int, float] = {}
        # The guards of the graph: (predicate, expected value, name).
        self.guards: list[tuple[Callable[[], Any], Any, str]] = []
        # Those of them that are checked at every call; the others only if the members of one of
        # these collections have changed.
        self.per_call_guards: list[tuple[Callable[[], Any], Any, str]] = []
        self.watched_collections: list[Collection[Any]] = []
        self.modules: dict[int, Any] = {}
        # The options of the optimizers that were stepped.
        self.groups: dict[int, dict[str, Any]] = {}
        self.read_storages: dict[int, Storage] = {}
        # Optimizer states before the step: (state, its entries, copies of these).
        self.states: dict[int, tuple[Any, list[tuple[Any, Any, Any]]]] = {}
        # The results of random equations that are emitted a second time.
        self.replayed_random: list[tuple[Var, ...]] = []
        # Why the graph is valid for this call alone, if it is.
        self.once: str | None = None

    def emit(
        self,
        specialization: Specialization,
        args: tuple[Any, ...],
        location: SourceLocation | None,
        layout: Any = None,
        no_grad: bool = False,
    ) -> tuple[Var, ...]:
        if self.replayed_random and specialization.op.random:
            return self.replayed_random.pop(0)
        return super().emit(specialization, args, location, layout, no_grad)

    def repeat(self, first: Sequence[Equation], act: Callable[[], Any]) -> None:
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

    def add_guard(
        self, predicate: Callable[[], Any], name: str, watched: list[Collection[Any]] | None = None
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

    def guard_version(self, storage: Storage) -> None:
        """Guard on the version of a storage."""
        if id(storage) not in self.read_storages:
            self.read_storages[id(storage)] = storage
            self.add_guard(lambda: storage.version, "a tensor of which numbers were read (.item())")

    def final_grads(self) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
        """The tensors whose gradient was read or set, with its value before and now."""
        return [(tensor, before, tensor._grad) for tensor, before in self.grads.values()]

    def abandon(self) -> None:
        for tensor, before in self.grads.values():
            tensor._grad = before
        noted: tuple[dict[Any, Any], ...] = (self.grads, self.numbers, self.seen, self.modules)
        for table in (*noted, self.groups, self.read_storages, self.states):
            table.clear()
        self.guards, self.per_call_guards, self.watched_collections = [], [], []
        self.functionalizer = None
        super().abandon()


def _copy_of(kept: Any) -> Any:
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


def note_module(module: Any) -> None:
    """Note in a functionalizing trace that a module is called."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.modules[id(module)] = module


def guard(predicate: Callable[[], bool], name: str) -> bool:
    """The value of a predicate; while a program is traced, guarded on."""
    trace = functionalizing_trace()
    return predicate() if trace is None else bool(trace.add_guard(predicate, name))


def concrete_item(tensor: Tensor) -> float:
    """The number in an outside tensor before the program runs, for a guard."""
    value = tensor._value
    if isinstance(value, Var):
        raise TraceError(
            "what a compiled program does depends on a number that it computes itself (an "
            "optimizer stepped twice?).\n  fix: compile a function that steps once."
        )
    return float(value)


def note_state(state: Any) -> None:
    """Note in a functionalizing trace that an optimizer with this state is about to be stepped."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_state(state)


def note_options(group: dict[str, Any]) -> None:
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


def refuse_while_functionalizing(what: str) -> None:
    """Raise in a functionalizing trace: the effect would happen only while tracing."""
    if functionalizing_trace() is not None:
        raise TraceError(
            f"{what} was called inside a compiled function; it would happen only while tracing.\n"
            "  fix: call it outside of the function."
        )


def refuse_outside_read(tensor: Tensor) -> None:
    """Raise if Python reads elements of a tensor that the traced program reads: it is to run with
    other elements. Elements of other outside tensors are guarded on by version."""
    trace = functionalizing_trace()
    if trace is None or id(tensor._storage) in trace.local:
        return
    storage = tensor._storage
    if id(storage) not in trace._read:
        trace.guard_version(storage)
    else:
        raise TraceError(
            "the numbers inside a tensor that the compiled program reads (.item(), .tolist(), "
            "bool(), ...) were read while tracing; the program would keep the present numbers."
            f"\n  where: {user_line()}\n  fix: keep the computation in tensors, or take the number "
            "outside of the function."
        )
