"""Dispatch: every op is applied by :func:`bind`.

It looks up the row's specialization for the argument types, evaluates it with NumPy or emits an
equation into a trace, and records a node of the autograd graph if an argument requires grad.
Nothing else in the engine depends on the mode.

A result that is no view is contiguous whatever the strides of the arguments. Eager evaluation,
traces and compiled programs therefore agree on strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.compound import CompoundType, bind_compound
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.op import TABLE, Op, Specialization
from evergrad.core.python_numbers import DeferredNumber, PythonNumber, plain_attributes
from evergrad.core.recording import record, transfer_retain_grad
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import user_location
from evergrad.core.state import STATE, State, using
from evergrad.core.tensor import Tensor, current_node, fresh, new_result, on_storage
from evergrad.core.trace import Trace, Var
from evergrad.core.tracing import owner_of, trace_value
from evergrad.core.types import Array
from evergrad.core.views import ViewOp, base_of, first_view, view_after, view_ops_from, viewable
from evergrad.extension import provides
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.prepared import Recorder
    from evergrad.core.types import Args, Attrs, DtypeLike, Key, Leaves

_new: Any = object.__new__
Scalar: tuple[type, ...] = (bool, int, float, complex)


@provides("bind")
def bind(op: Op, *args: object, **attrs: object) -> Any:
    """Apply an op to tensors (and Python numbers).

    The dispatch of the common case, a specialization that was resolved before and evaluates to one
    array, is written out here without further calls; :func:`apply` has the others.
    """
    count = len(args)
    if count == 1:
        (a,) = args
        if isinstance(a, Tensor):
            ta: object = a._type
            va = a._value
        else:
            ta, va = type(a), a
        types: Key = (ta,)
    elif count == 2:
        a, b = args
        if isinstance(a, Tensor):
            ta = a._type
            va = a._value
        else:
            ta, va = type(a), a
        if isinstance(b, Tensor):
            tb: object = b._type
            vb = b._value
        else:
            tb, vb = type(b), b
        types = (ta, tb)
    else:
        found: Leaves = []
        values: Leaves = []
        for arg in args:
            if isinstance(arg, Tensor):
                found.append(arg._type)
                values.append(arg._value)
            else:
                found.append(type(arg))
                values.append(arg)
        types = tuple(found)
    key = (types, tuple(attrs.items())) if attrs else types
    specialization = op.specializations.get(key)
    if specialization is None:
        return _bind_unresolved(op, key, types, args, attrs)
    state = STATE.get()
    if state.intercepted or not specialization.is_direct:
        return apply(state, specialization, args)
    if op.alias:
        return _evaluate_view(state, specialization, args)
    token = numpy_errors.set(QUIET)
    try:
        if count == 1:
            value = specialization.run(va)
        elif count == 2:
            value = specialization.run(va, vb)
        else:
            value = specialization.run(*values)
    except MemoryError:
        raise _out_of_memory(specialization) from None
    finally:
        numpy_errors.reset(token)
    if not (specialization.always_contiguous or value.flags.c_contiguous):
        value = pool.copy(value)
    out = new_result(value, specialization.out_types[0], state.inference)
    if state.grad and specialization.differentiable:
        for arg in args:
            if isinstance(arg, Tensor) and (
                arg._node is not None or (arg._view is not None and current_node(arg) is not None)
            ):
                record(state, specialization, args, (out,))
                break
    return out


def bind_unary(op: Op, a: Tensor) -> Any:
    """``bind(op, a)`` of a row that is no view, with the common case written out once more: a call
    that packs no arguments is an eighth shorter."""
    specialization = op.specializations.get((a._type,))
    state = STATE.get()
    if specialization is None or state.intercepted or not specialization.is_direct:
        return bind(op, a)
    token = numpy_errors.set(QUIET)
    try:
        value = specialization.run(a._value)
    except MemoryError:
        raise _out_of_memory(specialization) from None
    finally:
        numpy_errors.reset(token)
    if not (specialization.always_contiguous or value.flags.c_contiguous):
        value = pool.copy(value)
    out = new_result(value, specialization.out_types[0], state.inference)
    is_recorded = a._node is not None or (a._view is not None and current_node(a) is not None)
    if is_recorded and state.grad and specialization.differentiable:
        record(state, specialization, (a,), (out,))
    return out


def bind_binary(op: Op, a: object, b: object) -> Any:
    """``bind(op, a, b)`` in the same way."""
    if isinstance(a, Tensor):
        ta: object = a._type
        va = a._value
    else:
        ta, va = type(a), a
    if isinstance(b, Tensor):
        tb: object = b._type
        vb = b._value
    else:
        tb, vb = type(b), b
    specialization = op.specializations.get((ta, tb))
    state = STATE.get()
    if specialization is None or state.intercepted or not specialization.is_direct:
        return bind(op, a, b)
    token = numpy_errors.set(QUIET)
    try:
        value = specialization.run(va, vb)
    except MemoryError:
        raise _out_of_memory(specialization) from None
    finally:
        numpy_errors.reset(token)
    if not (specialization.always_contiguous or value.flags.c_contiguous):
        value = pool.copy(value)
    out = new_result(value, specialization.out_types[0], state.inference)
    if state.grad and specialization.differentiable:
        for arg in (a, b):
            if isinstance(arg, Tensor) and (
                arg._node is not None or (arg._view is not None and current_node(arg) is not None)
            ):
                record(state, specialization, (a, b), (out,))
                break
    return out


def bind_prepared(specialization: Specialization, a: Tensor) -> Any:
    """``bind`` of a specialization that was found by :func:`~evergrad.core.op.prepared_calls`."""
    state = STATE.get()
    if state.intercepted:
        return bind(specialization.op, a, **specialization.attrs)
    if specialization.op.alias:
        return _evaluate_view(state, specialization, (a,))
    token = numpy_errors.set(QUIET)
    try:
        value = specialization.run(a._value)
    except MemoryError:
        raise _out_of_memory(specialization) from None
    finally:
        numpy_errors.reset(token)
    if not (specialization.always_contiguous or value.flags.c_contiguous):
        value = pool.copy(value)
    out = new_result(value, specialization.out_types[0], state.inference)
    is_recorded = a._node is not None or (a._view is not None and current_node(a) is not None)
    if is_recorded and state.grad and specialization.differentiable:
        record(state, specialization, (a,), (out,))
    return out


def bind_prepared_list(specialization: Specialization, args: tuple[Tensor, ...]) -> Any:
    """The same for several arguments of a row that is no view."""
    state = STATE.get()
    if state.intercepted:
        return bind(specialization.op, *args, **specialization.attrs)
    token = numpy_errors.set(QUIET)
    try:
        value = specialization.run(*[a._value for a in args])
    except MemoryError:
        raise _out_of_memory(specialization) from None
    finally:
        numpy_errors.reset(token)
    if not (specialization.always_contiguous or value.flags.c_contiguous):
        value = pool.copy(value)
    out = new_result(value, specialization.out_types[0], state.inference)
    if state.grad and specialization.differentiable:
        for arg in args:
            if arg._node is not None or (arg._view is not None and current_node(arg) is not None):
                record(state, specialization, args, (out,))
                break
    return out


def apply_direct(state: State, specialization: Specialization, args: tuple[object, ...]) -> Any:
    """``bind`` of a specialization without casts, where nothing is intercepted."""
    if specialization.op.alias:
        return _evaluate_view(state, specialization, args)
    if not specialization.single:
        return _apply(state, specialization, args)
    token = numpy_errors.set(QUIET)
    try:
        value = specialization.run(*[a._value if isinstance(a, Tensor) else a for a in args])
    except MemoryError:
        raise _out_of_memory(specialization) from None
    finally:
        numpy_errors.reset(token)
    if not (specialization.always_contiguous or value.flags.c_contiguous):
        value = pool.copy(value)
    out = new_result(value, specialization.out_types[0], state.inference)
    if state.grad and specialization.differentiable:
        record(state, specialization, args, (out,))
    return out


def bind_and_prepare(
    calls: dict[object, Specialization], key: object, op: Op, *args: Tensor, **attrs: object
) -> Any:
    """Bind a row, and keep its specialization for calls of the same ``key``: the types of the
    arguments and whatever else decides the attributes."""
    found = bind(op, *args, **attrs)
    if STATE.get().intercepted:  # the key may hold numbers of a trace
        return found
    types = tuple([a._type for a in args])
    specialization = op.specializations.get((types, tuple(attrs.items())) if attrs else types)
    is_plain = all(type.__class__ is TensorType for type in types)
    if is_plain and specialization is not None and specialization.is_direct:
        calls[key] = specialization
    return found


def _bind_unresolved(
    op: Op, key: object, types: Key, args: tuple[object, ...], attrs: Attrs
) -> object:
    """Convert the arguments to what rows take, or resolve the specialization; then bind again."""
    state = STATE.get()
    if not state.intercepted:
        for type in types:
            if type.__class__ is not TensorType and type not in Scalar:
                break
        else:  # nothing is to be converted: numbers of a trace occur in traces alone
            return apply(state, op.resolve(key, types, attrs), args)
    if any(type.__class__ is CompoundType for type in types):
        return bind_compound(op, _under_autocast(op, args), attrs)
    if DeferredNumber in types:
        return bind(op, *deferred_operands(args), **attrs)
    if PythonNumber in types or any(plain_attributes(v) is not v for v in attrs.values()):
        return bind(op, *python_operands(op, args), **{
            name: plain_attributes(value) for name, value in attrs.items()
        })  # fmt: skip
    if SymbolicNumber in types:
        return bind(op, *symbolic_operands(op, args), **attrs)
    plain = tuple([_as_operand(op, a) for a in args])
    if any(p is not a for p, a in zip(plain, args, strict=True)):
        return bind(op, *plain, **attrs)
    converted = _under_autocast(op, args)
    if converted is not args:
        return bind(op, *converted, **attrs)
    op.resolve(key, types, attrs)
    return bind(op, *args, **attrs)


def apply(state: State, specialization: Specialization, args: Args) -> Any:
    """``bind`` of a specialization in every way: with casts, under autocast, into a trace, as a
    view, and with several results."""
    op, attrs = specialization.op, specialization.attrs
    if specialization.casts is not None:
        pairs = zip(args, specialization.casts, strict=True)
        return bind(op, *[a if c is None else cast(a, c) for a, c in pairs], **attrs)
    if state.recorder is not None:
        return _recorded(state.recorder, specialization, args)
    if state.intercepted:
        converted = _under_autocast(op, args)
        if converted is not args:
            return bind(op, *converted, **attrs)
        trace = None if state.trace is None else owner_of(state.trace, op, args)
        if trace is not None:
            return _emit(trace, state, specialization, args)
    if op.alias:
        return _evaluate_view(state, specialization, args)
    if state.interceptor is not None:
        return state.interceptor(op, args, lambda: _apply(STATE.get(), specialization, args))
    return _apply(state, specialization, args)


def _recorded(
    recorder: Recorder, specialization: Specialization, args: tuple[Tensor | float, ...]
) -> object:
    """Apply a specialization, and note it for a prepared function."""
    with using(recorder=None):
        found = apply(STATE.get(), specialization, args)
    recorder.note(specialization, args, found)
    return found


def _apply(
    state: State, specialization: Specialization, args: tuple[object, ...]
) -> Tensor | tuple[Tensor, ...] | None:
    """Evaluate and record."""
    outs = _evaluate(specialization, args)
    if state.trace is not None:
        for out in outs:
            state.trace.adopt(out._storage)
    if state.grad and specialization.differentiable:
        record(state, specialization, args, outs)
    return outs[0] if specialization.single else outs


def _evaluate(specialization: Specialization, args: tuple[object, ...]) -> tuple[Tensor, ...]:
    """The results on arrays, each in contiguous memory of its own."""
    token = numpy_errors.set(QUIET)
    try:
        found = specialization.run(*[a._value if isinstance(a, Tensor) else a for a in args])
    except MemoryError:
        raise _out_of_memory(specialization) from None
    finally:
        numpy_errors.reset(token)
    arrays = (found,) if specialization.single else found
    types = specialization.out_types
    return tuple([fresh(as_contiguous(a), t) for a, t in zip(arrays, types, strict=True)])


def as_contiguous(array: Array) -> Array:
    """The array, copied to C order if NumPy gave it the strides of an argument."""
    return array if array.flags.c_contiguous else pool.copy(array)


def _as_operand(op: Op, arg: object) -> object:
    """Convert NumPy scalars and subclasses of Python's numbers; raise for anything else."""
    if isinstance(arg, Tensor) or type(arg) in Scalar:
        return arg
    if isinstance(arg, np.generic):
        return arg.item()
    for kind in Scalar:
        if isinstance(arg, kind):
            return kind(arg)
    raise TypeError(
        f"{op.name}(): an argument must be a Tensor or a number, not "
        f"{dtypes.name_of_type(type(arg))}"
    )


