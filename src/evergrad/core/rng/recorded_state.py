"""Seeding, saving and restoring generators inside a recorded call: as equations between its draws.

The rows have the attribute ``generator`` of the rows that draw, and are random like those: they are
kept, and evaluated in the order of the function. ``None`` is the generator of the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.functionalize import FunctionalizingTrace
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.rng.generator import Generator
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import Array

_default_generator: ExtensionPoint[[], Generator] = ExtensionPoint("default_generator")
_seed_new_threads: ExtensionPoint[[int], None] = ExtensionPoint("seed_new_threads")
_EMIT = numpy_evaluates("the state of a generator is Python's")


def recording_trace() -> FunctionalizingTrace | None:
    """The trace that records what is done to generators: that of a session, if no transform is
    inside of it."""
    trace = STATE.get().trace
    functionalizer = None if trace is None else trace.functionalizer
    is_session = functionalizer is not None and functionalizer.is_lazy
    return functionalizer if is_session and trace is functionalizer else None


def source_of(generator: Generator | None) -> Generator:
    return _default_generator() if generator is None else generator


def _attribute(generator: Generator) -> Generator | None:
    return None if generator is _default_generator() else generator


# -- rows ---------------------------------------------------------------------------------------


def _row(
    name: str, type_rule: Callable[..., TensorType], evaluate: Callable[..., object], doc: str
) -> Op:
    return Op(
        name, family="opaque", type=type_rule, eval=evaluate, vjp=NONDIFFERENTIABLE, jvp=None,
        batch=None, random=True, upcast=False, emit=_EMIT, autocast=AutocastPolicy.KEEP, doc=doc,
        in_table=False,
    )  # fmt: skip


def _token_type(*args: object, **attrs: object) -> TensorType:
    return tensor_type((), dtypes.uint8)


def _state_type(*, generator: Generator | None, nbytes: int) -> TensorType:
    return tensor_type((nbytes,), dtypes.uint8)


def _seeded(*, generator: Generator | None, seed: int, new_threads: bool, is_new: bool) -> object:
    Generator.manual_seed(source_of(generator), seed)
    if new_threads:
        _seed_new_threads(seed)
    return dtypes.uint8.np.type(0)


def _state(*, generator: Generator | None, nbytes: int) -> Array:
    return Generator.get_state(source_of(generator))


def _restored(state: Any, *, generator: Generator | None) -> object:
    Generator.set_state(source_of(generator), state)
    return dtypes.uint8.np.type(0)


SEED = _row("seed_generator", _token_type, _seeded, "Restart the stream of a seed.")
GET_STATE = _row("generator_state", _state_type, _state, "The state of a generator as bytes.")
SET_STATE = _row("restore_generator", _token_type, _restored, "Continue from a state.")


# -- recording ----------------------------------------------------------------------------------


def record_seed(
    generator: Generator, seed: int, new_threads: bool = False, is_new: bool = False
) -> bool:
    """Record that a generator is seeded, or made; false where that is not recorded."""
    if recording_trace() is None:
        return False
    own = generator if is_new else _attribute(generator)
    bind(SEED, generator=own, seed=seed, new_threads=new_threads, is_new=is_new)
    return True


def recorded_state(generator: Generator) -> Tensor | None:
    """The state of a generator as a recorded value; ``None`` where nothing is recorded."""
    if recording_trace() is None:
        return None
    nbytes = Generator.get_state(generator).nbytes
    return bind(GET_STATE, generator=_attribute(generator), nbytes=nbytes)  # type: ignore[no-any-return]


def record_restored(generator: Generator, state: Tensor) -> bool:
    """Record that a generator continues from a state; false where that is not recorded, or may
    raise."""
    if recording_trace() is None:
        return False
    expected = tensor_type((Generator.get_state(generator).nbytes,), dtypes.uint8)
    if state._type is not expected:
        return False
    bind(SET_STATE, state, generator=_attribute(generator))
    return True


def recorded_seed(generator: Generator) -> Any:
    """The seed of a generator as a number of the trace, or of Python where the trace has set it;
    ``None`` where it has to be read."""
    trace: Any = recording_trace()
    if trace is None or not trace.defers_items:
        return None
    own = _attribute(generator)
    done = [e for e in trace.equations if e.op in (SEED, SET_STATE) and e.attrs["generator"] is own]
    if done:
        return done[-1].attrs["seed"] if done[-1].op is SEED else None
    value = Generator.initial_seed(generator)
    source = frozenset([("seed", id(own))])
    trace.expressions.reads_state = True
    return PythonNumber(
        trace, trace.expressions, value, lambda: Generator.initial_seed(source_of(own)), source
    )
