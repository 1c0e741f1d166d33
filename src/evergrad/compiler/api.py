"""``evergrad.compile``: a Python function traced at its first call and run as native code."""

from __future__ import annotations

import functools
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Unpack, overload

from evergrad.compiler.calls import call_path
from evergrad.compiler.calls.call_path import NOT_HANDLED, make_fast_path
from evergrad.compiler.compiled_function import (
    CompiledFunction,
    ModuleLike,
    P,
    R,
    TorchOptions,
)
from evergrad.compiler.frontend.arguments.signature import ARGUMENT, PythonCall
from evergrad.compiler.frontend.capture import capture
from evergrad.compiler.frontend.captured import Captured
from evergrad.compiler.frontend.effects.find_effects import undo_changes
from evergrad.compiler.frontend.effects.sparse_gradients import make_sparse
from evergrad.compiler.frontend.last_call import LastCall
from evergrad.compiler.frontend.numbers.number_slots import NumberSlots
from evergrad.compiler.frontend.numbers.varying_numbers import VaryingNumbers
from evergrad.compiler.frontend.paths.segments import Segments
from evergrad.compiler.frontend.reasons import with_fix
from evergrad.compiler.frontend.recording.call_log import CallLog
from evergrad.compiler.frontend.restored_modes import all_modes_of, restored_modes
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.compiler.frontend.state.gradient_flags import GradientFlags
from evergrad.compiler.frontend.state.library_calls import LibraryCalls
from evergrad.compiler.frontend.state.observed_code import ObservedCode
from evergrad.compiler.frontend.state.places import plain_numbers, replace_kept
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.compiler.frontend.state.varying_places import varied_slots
from evergrad.compiler.frontend.variant import Call, Variant
from evergrad.compiler.kept_programs import VARIANT_LIMIT, KeptPrograms
from evergrad.compiler.native.target import require_llvm
from evergrad.compiler.runtime.gc_pause import gc_paused
from evergrad.core import fork
from evergrad.core.source_location import user_stacklevel
from evergrad.core.state import STATE, State, using
from evergrad.core.tensor import Tensor
from evergrad.errors import AssumptionError, TraceError
from evergrad.extension import ExtensionPoint, provides
from evergrad.keywords import unknown_keyword
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.compiler.explain.report import Explanation
    from evergrad.compiler.schedule.memory_plan import Plan
    from evergrad.core.types import AnyFunction, Args, Kwargs


_optimized_module: ExtensionPoint[..., object] = ExtensionPoint("optimized_module")

# Seconds of processor time to find what a function reaches, from which on later calls are eager if
# it is no program.
_LONGEST_WALK = 0.25
_FAILED = "an operation has failed, and the function handles exceptions"
# The most calls that may be no programs for reasons which are over then, without a warning.
_MOST_FIRST_STEPS = 8


# Options of ``torch.compile`` that choose among backends and their ways.
_WITHOUT_EFFECT = TorchOptions.__optional_keys__


