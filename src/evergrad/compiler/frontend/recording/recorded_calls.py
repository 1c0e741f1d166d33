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

import functools
import math
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.arguments.signature import PythonCall
from evergrad.compiler.frontend.numbers.number_functions import (
    BUILTINS,
    OF_SCHEDULES,
    NumberFunction,
)
from evergrad.compiler.frontend.recording import impure
from evergrad.compiler.frontend.recording.append_recorder import AppendRecorder
from evergrad.compiler.frontend.recording.call_log import (
    Arguments,
    CallLog,
    Performed,
    RecordedCall,
    RecordedOutput,
)
from evergrad.compiler.frontend.recording.call_stand_ins import (
    LEVELS,
    RecordedFunction,
    RecordedIterator,
    RecordedLogger,
    RecordedSource,
    RecordedStream,
    RecordedWarn,
    stand_in,
)
from evergrad.compiler.frontend.recording.formatted_texts import FormattedText, Marks, has_mark
from evergrad.compiler.frontend.recording.generator_calls import (
    conflict,
    has_drawn,
    reaches_captured,
)
from evergrad.compiler.frontend.recording.impure import is_stand_in
from evergrad.compiler.frontend.recording.text_sinks import found_at, sink_of
from evergrad.compiler.frontend.state.places import StateGuard, is_plain, read_slot
from evergrad.compiler.frontend.state.slots import ValueSlot, is_writable, slot_key
from evergrad.core.functionalize import SymbolicNumber, functionalizing_trace
from evergrad.core.python_numbers import (
    LATE,
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
    from evergrad.compiler.frontend.numbers.number_slots import Installed
    from evergrad.compiler.frontend.session import Session
    from evergrad.compiler.frontend.state.python_state import PythonState
    from evergrad.core.types import AnyFunction, Kwargs, Leaves


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
        self.deferred: list[tuple[Any, Leaves, dict[str, Any]]] = []
        self.marks = Marks()
        self.installed: Installed | None = None
        self.filters = warnings.filters
        self.show = _show()
        # The containers that calls have read.
        self.read: Leaves = []
        self.stand_ins: list[weakref.ref[object]] = []
        self.slots: list[tuple[ValueSlot, Any]] = []
        # The names among the slots that were not there before.
        self.added: list[tuple[object, object]] = []
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

    def put(self, place: object, key: object, function: object, is_new: bool = False) -> None:
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
            found = slot.read()
            if found is value:
                slot.write(value.held)
            # Where the function has raised, the stand-in is replaced already.
            is_own = found is value or found is value.held
            if is_own and (id(slot.place), slot.key) in added:
                del slot.place[slot.key]
        del slots

    def discard(self) -> None:
        """Drop what was recorded: the call is no program."""
        self.calls, self.outputs, self.deferred, self.marks = [], [], [], Marks()

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

    def identity(self, value: Any) -> int:
        """``id()`` of an object: the same at each call only if that is guarded on by identity."""
        state = self.state
        held = value.held if is_stand_in(value) or type(value) is AppendRecorder else value
        is_argument = any(held is argument for argument in state.argument_tensors())
        is_known = state.seen.get(id(held)) is held and id(held) not in state.weakly_held
        if not is_known or is_plain(held) or is_argument:
            self.refuse("id() of an object that differs from call to call is used")
        return id(held)

    # -- calls whose results are used -------------------------------------------------------------

    def call(
        self, function: Any, args: Sequence[Any], kwargs: Kwargs,
        convert: AnyFunction | None = None,
    ) -> Any:  # fmt: skip
        """Make a call and record it; returns what the traced function gets."""
        name = getattr(function, "__name__", "next")
        args, kwargs = self.plain(args), dict(zip(kwargs, self.plain(kwargs.values()), strict=True))
        if not all(map(self.is_constant, (*args, *kwargs.values()))):
            self.refuse(f"{name}() is called with what differs from call to call")
        if self.session is not None and impure.is_clock(function) and self.session.equations:
            return self.late_call(function)
        if impure.is_reader(function) and (self.outputs or self.deferred):
            self.refuse(f"{name}() is called after output")
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
            is_resumed = made.is_fresh and impure.runs_code(getattr(function, "__self__", None))
            fresh = name in impure.RETURNS_NEW_LIST or is_resumed
            found = RecordedCall(self.log, function, arguments, made, fresh, convert)
            if all(map(self.is_usable, found.leaves)):
                return self.record(found, made)
            self.refuse(f"{name}() returns a {type(made.value).__name__}")
        if made.error is not None:
            raise made.error
        return made.value if convert is None else convert(made.value)

    def late_call(self, function: Any) -> object:
        """A clock that is read after operations: by a program after its run, in the order of the
        calls; what it returns may be stored and returned, not decided by."""
        value = function()
        if self.refusal is not None or self.session is None or self.log.has_more():
            self.refuse(f"{function.__name__}() is called after operations")
            return value
        table, held = self.session.expressions, [value]

        def read() -> None:
            held[0] = function()

        table.late_calls.append(read)
        table.reads_state = True
        return PythonNumber(self.session, table, value, lambda: held[0], frozenset([LATE]))

    def plain(self, values: Any) -> list[object]:
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

    def is_usable(self, leaf: object) -> bool:
        if isinstance(leaf, Tensor):
            return slot_key(leaf)[0] is not None
        if type(leaf) in (PythonNumber, SymbolicNumber, DeferredNumber):
            return False  # that the function has put into a container
        return is_plain(leaf) or id(leaf) in self.state.seen

    def record(self, found: RecordedCall, made: Performed) -> object:
        assert self.session is not None
        table = self.session.expressions
        number = frozenset([("call", len(self.calls))])
        self.calls.append(found)
        table.guard(found.replay, True)
        if made.error is not None:
            raise made.error
        leaves: Leaves = []
        for index, (leaf, key) in enumerate(zip(found.leaves, found.keys, strict=True)):
            if key in (int, float):
                leaf = PythonNumber(self.session, table, leaf, _leaf_of(found, index), number)
            elif leaf is not None and not isinstance(leaf, Tensor):
                table.exact.append((exactly(leaf) if is_plain(leaf) else id(leaf), number))
            leaves.append(leaf)
        return tree_unflatten(leaves, found.spec)

    def resume(self, iterator: object, function: object, *args: object) -> object:
        """The next member of an iterator, recorded."""
        self.flush_recorders(iterator)
        if impure.runs_code(iterator):
            self.check_generator(iterator)
        try:
            return self.call(function, args, {})
        finally:
            self.state.note_random_states()

    def check_generator(self, iterator: object) -> None:
        """Refuse if an iterator that runs code of the user's cannot be resumed before the run."""
        session, other = self.session, self.state.state_of(iterator)
        reason = conflict(self.state, other)
        if session is not None and has_drawn(session):
            reason = reason or "an iterator is resumed after random numbers were drawn"
        if reason is not None:
            self.refuse(reason)
            for recorder in () if self.installed is None else self.installed.recorders.values():
                recorder.container()
        if session is None or session.is_off or not session.equations:
            return
        if reason is not None or reaches_captured(session, other):
            session.materialize("an iterator is resumed")

    def flush_recorders(self, iterator: object) -> None:
        """Let an iterator see what was appended to the containers that it iterates over."""
        containers = impure.containers_of(iterator) or []
        self.read += containers
        for recorder in () if self.installed is None else self.installed.recorders.values():
            if any(recorder.held is container for container in containers):
                recorder.container()

    # -- calls with output ------------------------------------------------------------------------

    def output(self, args: Sequence[object], kwargs: dict[str, object]) -> None:
        """Print, and record it."""
        if self.is_made():
            return
        if self.refusal is not None:
            self.flush_outputs()
        is_ready: Callable[[], bool] = _stdout_is_plain
        stream, function = kwargs.get("file"), impure.PRINT
        if type(stream) is RecordedStream:
            held = stream.held
            function = _printing_to(held)
            kwargs = {key: option for key, option in kwargs.items() if key != "file"}
            is_ready = functools.partial(impure.is_writable_stream, held)
            if not is_ready():
                self.refuse("print() is called with a stream that cannot be written to")
        elif stream is not None:
            self.refuse("print() is called with a file")
        elif not _stdout_is_plain():
            self.refuse("print() writes to an object of the user's", is_lasting=False)
        options = [option for key, option in kwargs.items() if key != "file"]
        if not all(map(_is_printable, options)):
            self.refuse(f"print() is called with a {_kind_of(options)}")
        self.put_out(function, args, kwargs, is_ready)

    def write(self, stream: Any, text: Any) -> Any:
        """Write a text to a stream, and record it; returns its length, where that is known."""
        if self.is_made():
            return len(text)
        is_ready = functools.partial(impure.is_writable_stream, stream)
        if type(text) is not str or not is_ready():
            self.refuse("write() is called with what is no text")
        self.put_out(stream.write, (text,), {}, is_ready)
        return len(text)

    def log_record(self, logger: Any, level: Any, message: Any, *args: Any, **options: Any) -> None:
        """Log, and record it with the place that it is attributed to."""
        if self.is_made():
            return
        frame: Any = sys._getframe(1)
        place = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        del frame
        is_ready = functools.partial(impure.logs_plainly, logger)
        if options or type(level) is not int or type(message) is not str:
            self.refuse("a logger is called with options")
        elif not is_ready():
            self.refuse("a logger calls a function of the user's", is_lasting=False)
        if self.refusal is not None:
            self.flush_outputs()
            shown = [_shown(self.marks.decoded(arg)) for arg in (message, *args)]
            logger.log(level, *shown, **{**options, "stacklevel": options.get("stacklevel", 1) + 1})
            return
        self.put_out(_logging(logger, level, place), (message, *args), {}, is_ready)

    def refuse_use(self, reason: str) -> None:
        """Note that an object is used in a way that is not recorded: what was put out to it so far
        has to be there."""
        if self.is_recording():
            self.refuse(reason)
            self.flush_outputs()

    def put_out(
        self, function: Any, args: Sequence[object], kwargs: dict[str, object],
        is_ready: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Make a call with output, now or after the run, and record it."""
        args = [_as_now(self.marks.decoded(arg)) for arg in args]
        is_deferred = bool(self.deferred) or any(map(_is_computed, args))
        plain = [v if _is_computed(v) else _shown(v) for v in args]
        if not all(map(_is_printable, plain)):
            self.refuse(f"{function.__name__}() is called with a {_kind_of(plain)}")
        if self.refusal is None:
            made = RecordedOutput(function, args, kwargs, is_ready)
            made.is_deferred = is_deferred
            self.outputs.append(made)
            if made.is_deferred:
                self.deferred.append((function, plain, kwargs))
                return
        self.flush_outputs()
        function(*map(_shown, plain), **kwargs)

    def flush_outputs(self) -> None:
        """Put out what the call has put out so far, before the values were computed."""
        deferred, self.deferred = self.deferred, []
        for function, args, kwargs in deferred:
            self.refuse(f"{function.__name__}() is called with a value that Python reads")
            function(*map(_shown, args), **kwargs)

    def mark(self, number: object, spec: str, frame: Any) -> str | None:
        """The mark of a number in a text that is only put out; ``None`` elsewhere."""
        if has_mark(spec) or spec.endswith("c") or not self.is_recording():
            return None
        if self.refusal is not None or (type(number) is SymbolicNumber and is_input(number)):
            return None
        chain = sink_of(frame.f_code, frame.f_lasti)
        if chain is None:
            return None
        is_method = len(chain) > 2 and self.puts_out_by(found_at(chain[:-1], frame), chain[-1])
        if not (is_method or self.puts_out(found_at(chain, frame))):
            return None
        format(number.value if type(number) is PythonNumber else _one_like(number), spec)
        return self.marks.mark(number, spec)

    def puts_out(self, function: Any) -> bool:
        """Whether a function is one of those that put out texts for this session."""
        is_own = type(function) in (RecordedFunction, RecordedWarn)
        return is_own and function.recorder is self and impure.is_output(function.held)

    def puts_out_by(self, owner: Any, name: str) -> bool:
        """Whether a method of a stream or a logger puts out texts for this session."""
        is_stream = type(owner) is RecordedStream and name == "write"
        is_logger = type(owner) is RecordedLogger and name in LEVELS
        return (is_stream or is_logger) and owner.recorder is self

    def is_made(self) -> bool:
        """Whether the next call with output was made before."""
        return bool(self.outputs_made) and self.outputs_made.pop(0)

    def warn(
        self, message: Any, category: object = None, stacklevel: int = 1, source: Any = None,
        **others: object,
    ) -> None:  # fmt: skip
        """Warn, and record it with the place that it is attributed to."""
        if self.is_made():
            return
        message = self.marks.decoded(message)
        kind = UserWarning if category is None else category
        frame = impure.frame_of_warning(stacklevel, _ROOT)
        is_local = warnings.filters is not self.filters
        is_text = type(message) in (str, FormattedText)
        if not is_text or source is not None or others or not isinstance(kind, type):
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
            given = (kind, *place, registry)
            del frame

            def is_ready() -> bool:
                return impure.action_of(kind, warnings.filters) != "error" and _shows_plainly()

            if not is_ready():
                self.refuse("warn() may raise an exception", is_lasting=False)
            else:
                self.put_out(_warning(given), (message,), {}, is_ready)
                return
        message = _shown(message) if type(message) is FormattedText else message
        impure.WARN(message, category, stacklevel + 2, source, **others)


def _printing_to(stream: Any) -> Any:
    def print(*args: Any, **options: Any) -> None:
        impure.PRINT(*args, file=stream, **options)

    return print


def _logging(logger: Any, level: int, place: tuple[str, int, str]) -> Callable[..., None]:
    file, line, function = place

    def log(message: str, *args: Any) -> None:
        if logger.isEnabledFor(level):
            given = (logger.name, level, file, line, message, args, None, function)
            logger.handle(logger.makeRecord(*given))

    return log


def _warning(given: tuple[Any, ...]) -> Callable[[str], None]:
    def warn(message: str) -> None:
        warnings.warn_explicit(message, *given)

    return warn


def _leaf_of(call: RecordedCall, index: int) -> Expression:
    return lambda: call.leaves[index]


def _is_printable(value: Any) -> bool:
    if type(value) is FormattedText or _is_computed(value):
        return True
    if type(value) in (list, tuple):
        return all(map(_is_printable, value))
    return is_plain(value)


def _one_like(number: object) -> object:
    return number.kind(1) if type(number) is DeferredNumber else 1.0


def _shown(value: Any) -> object:
    """What is printed of a number; inputs of the program are not read by that."""
    if type(value) is FormattedText:
        return value.with_values(_shown)
    if type(value) is SymbolicNumber:
        return value.value if is_input(value) else value.read()
    return value.read() if type(value) is DeferredNumber else value_of(value)


def _is_computed(value: object) -> bool:
    """Whether a number, a tensor or a text with such is computed by the program."""
    if type(value) is FormattedText:
        return any(map(_is_computed, value.numbers))
    if type(value) is Tensor:
        return not value.requires_grad
    if type(value) is DeferredNumber:
        return True
    return type(value) is SymbolicNumber and not is_input(value)


def _as_now(value: Any) -> object:
    """A tensor that later writes do not reach; other values as they are."""
    if type(value) is not Tensor or value.requires_grad or value._value is NO_ARRAY:
        return value
    with using(grad=False, no_grad=True):
        return value.clone()


def _kind_of(values: Sequence[object]) -> str:
    return next((type(v).__name__ for v in values if not _is_printable(v)), "value")


def _stdout_is_plain() -> bool:
    return impure.stream_is_plain(sys.stdout)


def _show() -> object:
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
