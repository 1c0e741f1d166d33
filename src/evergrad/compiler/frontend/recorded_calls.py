"""Calls of impure functions as parts of a program: repeated at every call of it, in their order.

While a call is traced, the places of impure functions, iterators and sources of random numbers
(:mod:`.impure`) hold stand-ins, which make the call and record it. Where the function uses what is
returned, the program makes the call before its run: a number is a run-time number, a tensor an
argument, anything else a guard. Guards and calls are checked and made in the order in which the
function did, so that a guard which fails has made exactly the calls that Python would have made;
these results are used by the next program that is tried, or by Python (:class:`CallLog`). What only
has output (``print``, ``warnings.warn``) is called after the run.
"""

from __future__ import annotations

import math
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend import impure
from evergrad.compiler.frontend.append_recorder import AppendRecorder
from evergrad.compiler.frontend.arguments import PythonCall
from evergrad.compiler.frontend.call_log import (
    Arguments,
    CallLog,
    Performed,
    RecordedCall,
    RecordedOutput,
)
from evergrad.compiler.frontend.call_stand_ins import RecordedIterator, RecordedSource, stand_in
from evergrad.compiler.frontend.impure import is_stand_in
from evergrad.compiler.frontend.number_functions import BUILTINS, OF_SCHEDULES, NumberFunction
from evergrad.compiler.frontend.places import StateGuard, is_plain, read_slot
from evergrad.compiler.frontend.slots import ValueSlot, is_writable, slot_key
from evergrad.core.functionalize import SymbolicNumber, functionalizing_trace
from evergrad.core.python_numbers import (
    DeferredNumber,
    Expression,
    PythonNumber,
    exactly,
    is_input,
    value_of,
)
from evergrad.core.state import using
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_unflatten

if TYPE_CHECKING:
    from evergrad.compiler.frontend.number_slots import Installed
    from evergrad.compiler.frontend.python_state import PythonState
    from evergrad.compiler.frontend.session import Session