def _under_autocast(op: Op, args: tuple[object, ...]) -> tuple[object, ...]:
    """The arguments in the precision of the op's autocast policy, if the mode is on."""
    autocast = STATE.get().autocast
    return args if autocast is None else autocast.convert_arguments(op.autocast, args)


def python_operands(op: Op, args: tuple[object, ...]) -> list[object]:
    """Numbers of Python state as inputs of the program; as constants of ops that do not promote
    them, or for which the exponent decides the formula."""

    def is_input(number: PythonNumber) -> bool:
        is_value = op.name != "pow" or isinstance(number.value, float)
        return op.promote is not None and is_value

    return [
        a if type(a) is not PythonNumber else a.symbolic() if is_input(a) else a.read()
        for a in args
    ]


def deferred_operands(args: tuple[object, ...]) -> list[object]:
    """Numbers that the trace computes as inputs of an op; integers as numbers of the data."""
    return [
        a if type(a) is not DeferredNumber
        else SymbolicNumber(a.tensor) if a.kind is float else a.number()
        for a in args
    ]  # fmt: skip


def symbolic_operands(op: Op, args: tuple[object, ...]) -> list[object]:
    """Symbolic numbers as 0-d tensors of the element type to which Python numbers would be
    promoted."""
    kinds = [a.kind if type(a) is SymbolicNumber else type(a) for a in args]
    types = tuple(
        [a._type if isinstance(a, Tensor) else k for a, k in zip(args, kinds, strict=True)]
    )
    promoted = dtypes.get_default_dtype() if op.promote is None else op.promote(types)
    common = promoted if isinstance(promoted, tuple) else (promoted,) * len(args)
    return [
        cast(a.tensor, c) if type(a) is SymbolicNumber else a
        for a, c in zip(args, common, strict=True)
    ]


