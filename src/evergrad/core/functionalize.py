"""Traces of programs that run again: everything they touch is lifted out of the first run.

An ordinary trace lets ops on tensors of the outside happen at once; a :class:`LiftingTrace` takes
them too, so that parameters, optimizer state and running statistics are read and written each time
the graph runs. What Python itself decides while tracing (numbers, modes, which gradients exist) is
noted as a run-time input or as a condition under which the graph holds.
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
    """A Python number that is known only when the traced program runs.

    It meets tensors as a Python number does (it never widens their element type), and other numbers
    in float64. Asking for its value while tracing is an error.
    """

    __slots__ = ("tensor",)
    __array_ufunc__ = None

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def refuse(self, *_: Any) -> Any:
        raise TraceError(
            "the value of a run-time number (a float given to a compiled function, or an option "
            "of an optimizer) was asked for while tracing; the program is to run with any value."
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
    """A trace that takes every op, and notes what its graph depends on besides tensors."""

    def __init__(self, parent: Trace | None) -> None:
        super().__init__(parent)
        self.functionalizer = self
        # Tensors whose .grad was looked at or set, with what it was before.
        self.grads: dict[int, tuple[Tensor, Tensor | None]] = {}
        # Where numbers are read from when the program runs: (container, key, part) to a value.
        self.numbers: dict[
            tuple[int, Any, int | None], tuple[Any, Any, int | None, SymbolicNumber]
        ] = {}
        # What each of them was when it was first asked for.
        self.seen: dict[int, float] = {}
        # What must hold for the graph to be used again: (question, answer, name).
        self.guards: list[tuple[Callable[[], Any], Any, str]] = []
        # Those of them that are asked at every call, and collections that tell by their members
        # whether the others have to be asked.
        self.per_call_guards: list[tuple[Callable[[], Any], Any, str]] = []
        self.watched_collections: list[Collection[Any]] = []
        self.modules: dict[int, Any] = {}
        # The options of optimizers that were stepped.
        self.groups: dict[int, dict[str, Any]] = {}
        self.read_storages: dict[int, Storage] = {}
        # What optimizers kept before they were stepped: (state, its entries, copies of these).
        self.states: dict[int, tuple[Any, list[tuple[Any, Any, Any]]]] = {}
        # What random equations give that are written for the second time.
        self.replayed_random: list[tuple[Var, ...]] = []
        # Why the graph holds for this call alone, if it does.
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
        """Do again what has written the ``first`` equations, with the same random numbers. What it
        computes is there already, so that only what it writes to the outside is new."""
        outer = self.replayed_random
        self.replayed_random = [e.outs for e in first if e.op.random]
        try:
            act()
        finally:
            self.replayed_random = outer

    def note_state(self, state: Any) -> None:
        """Remember what an optimizer keeps for its parameters as it was before this trace."""
        if id(state) not in self.states:
            entries = [(p, kept, _copy_of(kept)) for p, kept in state.items()]
            self.states[id(state)] = (state, entries)

    def restore_states(self) -> None:
        """Let optimizers keep what they kept before, after a trace that came to nothing."""
        for state, entries in self.states.values():
            state.clear()
            for parameter, kept, before in entries:
                if isinstance(kept, dict):
                    kept.clear()
                    kept.update(before)
                state[parameter] = kept

    def note_grad(self, tensor: Tensor) -> None:
        """Remember a gradient as it was before this trace."""
        if not isinstance(tensor._storage.value, Var) or id(tensor._storage) in self.written:
            self.grads.setdefault(id(tensor), (tensor, tensor._grad))

    def add_guard(
        self, question: Callable[[], Any], name: str, watched: list[Collection[Any]] | None = None
    ) -> Any:
        """Note that the graph holds only while the question has its present answer; gives that.

        While the members of ``watched`` collections (lists, dictionaries for their values) are the
        same objects the answer is taken to be the same.
        """
        answer = question()
        condition = (question, answer, name)
        self.guards.append(condition)
        if watched is None:
            self.per_call_guards.append(condition)
        else:
            self.watched_collections += watched
        return answer

    def guard_version(self, storage: Storage) -> None:
        """Note that the graph holds only while nobody writes to a storage."""
        if id(storage) not in self.read_storages:
            self.read_storages[id(storage)] = storage
            self.add_guard(lambda: storage.version, "a tensor of which numbers were read (.item())")

    def final_grads(self) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
        """The tensors whose gradient was looked at: what it was, and what it is now."""
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
    """The trace that takes everything, if one is running."""
    trace = STATE.get().trace
    return None if trace is None else trace.functionalizer


def note_grad_access(tensor: Tensor) -> None:
    """Tell a running lifting trace that a gradient is about to be looked at or set."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_grad(tensor)


def note_module(module: Any) -> None:
    """Tell a running lifting trace that a module is being called."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.modules[id(module)] = module


def guard(question: Callable[[], bool], name: str) -> bool:
    """The answer to a question on which the program depends; a condition while one is traced."""
    trace = functionalizing_trace()
    return question() if trace is None else bool(trace.add_guard(question, name))


def concrete_item(tensor: Tensor) -> float:
    """The number in a tensor of the outside as it is before the program runs, for a question."""
    value = tensor._value
    if isinstance(value, Var):
        raise TraceError(
            "what a compiled program does depends on a number that it computes itself (an "
            "optimizer stepped twice?).\n  fix: compile a function that steps once."
        )
    return float(value)


def note_state(state: Any) -> None:
    """Tell a running lifting trace that an optimizer with this state is about to be stepped."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.note_state(state)


def note_options(group: dict[str, Any]) -> None:
    """Tell a running lifting trace that an optimizer reads options of this group: what it does not
    read at run time must stay as it is."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.groups[id(group)] = group


def mark_single_use(reason: str) -> None:
    """Tell a running lifting trace that its graph holds for this call alone."""
    trace = functionalizing_trace()
    if trace is not None:
        trace.once = reason


def refuse_while_functionalizing(what: str) -> None:
    """Raise if a program is being traced that is to run again: Python would do this only now."""
    if functionalizing_trace() is not None:
        raise TraceError(
            f"{what} was called inside a compiled function; it would happen only while tracing.\n"
            "  fix: call it outside of the function."
        )


def refuse_outside_read(tensor: Tensor) -> None:
    """Raise if the elements of a tensor that a program reads are asked for while it is traced: it
    is to run with other elements. Those of another outside tensor become a condition."""
    trace = functionalizing_trace()
    if trace is None or id(tensor._storage) in trace.local:
        return
    storage = tensor._storage
    if id(storage) not in trace._read:
        trace.guard_version(storage)
    else:
        raise TraceError(
            "the numbers inside a tensor that the compiled program reads (.item(), .tolist(), "
            "bool(), ...) were asked for while tracing; the program would keep today's numbers."
            f"\n  where: {user_line()}\n  fix: keep the computation in tensors, or take the number "
            "outside of the function."
        )
