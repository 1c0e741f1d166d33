"""``evergrad.compile``: a Python function traced at its first call and run as native code."""

from __future__ import annotations

import functools
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, NamedTuple

from evergrad.compiler.cache.program_lru import ProgramLRU
from evergrad.compiler.cache.signature_churn import SignatureChurn, leaf_paths
from evergrad.compiler.frontend.arguments import ARGUMENT, PythonCall
from evergrad.compiler.frontend.call_log import CallLog
from evergrad.compiler.frontend.capture import Captured, capture
from evergrad.compiler.frontend.find_effects import undo_changes
from evergrad.compiler.frontend.number_slots import NumberSlots
from evergrad.compiler.frontend.places import plain_numbers
from evergrad.compiler.frontend.python_state import PythonState
from evergrad.compiler.frontend.revalidation import difference
from evergrad.compiler.frontend.segments import Segments
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.compiler.frontend.variant import Call, Variant
from evergrad.compiler.frontend.varying_numbers import VaryingNumbers
from evergrad.compiler.frontend.varying_places import varied_slots
from evergrad.compiler.native.target import require_llvm
from evergrad.compiler.runtime import call_path
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.compiler.runtime.call_path import NOT_HANDLED, FastPath, make_fast_path
from evergrad.compiler.runtime.gc_pause import gc_paused
from evergrad.core import fork
from evergrad.core.state import STATE, State, set_mode, using
from evergrad.core.tensor import Tensor
from evergrad.errors import AssumptionError, TraceError
from evergrad.extension import ExtensionPoint, provides
from evergrad.memory import pool

_optimized_module: ExtensionPoint[..., Any] = ExtensionPoint("optimized_module")

# The most variants kept per signature, and the most fast paths.
_VARIANT_LIMIT = 8
# The most programs that keep their lowering, which only reports read.
_LOWERINGS_KEPT = 4
# The most calls that may be no programs for reasons which are over then, without a warning.
_MOST_FIRST_STEPS = 8
# A function of which so many programs were stale is run by Python.
_MOST_STALE = 3
# The most programs of a function that are kept on disk.
_PROGRAMS_ON_DISK = 12