@overload
def compile(
    model: None = None, *, fullgraph: bool = False, check_finite: bool = False,
    memory_limit: int | None = None, **options: Unpack[TorchOptions],
) -> Callable[[Callable[P, R]], CompiledFunction[P, R]]: ...  # fmt: skip
@overload
def compile(
    model: ModuleLike, *, fullgraph: bool = False, check_finite: bool = False,
    memory_limit: int | None = None, **options: Unpack[TorchOptions],
) -> Any: ...  # fmt: skip
@overload
def compile(
    model: Callable[P, R], *, fullgraph: bool = False, check_finite: bool = False,
    memory_limit: int | None = None, **options: Unpack[TorchOptions],
) -> CompiledFunction[P, R]: ...  # fmt: skip
def compile(
    model: Any = None, *, fullgraph: bool = False, check_finite: bool = False,
    memory_limit: int | None = None, **options: object,
) -> Any:  # fmt: skip
    """Compile a training step, a module or a function of tensors.

    A compiled call does what the eager call does. The first call with a given signature (structure,
    types and strides of its arguments) is run by Python, and its ops are recorded; if they form one
    program, this runs from then on while its guards hold. Captured tensors that it reads or writes
    (parameters, optimizer state) keep their storage; numbers that differ from call to call are
    runtime inputs. Guards check at each call whatever else the function can read; where one fails,
    Python runs the function again.

    Effects on Python state (counters, lists, ``print``, random numbers) are repeated at each call.
    A function that decides by values of the data (``if loss > 1``) has a program for each path that
    it takes. One that has effects which cannot be repeated, or sizes that depend on the data, is
    run by Python at every call, with its ops compiled in segments; one warning names the line and
    the reason, and ``last_call`` has both. With ``fullgraph`` such functions raise ``TraceError``
    instead.

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
    for unknown in options.keys() - _WITHOUT_EFFECT:
        known = ("fullgraph", "check_finite", "memory_limit", *_WITHOUT_EFFECT)
        raise unknown_keyword("compile", unknown, known)
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


@provides("compiled_function")
class Compiled(KeptPrograms):
    """A function with the variants compiled for it so far: what :func:`compile` returns.

    >>> double = eg.compile(lambda x: x * 2)
    >>> double(eg.ones(2))
    tensor([2., 2.])
    >>> double.last_call.kind
    'whole'
    """

    # Attributes in ``__dict__`` are the user's, as those of a function are.
    __slots__ = (
        "__dict__", "__weakref__", "call_log", "collector", "first_steps", "fullgraph",
        "has_warned", "last_call", "library_calls", "number_slots", "records_sparse",
        "records_unlike", "segments", "step_lock", "varying",
    )  # fmt: skip

    def __init__(
        self, function: AnyFunction, check_finite: bool = False,
        memory_limit: int | None = None, fullgraph: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(function, check_finite, memory_limit)
        self.fullgraph = fullgraph
        self.segments: Segments = Segments(self.arena)
        # How the last call ran, and whether a function that is no single program was reported.
        self.last_call: LastCall | None = None
        # Whether sessions record sparse gradients; those which are not all rows that are looked up
        # (``None``: never again) once a call has not left any behind.
        self.records_sparse: bool = True
        self.records_unlike: bool | None = False
        # The numbers in Python objects that it changes.
        self.number_slots: NumberSlots = NumberSlots()
        # The numbers among its arguments that vary.
        self.varying: VaryingNumbers = VaryingNumbers()
        # The code of installed libraries that it runs.
        self.library_calls: LibraryCalls = LibraryCalls()
        # Other functions that it runs and the walk does not find.
        self.observed: ObservedCode = ObservedCode()
        # The impure calls that were made for the present call.
        self.call_log = CallLog()
        self.has_warned = False
        # Why first calls were no programs, though later ones may be.
        self.first_steps: set[str] = set()
        # The pause of the garbage collector while a call is traced.
        self.collector = gc_paused()
        # Step lock: held while a variant is looked up and run.
        self.step_lock = self.arena.lock
        _steps.add(self)
        is_function = isinstance(function, FunctionType)
        functools.update_wrapper(self, function, updated=("__dict__",) if is_function else ())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if state.trace is not None:
            return self.function(*args, **kwargs)  # inlined into the trace around it
        if state.anomaly or state.saved_hooks is not None:
            self.last_call = LastCall("eager", "a mode watches single operations")
            return self.function(*args, **kwargs)
        with self.step_lock:
            result = self.serve(args, kwargs, state)
            if result is not NOT_HANDLED:
                return result
            try:
                with gc_paused() as self.collector:
                    call = self.call_with(args, kwargs)
                    if call.refusal is None:
                        return self.run(call)
            finally:
                self.call_log.clear()
        return self.refuse(call, call.refusal)

    def refuse(self, call: PythonCall, reason: str) -> object:
        """Run a call eagerly, which cannot be compiled in part either."""
        if self.fullgraph:
            raise TraceError(f"{self.function_name} cannot be compiled whole: {with_fix(reason)}")
        self.warn(f"{self.function_name} runs eagerly: {reason}.")
        return self.run_eagerly(call, reason)

    def python_state(self, args: Any, kwargs: Any) -> PythonState:
        return PythonState(
            self.function,
            args,
            kwargs,
            frozenset(self.library_calls.ran),
            list(self.observed.functions),
        )

    def call_with(self, args: Any, kwargs: Any) -> PythonCall:
        return PythonCall(self.function, args, kwargs, self.varying)

    def serve(self, args: Args, kwargs: Kwargs, state: State) -> object:
        """Run a call by a fast path, if one handles it."""
        try:
            for variant, serve in self.fast_paths.items():
                result = serve(args, kwargs, state)
                if result is not NOT_HANDLED:
                    self.last_call = variant.last_call
                    if self.call_log.made:
                        self.call_log.clear()
                    return result
        except Exception as error:
            if not variant.is_repeated_after(error):
                self.call_log.clear()
                raise
            self.fast_paths = {}
        except BaseException:
            self.call_log.clear()
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
            is_path = variant.captured.path is not None
            if variant.schedule.is_ready and not is_path:
                return self.run_python(call, variant)
            completed = variant.completed(tensors)
            if completed is not None and variant.schedule.is_ready:
                self.path_policy.memo.undo()
                return self.run_python(call, variant)
            if completed is not None:
                return self.run_variant(variant, call, completed)
        reason = None if self.fullgraph else self.reason_for_python(call)
        return self.run_python(call) if reason is None else self.run_eagerly(call, reason)

    def note_varied_places(self, call: PythonCall) -> None:
        """Note the numbers in Python objects that are others than in the last program."""
        known = self.variants.get(call.key)
        if known:
            self.note_changed_elements(known[-1].guards)
        if known and not self.number_slots.is_off:
            for slot, is_container in varied_slots(known[-1].guards.python_state):
                (self.number_slots.add_tree if is_container else self.number_slots.add)(slot)

    def run_variant(self, variant: Variant, call: PythonCall, tensors: list[Tensor]) -> object:
        self.last_call = variant.last_call
        needs_arguments = variant.needs_arguments
        if needs_arguments and not variant.use_arguments((call.args, call.kwargs)):
            reason = "a container among the arguments is reached otherwise too"
            return self.run_eagerly(call, reason, variant.outputs_made())
        try:
            result = variant.run(tensors)
        except Exception as error:
            if not variant.is_repeated_after(error):
                raise
            return self.run_after(error, call, variant)
        finally:
            if needs_arguments:
                variant.release_arguments()
        if not variant.captured.flags:  # which only the general path sets
            self.add_fast_path(call, variant)
        return result

    def run_after(self, error: Exception, call: PythonCall, variant: Variant) -> object:
        """Run a call by Python whose program has failed. If the function does not handle the
        exception, it gets the location from that of the program."""
        reason = str(error) if isinstance(error, AssumptionError) else _FAILED
        try:
            return self.run_eagerly(call, reason, variant.outputs_made())
        except Exception as raised:
            if type(raised) is type(error) and str(raised) == str(error):
                for note in getattr(error, "__notes__", ()):
                    raised.add_note(note)
            raise

    def run_eagerly(self, call: PythonCall, reason: str, outputs: Sequence[bool] = ()) -> object:
        """Run a call by Python alone; impure calls that were made for it are not made again;
        ``outputs`` says which of those with output were."""
        self.last_call = LastCall("eager", reason)
        self.path_policy.memo.clear()
        if not (self.call_log.made or any(outputs)):
            with self.collector.resumed():
                return self.function(*call.args, **call.kwargs)
        python = self.python_state(call.args, call.kwargs)
        with self.number_slots.repeating(python, self.call_log, reason, outputs):
            return self.function(*call.args, **call.kwargs)

    def run_python(self, call: PythonCall, kept: Variant | None = None) -> object:
        """Have Python run a call as a session; if its trace is a program, that runs it. A variant
        that is valid for the call is ``kept`` if its program is the same."""
        began = time.thread_time()
        self.path_policy.memo.clear()
        python = self.python_state(call.args, call.kwargs)
        is_long = time.thread_time() - began > _LONGEST_WALK
        self.refusal: str | None = python.opaque if is_long else None
        if call.numbers and python.checks_number_types:
            self.use_constant_numbers()
            call = self.call_with(call.args, call.kwargs)
        shared = python.shared_memory(call.tensors)
        if python.is_seen_by_arrays(shared):
            return self.refuse(call, "tensors share memory through NumPy")
        session = Session(STATE.get().trace, self.segments.run, self.fullgraph, python.arrays)
        session.note_shared(shared)
        session.records_sparse = self.records_sparse
        session.records_unlike = bool(self.records_unlike)
        session.flags = flags = GradientFlags(python.tensors, call.tensors)
        session.defers_items = not (self.varying.is_off or python.checks_number_types)
        session.reads_data = self.path_policy.is_on and not (self.fullgraph or self.check_finite)
        session.reads_sizes = self.path_policy.reads_sizes
        session.varying = () if self.fullgraph else self.varying_storages
        before = STATE.get()
        with (
            restored_modes(before, session),
            using(trace=session, grad=before.grad, no_grad=False, saved_hooks=None),
            self.number_slots.install(
                session, python, self.call_log, kept, bool(call.numbers)
            ) as installed,
        ):
            try:
                call_path.begin()
                result = self.run_observed(call, session, python, kept)
            except BaseException:
                self.last_call = LastCall("traced", "the function raised an exception")
                try:
                    session.end()
                    installed.flush_outputs()
                finally:
                    python.replace_numbers()
                raise
            session.modes = STATE.get()
            make_sparse(session)
            try:
                if self.is_unreliable:
                    raise NotWholeError(
                        f"its programs were not valid any more {self.stale_programs} times"
                    )
                if all_modes_of(session.modes) != all_modes_of(before):
                    raise NotWholeError("a mode is changed for the code after the call")
                session.data.settle(session.expressions)
                self.path_policy.require_recurring(call.key, session)
                if session.reads_data:
                    self.require_same_elements(session)
                captured = capture(session, call, result, python, self.number_slots, installed)
                session.data.restore_generators()
                call = self.with_fixed_numbers(call, session, captured)
                seconds = time.thread_time() - began
                data = [read.value for read in session.data.all]
                if kept is not None and not kept.is_for_calls(data):
                    kept = None
                variant = self.variant_for(call, captured, kept, data)
                variant.schedule.note_traced(seconds, len(captured.graph.equations))
                self.small_calls.pop(call.key, None)
            except NotWholeError as reason:
                session.data.unsettle()
                if self.fullgraph and not self.is_first_step(session, str(reason)):
                    installed.discard()
                    undo_changes(python)
                    flags.restore()
                    session.abandon()
                    text = with_fix(str(reason))
                    raise TraceError(
                        f"{self.function_name} cannot be compiled whole: {text}"
                    ) from None
                keeps_sparse = session.keeps_sparse_gradients()
                session.end()
                installed.flush_outputs()
                if session.sparse_weights:
                    self.note_sparse_gradients(session, keeps_sparse)
                reason.__traceback__ = None  # its frames keep numbers of the session
                originals = self.number_slots.remove(installed, python)
                result = plain_numbers(result, originals=originals)
                if session.keeps_numbers():
                    python.replace_numbers()
                    if session.keeps_numbers():
                        self.use_constant_numbers()
                        replace_kept(session.live_numbers())
                data = [read.value for read in session.data.all]
                if kept is not None and kept.is_for_calls(data):
                    self.drop_stale(kept, str(reason))
                self.note_breaks(session, str(reason))
                self.note_segments(call, session, str(reason))
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

    def run_observed(
        self, call: PythonCall, session: Session, python: PythonState, kept: Variant | None
    ) -> Any:
        """Run the function in a session. Code that it runs and the walk has not reached makes the
        session no program. Where the calls of a signature are none anyhow it is not observed, which
        takes as long as the session; nor where values are checked, which only programs do."""
        is_none = python.opaque is not None or call.key in self.small_calls
        if "gc" in python.libraries:
            with self.collector.resumed():
                return self.library_calls.run(call.on_session, session, python)
        if kept is not None or is_none or self.check_finite:
            return self.library_calls.run(call.on_session, session, python)
        codes: set[CodeType] = set()

        def on_session(session: Session) -> Any:
            with self.observed.observe(codes):
                return call.on_session(session)

        result = self.library_calls.run(on_session, session, python)
        missed = self.observed.add(codes, python.codes)
        if missed is not None and session.once is None:
            session.once = f"{missed}() runs, which nothing that the function names leads to"
            session.is_passing = True
        return result

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
        ends = [*([] if session.data.are_late else session.data.all), *session.breaks]
        self.last_call = LastCall("segments" if ends else "traced", reason, list(map(str, ends)))
        # The next call may be a program: sparse gradients are known to be used up.
        is_next_whole = bool(session.unlike_rows) and bool(self.records_unlike)
        if self.is_first_step(session, reason):
            self.first_steps.add(reason)
        elif not (is_next_whole or session.is_passing):
            self.warn(
                f"{self.function_name} is not one compiled program: {reason}. Python runs it at "
                "every call, with its operations compiled between the values that it reads."
            )

    def note_sparse_gradients(self, session: Session, keeps_sparse: bool) -> None:
        """Note after a call that was no program whether further ones record sparse gradients."""
        if session.reads_sparse or (keeps_sparse and not session.is_off):
            self.records_sparse, self.records_unlike = False, None
        elif self.records_unlike is not None:
            self.records_unlike = not keeps_sparse

    def warn(self, text: str) -> None:
        """Warn that programs do not handle a call, once."""
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(text, RuntimeWarning, stacklevel=user_stacklevel())

    def __get__(self, instance: object, owner: object = None) -> object:
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
        self.fast_paths = dict([made, *others[: VARIANT_LIMIT - 1]])

    def trim(self) -> None:
        """Drop all programs and their memory, unless another thread is running one."""
        if self.step_lock.acquire(blocking=False):
            try:
                self.forget(self.programs.clear())
                self.segments.clear()
                self.arena.trim()
            finally:
                self.step_lock.release()

    def loop(self, *args: object, **kwargs: object) -> object:
        """Call the function for each row (index of the first dimension) of the tensors among its
        arguments, one after the other, and stack the results: ``loop(xs, ys)`` is ``stack([f(x, y)
        for x, y in zip(xs, ys)])``.

        Once a compiled program handles the rows, all of them are one batched native call without
        Python in between: the per-call overhead of small steps is gone, and threads that train
        models of their own do not contend for the GIL. Options of optimizers are read when the loop
        begins. A row that fails ends the loop; the rows before it are done, and the error names the
        failed row. Pass what is the same for all rows expanded, or as a number.
        """
        from evergrad.compiler.calls.batched_calls import loop_of  # start-up: rarely used

        return loop_of(self, args, kwargs)

    def plan(self, *args: object, **kwargs: object) -> Plan:
        """The memory plan for these arguments, without running anything."""
        with self.step_lock:
            return self.compiled_for(args, kwargs)[0].program.plan

    def compiled_for(self, args: Any, kwargs: Any) -> tuple[Variant, list[Tensor]]:
        """The variant for these arguments, traced without running anything if there is none yet,
        and the tensors among them; raises if such calls are not one program."""
        call = self.call_with(args, kwargs)
        if call.refusal is not None:
            raise RuntimeError(f"the call runs eagerly: {with_fix(call.refusal)}")
        variant = self.valid_variant(call)
        if variant is None:
            python = self.python_state(args, kwargs)
            session = Session(STATE.get().trace, self.segments.run, True, python.arrays)
            session.records_sparse = session.records_unlike = session.reads_data = True
            session.flags = flags = GradientFlags(python.tensors, call.tensors)
            session.defers_items = not (self.varying.is_off or python.checks_number_types)
            with (
                using(trace=session, grad=STATE.get().grad, no_grad=False, saved_hooks=None),
                self.number_slots.install(
                    session, python, computes=bool(call.numbers)
                ) as installed,
            ):
                try:
                    call_path.begin()
                    result = self.library_calls.run(call.on_session, session, python)
                    make_sparse(session)
                    session.data.settle(session.expressions)
                    captured = capture(session, call, result, python, self.number_slots, installed)
                except NotWholeError as reason:
                    if self.library_calls.is_new(python):
                        return self.compiled_for(args, kwargs)  # what has run is walked now
                    text = with_fix(str(reason))
                    raise RuntimeError(
                        f"{self.function_name} is not one compiled program: {text}"
                    ) from None
                except BaseException:
                    session.restore_states()
                    raise
                finally:
                    session.data.restore_generators()
                    installed.discard()
                    undo_changes(python)
                    flags.restore()
                    session.abandon()
                    session.release()
            call = self.with_fixed_numbers(call, session, captured)
            variant = self.add_variant(call, captured)
        return variant, variant.inputs_for(call.tensors, call.numbers) or call.tensors

    def explain(self, *args: object, passes: bool = False, **kwargs: object) -> Explanation:
        """Report the compiled program for these arguments: its nodes, memory, guards and time; see
        :class:`~evergrad.compiler.explain.report.Explanation`. With ``passes`` also the graph after
        each compiler pass. Has no side effects."""
        from evergrad.compiler.explain.report import Explanation  # start-up: rarely used

        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        with self.step_lock:
            variant, tensors = self.compiled_for(args, kwargs)
            call = Call(variant.lowered(), variant.with_carried(tensors))
            return Explanation(call, name, passes)


_steps: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _unlock_steps() -> None:
    """Replace the step locks in a forked child: the threads that held them are gone."""
    replaced: dict[int, Any] = {}  # functions with one arena have one lock
    for step in _steps:
        lock = replaced.setdefault(id(step.step_lock), threading.RLock())
        step.step_lock = step.arena.lock = lock


@pool.on_trim
def _trim_steps() -> None:
    # Twice: arenas are given back once the programs of derivatives, which are steps too, are gone.
    for _ in range(2):
        for step in list(_steps):
            step.trim()


fork.register("step locks", after_in_child=_unlock_steps)