def cast(tensor: Tensor, dtype: DtypeLike) -> Tensor:
    """The tensor converted to another element type."""
    return tensor if tensor._type.dtype is dtype else bind(TABLE["cast"], tensor, dtype=dtype)


def as_operand_tensor(value: object, type: object) -> object:
    """A Python number as the 0-d tensor of its operand type, so that formulas keep that type."""
    if isinstance(value, Tensor) or not isinstance(type, TensorType):
        return value
    return bind(TABLE["full"], value, size=(), dtype=type.dtype)


def _out_of_memory(specialization: Specialization) -> MemoryError:
    from evergrad.memory.reports import out_of_memory  # start-up: needed after a failure only

    size = sum(t.nbytes for t in specialization.out_types)
    return out_of_memory(
        f"{specialization.op.name} could not allocate {size:,} bytes for {specialization.out_types}"
    )


def _emit(
    trace: Trace, state: State, specialization: Specialization, args: Args
) -> Tensor | tuple[Tensor, ...]:
    values = tuple([trace_value(trace, a) if isinstance(a, Tensor) else a for a in args])
    outs: tuple[Tensor, ...]
    if specialization.op.alias:
        source: Tensor = args[0]
        if specialization.op.alias == "reshape" and not viewable(
            values[0].layout, specialization.out_types[0].shape
        ):
            result: Tensor | tuple[Tensor, ...] = bind(
                specialization.op, bind(TABLE["clone"], source), **specialization.attrs
            )
            return result
        layout = specialization.op.eval(values[0].layout, **specialization.attrs)
        (var,) = trace.emit(specialization, values, user_location(2), layout, state.no_grad)
        out = on_storage(var, specialization.out_types[0], source._storage, None)
        out._view = view_after(state, source, specialization, layout)
        outs = (out,)
    else:
        results = trace.emit(specialization, values, user_location(2), no_grad=state.no_grad)
        outs = tuple([fresh(v, v.type) for v in results])
    if state.grad and specialization.differentiable:
        node = record(state, specialization, args, outs, values)
        if node is not None:
            trace.note_node(node)
    return outs[0] if specialization.single else outs