def compile(
    model: Any = None, *, fullgraph: bool = False, check_finite: bool = False,
    memory_limit: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Compile a training step, a module or a function of tensors.

    A compiled call does what the eager call does. The first call with a given signature (structure,
    types and strides of its arguments) is run by Python, and its ops are recorded; if they form one
    program, this runs from then on while its guards hold. Captured tensors that it reads or writes
    (parameters, optimizer state) keep their storage; numbers that differ from call to call are
    runtime inputs. Guards check at each call whatever else the function can read; where one fails,
    Python runs the function again.

    Effects on Python state (counters, lists, ``print``, random numbers) are repeated at each call.
    A function that decides by values of the data (``if loss > 1``), or has effects that cannot be
    repeated, is run by Python at every call, with its ops compiled in segments; one warning names
    the line and the reason, and ``last_call`` has both. With ``fullgraph`` such a function raises
    ``TraceError`` instead.

    A program that fails leaves tensors and RNG states as they were. With ``check_finite`` a
    call that produces an infinity or a NaN fails, and its error names the op and the source line it
    came from. With ``memory_limit`` (bytes) values are rematerialized until the arena, the memory
    besides arguments and results, fits; if it cannot, the first call raises ``MemoryLimitError``
    before it runs anything.

    Other options of ``torch.compile`` are accepted and have no effect: there is one backend.

    Args:
        model: a function, a method or a module; without one a decorator is returned
        fullgraph: raise unless a call is one program; default ``False``
        check_finite: fail where a result is infinite or NaN; default ``False``
        memory_limit: the most bytes of the arena; default ``None``, no limit

    >>> weight = eg.ones(3, requires_grad=True)
    >>> optimizer = eg.optim.SGD([weight], lr=0.1)
    >>> @eg.compile
    ... def step(x):
    ...     optimizer.zero_grad()
    ...     loss = (weight * x).square().sum()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss.item()
    >>> [round(step(eg.ones(3)), 4) for _ in range(3)]
    [3.0, 1.92, 1.2288]
    >>> step.last_call.kind
    'whole'
    """
    require_llvm()
    if model is None:
        return functools.partial(
            compile,
            fullgraph=fullgraph,
            check_finite=check_finite,
            memory_limit=memory_limit,
            **options,
        )
    if hasattr(model, "parameters") and hasattr(model, "forward"):
        return _optimized_module(model, check_finite, memory_limit, fullgraph)
    return Compiled(model, check_finite, memory_limit, fullgraph)


class LastCall(NamedTuple):
    """How a call ran: as one program (``whole``), by Python as one segment (``traced``) or several
    (``segments``), or eagerly; why not as a program; and what ended its segments."""

    kind: str
    reason: str | None = None
    breaks: Sequence[str] = ()


_WHOLE = LastCall("whole")


@provides("compiled_function")
class Compiled:
    """A function with the variants compiled for it so far: what :func:`compile` returns.

    >>> double = eg.compile(lambda x: x * 2)
    >>> double(eg.ones(2))
    tensor([2., 2.])
    >>> double.last_call.kind
    'whole'
    """

    def __init__(
        self, function: Callable[..., Any], check_finite: bool = False,
        memory_limit: int | None = None, fullgraph: bool = False,
    ) -> None:  # fmt: skip
        self.function = function
        self.fullgraph = fullgraph
        self.check_finite = check_finite
        self.memory_limit = memory_limit
        self.variants: dict[Any, list[Variant]] = {}
        # The memory of its programs, and which of them are kept.
        self.arena = SharedArena()
        self.programs = ProgramLRU[Variant, Variant]()
        name = getattr(function, "__qualname__", type(function).__name__)
        self.name = name
        self.churn = SignatureChurn(name)
        self.segments = Segments(self.arena)
        # How the last call ran, and whether a function that is no single program was reported.
        self.last_call: LastCall | None = None
        # Whether sparse gradients are used up inside of a call, so that programs may have them.
        self.records_sparse = False
        # The numbers in Python objects that it changes.
        self.number_slots = NumberSlots()
        # The numbers among its arguments that vary.
        self.varying = VaryingNumbers()
        # The impure calls that were made for the present call.
        self.calls = CallLog()
        # How many programs were found to be stale when a call was traced again.
        self.stale_programs = 0
        self.has_warned = False
        # Why first calls were no programs, though later ones may be.
        self.first_steps: set[str] = set()
        # Fast paths by variant, most recently added first.
        self.fast_paths: dict[Variant, FastPath] = {}
        # Step lock: held while a variant is looked up and run.
        self.lock = self.arena.lock
        _steps.add(self)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if state.trace is not None:
            return self.function(*args, **kwargs)  # inlined into the trace around it
        with self.lock:
            result = self.serve(args, kwargs, state)
            if result is not NOT_HANDLED:
                return result
            try:
                with gc_paused():
                    call = self.call_with(args, kwargs)
                    if call.is_dense:
                        return self.run(call)
            finally:
                self.calls.clear()
        self.last_call = LastCall("eager", "an argument is sparse or nested")
        return self.function(*args, **kwargs)

    def call_with(self, args: Any, kwargs: Any) -> PythonCall:
        return PythonCall(self.function, args, kwargs, self.varying)

    def serve(self, args: tuple[Any, ...], kwargs: dict[str, Any], state: State) -> Any:
        """Run a call by a fast path, if one handles it."""
        try:
            for serve in self.fast_paths.values():
                result = serve(args, kwargs, state)
                if result is not NOT_HANDLED:
                    self.last_call = _WHOLE
                    if self.calls.made:
                        self.calls.clear()
                    return result
        except AssumptionError:  # nothing was written
            self.fast_paths = {}
        except BaseException:
            self.calls.clear()
            raise
        return NOT_HANDLED

    def run(self, call: PythonCall) -> Any:
        """Run a call by the program that is valid for it; by Python, if there is none."""
        if self.valid_variant(call) is None:
            if self.varying.note(call.spec, call.leaves):
                call = self.call_with(call.args, call.kwargs)
            self.note_varied_places(call)
        for variant in self.valid_variants(call):
            tensors = variant.inputs_for(call.tensors, call.numbers)
            if tensors is None or variant.aliases_written(tensors):
                break
            if variant.schedule.is_ready:
                return self.run_python(call, variant)
            completed = variant.completed(tensors)
            if completed is not None:
                return self.run_variant(variant, call, completed)
        return self.run_python(call)

    def note_varied_places(self, call: PythonCall) -> None:
        """Note the numbers in Python objects that are others than in the last program."""
        known = self.variants.get(call.key)
        if known and not self.number_slots.is_off:
            for slot in varied_slots(known[-1].guards.python_state):
                self.number_slots.add(slot)

    def run_variant(self, variant: Variant, call: PythonCall, tensors: list[Tensor]) -> Any:
        self.last_call = _WHOLE
        try:
            result = variant.run(tensors)
        except AssumptionError as error:  # nothing was written, and Python has no effects here
            return self.run_eagerly(call, str(error), variant.outputs_made())
        self.add_fast_path(call, variant)
        return result

    def run_eagerly(self, call: PythonCall, reason: str, outputs: Sequence[bool] = ()) -> Any:
        """Run a call by Python alone; impure calls that were made for it are not made again;
        ``outputs`` says which of those with output were."""
        self.last_call = LastCall("eager", reason)
        if not (self.calls.made or any(outputs)):
            return self.function(*call.args, **call.kwargs)
        python = PythonState(self.function, call.args, call.kwargs)
        with self.number_slots.repeating(python, self.calls, reason, outputs):
            return self.function(*call.args, **call.kwargs)

    def run_python(self, call: PythonCall, kept: Variant | None = None) -> Any:
        """Have Python run a call as a session; if its trace is a program, that runs it. A variant
        that is valid for the call is ``kept`` if its program is the same."""
        began = time.perf_counter()
        python = PythonState(self.function, call.args, call.kwargs)
        if call.numbers and python.checks_number_types:
            self.use_constant_numbers()
            call = self.call_with(call.args, call.kwargs)
        if python.overlapping_memory(call.tensors):
            return self.run_eagerly(call, "tensors share memory through NumPy")
        session = Session(STATE.get().trace, self.segments.run, self.fullgraph, python.arrays)
        session.records_sparse = self.records_sparse
        session.defers_items = not (self.varying.is_off or python.checks_number_types)
        before = STATE.get()
        with (
            restored_modes(before, session),
            using(trace=session, grad=before.grad, no_grad=False, saved_hooks=None),
            self.number_slots.install(
                session, python, self.calls, kept, bool(call.numbers)
            ) as installed,
        ):
            try:
                call_path.begin()
                result = call.on_session(session)
            except BaseException:
                self.last_call = LastCall("traced", "the function raised an exception")
                try:
                    session.end()
                    installed.flush_outputs()
                finally:
                    python.replace_numbers()
                raise
            session.modes = STATE.get()
            try:
                if self.is_unreliable:
                    raise NotWholeError(
                        f"its programs were not valid any more {self.stale_programs} times"
                    )
                if modes_of(session.modes) != modes_of(before):
                    raise NotWholeError("a mode is changed for the code after the call")
                captured = capture(session, call, result, python, self.number_slots, installed)
                call = self.with_fixed_numbers(call, session, captured)
                seconds = time.perf_counter() - began
                if kept is not None and not kept.is_for_calls():
                    kept = None
                variant = self.variant_for(call, captured, kept)
                variant.schedule.note_traced(seconds, len(captured.graph.equations))
            except NotWholeError as reason:
                if self.fullgraph and not self.is_first_step(session, str(reason)):
                    installed.discard()
                    undo_changes(python)
                    session.abandon()
                    raise TraceError(f"{self.name} cannot be compiled whole: {reason}") from None
                session.end()
                installed.flush_outputs()
                if session.sparse_weights:
                    self.records_sparse = not session.keeps_sparse_gradients()
                reason.__traceback__ = None  # its frames keep numbers of the session
                self.number_slots.remove(installed, python)
                result = plain_numbers(result)
                if session.keeps_numbers():
                    python.replace_numbers()
                    if session.keeps_numbers():
                        self.use_constant_numbers()
                if kept is not None and kept.is_for_calls():
                    self.drop_stale(kept, str(reason))
                self.note_breaks(session, str(reason))
                return result
            except BaseException:
                session.abandon()
                raise
        del result, session, installed
        tensors = variant.inputs_for(call.tensors, call.numbers)
        tensors = None if tensors is None else variant.completed(tensors)
        if tensors is None:  # another thread has changed what the function reads
            variant.skip_outputs(captured)
            outputs = variant.outputs_made()
            return self.run_eagerly(call, "Python state is changed meanwhile", outputs)
        variant.skip_outputs(captured)
        return self.run_variant(variant, call, tensors)

    def with_fixed_numbers(
        self, call: PythonCall, session: Session, captured: Captured
    ) -> PythonCall:
        """A call of which the numbers that Python has read are part of the signature."""
        exact = session.expressions.exact
        read = {key for _, sources in exact for place, key in sources if place == ARGUMENT}
        if read:
            self.varying.fix(call.spec, read)
            call = self.call_with(call.args, call.kwargs)
        if captured.effects is not None:
            captured.effects.arguments = list(enumerate(call.number_positions))
        return call

    def use_constant_numbers(self) -> None:
        """Have numbers as constants of programs from now on."""
        self.number_slots.turn_off()
        self.varying.turn_off()
        self.fast_paths = {}

    def is_first_step(self, session: Session, reason: str) -> bool:
        """Whether a call is no program only because of what happens once: the first step of an
        optimizer, or a place that is changed for the first time."""
        is_new = reason not in self.first_steps and len(self.first_steps) < _MOST_FIRST_STEPS
        return session.once == reason and is_new

    def note_breaks(self, session: Session, reason: str) -> None:
        kind = "segments" if session.breaks else "traced"
        self.last_call = LastCall(kind, reason, [str(end) for end in session.breaks])
        # The next call may be a program: sparse gradients are known to be used up.
        is_next_whole = bool(session.sparse_weights) and self.records_sparse
        if self.is_first_step(session, reason):
            self.first_steps.add(reason)
        elif not (self.has_warned or is_next_whole or session.is_passing):
            self.has_warned = True
            warnings.warn(
                f"{self.name} is not one compiled program: {reason}. Python runs it at every call, "
                "with its operations compiled between the values that it reads.",
                RuntimeWarning,
                stacklevel=4,
            )

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind as a method, like the function itself."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """A copy has no variants yet."""
        return type(self), (self.function, self.check_finite, self.memory_limit, self.fullgraph)

    def add_fast_path(self, call: PythonCall, variant: Variant) -> None:
        """Add the fast path for calls like this one, which a variant has just run."""
        if self.is_unreliable:
            return
        others = [pair for pair in self.fast_paths.items() if pair[0] is not variant]
        made = variant, make_fast_path(variant, call)
        self.fast_paths = dict([made, *others[: _VARIANT_LIMIT - 1]])

    def add_variant(self, call: PythonCall, captured: Captured) -> Variant:
        """Compile a captured call, and keep its program."""
        known = self.variants.get(call.key, [])
        if len(known) >= _VARIANT_LIMIT:
            warnings.warn(
                f"{self.function} was recompiled {len(known)} times for the same signature; failed "
                f"guard: {known[-1].guards.first_failed()}",
                RuntimeWarning,
                stacklevel=6,
            )
            for old in list(known):
                self.programs.evict(old)
            self.forget(list(known))
        churn = self.churn.record(leaf_paths(self.function, call.spec), call.leaves)
        if churn is not None:
            warnings.warn(churn, RuntimeWarning, stacklevel=6)
        on_disk = len(self.programs) < _PROGRAMS_ON_DISK
        variant = Variant(captured, self.check_finite, self.memory_limit, self.arena, on_disk)
        self.variants.setdefault(call.key, []).append(variant)
        self.forget(self.programs.put(variant, variant))
        for older in list(self.programs)[:-_LOWERINGS_KEPT]:
            older.program.discard_lowering()
        return variant

    def variant_for(self, call: PythonCall, captured: Captured, kept: Variant | None) -> Variant:
        """The variant for a captured call: the one that is valid for it, if that is still the same
        program."""
        if kept is not None:
            found = difference(kept.captured, captured)
            if found is None:
                return kept
            self.drop_stale(kept, found)
            if self.is_unreliable:  # for this call alone
                return Variant(captured, self.check_finite, self.memory_limit, self.arena, False)
        return self.add_variant(call, captured)

    @property
    def is_unreliable(self) -> bool:
        """Whether so many programs were stale that no further ones are kept."""
        return self.stale_programs >= _MOST_STALE

    def drop_stale(self, kept: Variant, found: str) -> None:
        """Drop a program that was run though it is not what Python does."""
        self.stale_programs += 1
        self.programs.evict(kept)
        self.forget([kept])
        if self.is_unreliable:
            self.forget(self.programs.clear())
        warnings.warn(
            f"a program of {self.name} was not valid any more, and no guard has failed: {found}. "
            "Calls before this one may have had the results of the old program; please report it.",
            RuntimeWarning,
            stacklevel=6,
        )

    def valid_variant(self, call: PythonCall) -> Variant | None:
        """The variant for a call whose guards hold, if there is one already."""
        return next(self.valid_variants(call), None)

    def valid_variants(self, call: PythonCall) -> Iterator[Variant]:
        """The variants for a call whose guards hold, but for those on impure calls, which are not
        made yet."""
        known = self.variants.get(call.key, [])
        for variant in known[::-1]:  # most recently used last
            tensors = variant.inputs_for(call.tensors, call.numbers)
            if tensors is None or not variant.accepts(tensors):
                continue
            if variant.guards.hold():
                known.remove(variant)
                known.append(variant)
                self.programs.get(variant)
                yield variant

    def forget(self, evicted: list[Variant]) -> None:
        """Drop the references to variants that are evicted, and their memory."""
        if evicted:
            gone = set(evicted)
            kept = {
                key: [v for v in known if v not in gone] for key, known in self.variants.items()
            }
            self.variants = {key: known for key, known in kept.items() if known}
            self.fast_paths = {v: path for v, path in self.fast_paths.items() if v not in gone}

    def trim(self) -> None:
        """Drop all programs and their memory, unless another thread is running one."""
        if self.lock.acquire(blocking=False):
            try:
                self.forget(self.programs.clear())
                self.segments.clear()
                self.arena.trim()
            finally:
                self.lock.release()

    def loop(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function for each row (index of the first dimension) of the tensors among its
        arguments, one after the other, and stack the results: ``loop(xs, ys)`` is ``stack([f(x, y)
        for x, y in zip(xs, ys)])``.

        Once a compiled program handles the rows, all of them are one batched native call without
        Python in between: the per-call overhead of small steps is gone, and threads that train
        models of their own do not contend for the GIL. Options of optimizers are read when the loop
        begins. A row that fails ends the loop; the rows before it are done, and the error names the
        failed row. Pass what is the same for all rows expanded, or as a number.
        """
        from evergrad.compiler.runtime.batched_calls import loop_of  # start-up: rarely used

        return loop_of(self, args, kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """The memory plan for these arguments, without running anything."""
        with self.lock:
            return self.compiled_for(args, kwargs)[0].program.plan

    def compiled_for(self, args: Any, kwargs: Any) -> tuple[Variant, list[Tensor]]:
        """The variant for these arguments, traced without running anything if there is none yet,
        and the tensors among them; raises if such calls are not one program."""
        call = self.call_with(args, kwargs)
        if not call.is_dense:
            raise RuntimeError("calls with sparse or nested tensors run eagerly")
        variant = self.valid_variant(call)
        if variant is None:
            python = PythonState(self.function, args, kwargs)
            session = Session(STATE.get().trace, self.segments.run, True, python.arrays)
            session.records_sparse = True
            session.defers_items = not (self.varying.is_off or python.checks_number_types)
            with (
                using(trace=session, grad=STATE.get().grad, no_grad=False, saved_hooks=None),
                self.number_slots.install(session, python) as installed,
            ):
                try:
                    call_path.begin()
                    result = call.on_session(session)
                    captured = capture(session, call, result, python, self.number_slots, installed)
                except NotWholeError as reason:
                    raise RuntimeError(
                        f"{self.name} is not one compiled program: {reason}"
                    ) from None
                except BaseException:
                    session.restore_states()
                    raise
                finally:
                    installed.discard()
                    undo_changes(python)
                    session.abandon()
                    session.release()
            call = self.with_fixed_numbers(call, session, captured)
            variant = self.add_variant(call, captured)
        return variant, variant.inputs_for(call.tensors, call.numbers) or call.tensors

    def explain(self, *args: Any, passes: bool = False, **kwargs: Any) -> Any:
        """Report the compiled program for these arguments: its nodes, memory, guards and time; see
        :class:`~evergrad.compiler.explain.report.Explanation`. With ``passes`` also the graph after
        each compiler pass. Has no side effects."""
        from evergrad.compiler.explain.report import Explanation  # start-up: rarely used

        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        with self.lock:
            variant, tensors = self.compiled_for(args, kwargs)
            variant.lower()
            return Explanation(Call(variant, tensors), name, passes)


_steps: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _unlock_steps() -> None:
    """Replace the step locks in a forked child: the threads that held them are gone."""
    replaced: dict[int, Any] = {}  # functions with one arena have one lock
    for step in _steps:
        lock = replaced.setdefault(id(step.lock), threading.RLock())
        step.lock = step.arena.lock = lock


@pool.on_trim
def _trim_steps() -> None:
    # Twice: arenas are given back once the programs of derivatives, which are steps too, are gone.
    for _ in range(2):
        for step in list(_steps):
            step.trim()


fork.register("step locks", after_in_child=_unlock_steps)


def modes_of(state: State) -> Any:
    return state.grad, state.inference, state.autocast, state.anomaly


@contextmanager
def restored_modes(before: State, session: Session) -> Iterator[None]:
    """Keep the modes that a call has set for the code after it; the session is over then."""
    try:
        yield
        modes = session.modes
        if modes is not None and modes_of(modes) != modes_of(before):
            set_mode(grad=modes.grad, no_grad=not modes.grad, inference=modes.inference,
                     autocast=modes.autocast, anomaly=modes.anomaly)  # fmt: skip
    finally:
        session.release()