class CallRecorder:
    """The impure calls of one session. ``refusal`` is why they are no part of a program."""

    def __init__(self, session: Session | None, state: PythonState, log: CallLog) -> None:
        """Without a session the results that are known are used again, and nothing is recorded."""
        self.session = session
        self.state = state
        self.log = log
        self.calls: list[RecordedCall] = []
        self.outputs: list[RecordedOutput] = []
        self.refusal: str | None = None
        # Which of the calls with output were made before; and those that wait for their values.
        self.outputs_made: list[bool] = []
        self.deferred: list[tuple[list[Any], dict[str, Any]]] = []
        self.installed: Installed | None = None
        self.filters = warnings.filters
        self.show = _show()
        # The containers that calls have read.
        self.read: list[Any] = []
        self.stand_ins: list[weakref.ref[Any]] = []
        self.slots: list[tuple[ValueSlot, Any]] = []
        # The names among the slots that were not there before.
        self.added: list[tuple[Any, Any]] = []
        log.rewind()

    def install(self) -> None:
        """Let the places of impure functions and objects hold stand-ins."""
        made: dict[int, Any] = {}
        for guard in self.state.replayable:
            if not is_writable(guard, self.state):
                self.state.give_up(f"{guard.name} is called")
                continue
            slot = ValueSlot(guard, guard.key, guard.value, self.state)
            value = made.setdefault(id(guard.value), stand_in(guard.value, self))
            slot.write(value)
            self.slots.append((slot, value))

    def install_number_functions(self) -> None:
        """Let the names of functions of numbers refer to stand-ins."""
        for guard in self.state.number_functions:
            if is_writable(guard, self.state):
                self.put(guard.place, guard.key, guard.value)
        if self.state.has_schedule:
            for name in OF_SCHEDULES:
                self.put(vars(math), name, getattr(math, name))
        for table, name in self.state.builtin_calls():
            self.put(table, name, BUILTINS[name], is_new=True)

    def put(self, place: Any, key: Any, function: Any, is_new: bool = False) -> None:
        if is_stand_in(read_slot(place, key)):
            return
        slot = ValueSlot(StateGuard(str(key), place, key, function), key, function, self.state)
        value = NumberFunction(function, self)
        slot.write(value)
        self.slots.append((slot, value))
        if is_new:
            self.added.append((place, key))

    def remove(self) -> None:
        """Let the places hold what they held, unless the function has put anything else there."""
        slots, self.slots = self.slots, []
        added = {(id(place), key) for place, key in self.added}
        for slot, value in slots:
            value.recorder = None
            if slot.read() is value:
                slot.write(value.held)
                if (id(slot.place), slot.key) in added:
                    del slot.place[slot.key]
        del slots

    def discard(self) -> None:
        """Drop what was recorded: the call is no program."""
        self.calls, self.outputs, self.deferred = [], [], []

    def keeps_stand_ins(self) -> bool:
        """Whether Python keeps a stand-in, after they were removed."""
        return any(reference() is not None for reference in self.stand_ins)

    def is_recording(self) -> bool:
        return functionalizing_trace() is self.session

    def refuse(self, reason: str, is_lasting: bool = True) -> None:
        """Note that this call is no program; unless that is lasting, the next one may be."""
        if self.refusal is None:
            self.refusal = reason
            if self.session is not None and not is_lasting:
                self.session.is_passing = True

    def check(self) -> None:
        """Refuse, at the end of the function, if anything happened that was not recorded."""
        changed = {id(guard.place) for guard in self.state.changed()} if self.read else set()
        if any(id(container) in changed for container in self.read):
            self.refuse("what is drawn from is changed by the function itself")

    # -- calls whose results are used -------------------------------------------------------------

    def call(
        self, function: Any, args: Sequence[Any], kwargs: dict[str, Any],
        convert: Callable[[Any], Any] | None = None,
    ) -> Any:  # fmt: skip
        """Make a call and record it; returns what the traced function gets."""
        name = getattr(function, "__name__", "next")
        args, kwargs = self.plain(args), dict(zip(kwargs, self.plain(kwargs.values()), strict=True))
        if not all(map(self.is_constant, (*args, *kwargs.values()))):
            self.refuse(f"{name}() is called with what differs from call to call")
        if self.session is not None and impure.is_clock(function) and self.session.equations:
            self.refuse(f"{name}() is called after operations")
        is_draw = impure.is_draw(function)
        if is_draw and self.state.drew_random_numbers():
            self.refuse("random numbers of Python or NumPy are drawn by a library")
        self.read += [held for held in (*args, *kwargs.values()) if isinstance(held, (list, dict))]
        arguments = Arguments(args, kwargs)
        with using(trace=None):
            made = self.log.perform(function, arguments.args, arguments.kwargs)
        if is_draw:
            self.state.note_random_states()
        if self.refusal is None and type(made.error) not in (type(None), StopIteration):
            self.refuse(f"{name}() raises an exception")
        if self.refusal is None:
            fresh = is_draw and name in impure.RETURNS_NEW_LIST
            found = RecordedCall(self.log, function, arguments, made, fresh, convert)
            if all(map(self.is_usable, found.leaves)):
                return self.record(found, made)
            self.refuse(f"{name}() returns a {type(made.value).__name__}")
        if made.error is not None:
            raise made.error
        return made.value if convert is None else convert(made.value)

    def plain(self, values: Any) -> list[Any]:
        """Arguments without stand-ins and symbolic numbers, which are read."""
        found = []
        for value in values:
            if type(value) in (RecordedIterator, RecordedSource):
                self.refuse("an iterator is an argument of an impure function")
                value = value.held
            elif type(value) is AppendRecorder:
                value = value.container()
            elif type(value) in (SymbolicNumber, DeferredNumber):
                value = value.read()
            found.append(value)
        return found

    def is_constant(self, value: Any) -> bool:
        """Whether an argument is the same at each call for which the guards hold."""
        if type(value) is PythonNumber or is_plain(value) or id(value) in self.state.seen:
            return True
        if type(value) in (list, tuple):
            return all(is_plain(member) or id(member) in self.state.seen for member in value)
        return False

    def is_usable(self, leaf: Any) -> bool:
        if isinstance(leaf, Tensor):
            return slot_key(leaf)[0] is not None
        if type(leaf) in (PythonNumber, SymbolicNumber, DeferredNumber):
            return False  # that the function has put into a container
        return is_plain(leaf) or id(leaf) in self.state.seen

    def record(self, found: RecordedCall, made: Performed) -> Any:
        assert self.session is not None
        table = self.session.expressions
        number = frozenset([("call", len(self.calls))])
        self.calls.append(found)
        table.guard(found.replay, True)
        if made.error is not None:
            raise made.error
        leaves: list[Any] = []
        for index, (leaf, key) in enumerate(zip(found.leaves, found.keys, strict=True)):
            if key in (int, float):
                leaf = PythonNumber(self.session, table, leaf, _leaf_of(found, index), number)
            elif leaf is not None and not isinstance(leaf, Tensor):
                table.exact.append((exactly(leaf) if is_plain(leaf) else id(leaf), number))
            leaves.append(leaf)
        return tree_unflatten(leaves, found.spec)

    def flush_recorders(self, iterator: Any) -> None:
        """Let an iterator see what was appended to the containers that it iterates over."""
        containers = impure.containers_of(iterator) or []
        self.read += containers
        for recorder in () if self.installed is None else self.installed.recorders.values():
            if any(recorder.held is container for container in containers):
                recorder.container()

    # -- calls with output ------------------------------------------------------------------------

    def output(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Print, and record it."""
        if self.is_made():
            return
        if self.refusal is not None:
            self.flush_outputs()
        args = list(map(_as_now, args))
        is_deferred = bool(self.deferred) or any(map(_is_computed, args))
        plain = [v if _is_computed(v) else _shown(v) for v in args]
        if not all(map(_is_printable, (*plain, *kwargs.values()))):
            self.refuse(f"print() is called with a {_kind_of(plain)}")
        elif kwargs.get("file") is not None:
            self.refuse("print() is called with a file")
        elif not _stdout_is_plain():
            self.refuse("print() writes to an object of the user's", is_lasting=False)
        else:
            made = RecordedOutput(impure.PRINT, args, kwargs, _stdout_is_plain)
            made.is_deferred = is_deferred and self.refusal is None
            self.outputs.append(made)
            if made.is_deferred:
                self.deferred.append((plain, kwargs))
                return
        self.flush_outputs()
        impure.PRINT(*map(_shown, plain), **kwargs)

    def flush_outputs(self) -> None:
        """Print what the call has printed so far, before the values were computed."""
        deferred, self.deferred = self.deferred, []
        for args, kwargs in deferred:
            self.refuse("print() is called with a value that Python reads")
            impure.PRINT(*map(_shown, args), **kwargs)

    def is_made(self) -> bool:
        """Whether the next call with output was made before."""
        return bool(self.outputs_made) and self.outputs_made.pop(0)

    def warn(
        self, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None,
        **others: Any,
    ) -> None:  # fmt: skip
        """Warn, and record it with the place that it is attributed to."""
        if self.is_made():
            return
        kind = UserWarning if category is None else category
        frame = impure.frame_of_warning(stacklevel, _ROOT)
        is_local = warnings.filters is not self.filters
        if type(message) is not str or source is not None or others or not isinstance(kind, type):
            self.refuse("warn() is called with what is no text")
        elif is_local:
            action = impure.action_of(kind, warnings.filters)
            if action != "ignore" and (action != "always" or _show() == self.show):
                self.refuse("warn() is called under filters of the function")
        elif frame is None:
            self.refuse("warn() names the caller of the function")
        elif _show() != self.show or not _shows_plainly():
            self.refuse("warn() calls a function of the user's", is_lasting=False)
        else:
            names = frame.f_globals
            place = (frame.f_code.co_filename, frame.f_lineno, names.get("__name__") or "<string>")
            registry = names.setdefault("__warningregistry__", {})
            given = (message, kind, *place, registry)
            del frame

            def is_ready() -> bool:
                return impure.action_of(kind, warnings.filters) != "error" and _shows_plainly()

            if not is_ready():
                self.refuse("warn() may raise an exception", is_lasting=False)
            else:
                function = _warning(given)
                self.outputs.append(RecordedOutput(function, (), {}, is_ready))
        impure.WARN(message, category, stacklevel + 2, source, **others)


def _warning(given: tuple[Any, ...]) -> Callable[[], None]:
    return lambda: warnings.warn_explicit(*given)


def _leaf_of(call: RecordedCall, index: int) -> Expression:
    return lambda: call.leaves[index]


def _is_printable(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_printable, value))
    return is_plain(value) or (type(value) is Tensor and _is_computed(value))


def _shown(value: Any) -> Any:
    """What is printed of a number; inputs of the program are not read by that."""
    if type(value) is SymbolicNumber:
        return value.value if is_input(value) else value.read()
    return value.read() if type(value) is DeferredNumber else value_of(value)


def _is_computed(value: Any) -> bool:
    """Whether a number or a tensor is computed by the program."""
    if type(value) is Tensor:
        return not value.requires_grad
    if type(value) is DeferredNumber:
        return True
    return type(value) is SymbolicNumber and not is_input(value)


def _as_now(value: Any) -> Any:
    """A tensor that later writes do not reach; other values as they are."""
    if type(value) is not Tensor or value.requires_grad or value._value is NO_ARRAY:
        return value
    with using(grad=False, no_grad=True):
        return value.clone()


def _kind_of(values: Sequence[Any]) -> str:
    return next((type(v).__name__ for v in values if not _is_printable(v)), "value")


def _stdout_is_plain() -> bool:
    return impure.stream_is_plain(sys.stdout)


def _show() -> Any:
    return warnings.showwarning, getattr(warnings, "_showwarnmsg_impl", None)


def _shows_plainly() -> bool:
    """Whether a warning that is shown runs no code of the user's: it is written to the standard
    error, or put into a list."""
    module: Any = warnings
    if warnings.showwarning is not module._showwarning_orig:
        return False
    shows = module._showwarnmsg_impl
    if isinstance(shows, FunctionType):
        return shows.__module__ == "warnings" and impure.stream_is_plain(sys.stderr)
    return type(shows.__self__) is list


_ROOT = PythonCall.on_session.__code__