# -- views --------------------------------------------------------------------------------------


def _evaluate_view(state: State, specialization: Specialization, args: Args) -> Tensor:
    source: Tensor = args[0]
    array = source._value
    if (
        specialization.op.alias == "reshape"
        and not array.flags.c_contiguous
        and not viewable(array, specialization.out_types[0].shape)
    ):
        args = (source,) = (bind(TABLE["clone"], source),)
        array = source._value
    value = specialization.run(array)
    storage = source._storage
    if source._view is None and specialization.op is not TABLE["as_strided"]:
        view = first_view(source, specialization, state.grad)
        is_recorded = state.grad and source._node is not None
    else:
        view = view_after(state, source, specialization, value)
        is_recorded = state.grad and current_node(source) is not None
    out: Tensor = _new(Tensor)
    out._value = value
    out._type = specialization.out_types[0]
    out._storage = storage
    out._node = None
    out._index = 0
    out._view = view
    out._leaf = None
    out._grad = None
    if value.__class__ is Var:
        value.trace.note_handle(out)
    if is_recorded and specialization.differentiable:
        record(state, specialization, args, (out,))
    return out


@provides("refresh")
def refresh(tensor: Tensor) -> None:
    """Rebuild the node of a view whose storage was written since, by replaying its view ops."""
    view = tensor._view
    assert view is not None
    base = base_of(view)
    assert base is not None
    view.seen = tensor._storage.version
    trace = STATE.get().trace
    if trace is not None:
        trace.note_refreshed(tensor._storage, view)
    node = base._node
    if node is None:
        tensor._node = None
        return
    with using(grad=True, saved_hooks=None):
        replayed = _replay(base, view_ops_from(base, tensor))
    assert replayed._node is not None
    transfer_retain_grad(tensor, replayed._node, replayed._index)
    tensor._node, tensor._index = replayed._node, replayed._index


def _replay(value: Tensor, chain: Sequence[ViewOp]) -> Tensor:
    for op, attrs in chain:
        value = bind(op, value, **attrs)
    return value
