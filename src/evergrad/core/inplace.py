"""In-place mutation: every write to a tensor is an :func:`assign`.

It increments the version of the storage and makes the written value part of the target's graph.
In-place forms compute a value and assign it, or write directly with NumPy where nothing is recorded
or traced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind, cast
from evergrad.core.compound import Compound, CompoundType
from evergrad.core.dtypes import FLOATING, can_cast, from_numpy_dtype
from evergrad.core.eager.in_place import overwriting
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.node import GraphNode, Leaf, Node, next_sequence
from evergrad.core.op import TABLE, Attrs, Op, Specialization
from evergrad.core.overlap import copied_if_overlapping
from evergrad.core.python_numbers import plain_attributes
from evergrad.core.recording import transfer_retain_grad
from evergrad.core.saved_values import Packed, save_value
from evergrad.core.shapes import tensor_type
from evergrad.core.source_location import user_location
from evergrad.core.state import STATE, State
from evergrad.core.storage import InferenceStorage, Storage
from evergrad.core.tensor import Array, Tensor, current_node, on_storage
from evergrad.core.trace import Trace, Var, leaked
from evergrad.core.tracing import owner_of, trace_value
from evergrad.core.views import ViewChain, base_of, view_ops_from

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


def assign(target: Tensor, value: Tensor, fresh: bool = False) -> Tensor:
    """Overwrite the elements of ``target``. ``value`` has exactly its type; ``fresh`` says that it
    was computed for this write alone."""
    state = STATE.get()
    storage = target._storage
    is_apart = not state.grad or (value._node is None and value._view is None)
    if not (is_apart and is_plainly_writable(state, target)):
        check_writable(state, target, value)
    trace = state.trace
    if trace is not None:
        trace = owner_of(trace, None, (target, value)) or trace.reader(storage)
        if trace is not None and storage.shared and trace.must_write_now(storage):
            trace.leave("memory that is shared with NumPy is written")
            trace = None
    if trace is None:
        array = value._value
        if storage.shared or value._storage is storage:
            array = copied_if_overlapping(target._value, array)
        np.copyto(target._value, array)
    else:
        _assign_traced(trace, target, value)
    storage.version += 1
    storage.writer = user_location(1)
    if state.grad:
        record_write(state, target, value, fresh)
    return target


def is_plainly_writable(state: State, target: Tensor) -> bool:
    """Whether a target is in no graph and its elements share no memory, so that nothing is to be
    checked before it is overwritten with values that are in none."""
    array, view = target._value, target._view
    if target._storage.__class__ is not Storage or array.__class__ is not np.ndarray:
        return False
    if state.grad and target._node is not None:
        return False
    if state.grad and view is not None:
        base = view.base
        is_usual = view.from_no_grad is None and not view.function
        if base is None or base._node is not None or base._view is not None or not is_usual:
            return False
    return bool(array.flags.c_contiguous) or 0 not in array.strides


def check_writable(state: State, target: Tensor, value: Tensor | None) -> None:
    refuse_overlap(target.layout_array())
    if target._storage.__class__ is InferenceStorage and not state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make "
            "a clone to get a normal tensor before doing inplace update."
        )
    if isinstance(target._value, Var) and not target._value.trace.encloses(state.trace):
        raise leaked()
    if not state.grad:
        return
    node = current_node(target)
    if isinstance(node, Leaf):
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Write under no_grad(), or to a clone() of it."
        )
    view = target._view
    if view is None:
        return
    base = base_of(view)
    if view.function and (node is not None or (value is not None and current_node(value))):
        raise RuntimeError(
            f"An output of {view.function} is a view and is being modified inplace. This view is "
            "the output of a function that returns multiple views. Such functions do not allow the "
            "output views to be modified inplace. Write to the tensor itself (`x[i] = ...`), or to "
            "a clone() of the view."
        )
    if base is not None and isinstance(base._node, Leaf):
        raise RuntimeError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation. "
            "Write under no_grad(), or to a clone() of it."
        )
    hidden = view.from_no_grad
    if hidden is not None and (
        hidden._node is not None or (value is not None and current_node(value) is not None)
    ):
        raise RuntimeError(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled, so its gradient could not be right. Make the view with gradients enabled, "
            "or write to it under no_grad() as well."
        )


def refuse_overlap(array: Array) -> None:
    """Raise if several elements of the array share memory (``expand``)."""
    if (
        array.size
        and 0 in array.strides
        and any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )


def record_write(state: State, target: Tensor, value: Tensor, fresh: bool) -> None:
    """Make the written value part of the graph of the target.

    ``fresh`` says that no other tensor is that result of the value's node, so that the target may
    become it.
    """
    view = target._view
    source = current_node(value)
    base = None if view is None else base_of(view)
    if base is None:
        base = target
    if source is None and base._node is None:
        return
    node: GraphNode
    if fresh and source is not None and base is target:
        node, index = source, value._index
    else:
        node, index = _node_of_write(base, target, value), 0
    transfer_retain_grad(base, node, index)
    base._node, base._index = node, index
    if base is target and view is not None:
        view.seen = target._storage.version
        if state.trace is not None:
            state.trace.note_refreshed(target._storage, view)


def _node_of_write(base: Tensor, target: Tensor, value: Tensor) -> Node:
    """The node of ``update``: the base with the target's part replaced."""
    chain = () if base is target else view_ops_from(base, target)
    attrs = {"chain": ViewChain(chain)}
    types = (base._type, value._type)
    key = (types, tuple(attrs.items()))
    update = TABLE["update"]
    specialization = update.specializations.get(key) or update.resolve(key, types, attrs)
    before, source = base._node, value._node
    needs = (1 if before is not None else 0) | (2 if source is not None else 0)
    return Node(
        specialization.vjp_program(needs), (before, source), (base._index, value._index), ()
    )


def _assign_traced(trace: Trace, target: Tensor, value: Tensor) -> None:
    storage = target._storage
    held = storage.value
    view = target._view
    state = STATE.get()
    if not (isinstance(held, Var) and held.trace is trace):
        handle = on_storage(held, storage.type, storage, None)
        trace.note_write(storage, handle, None)
        held = trace.capture(handle)
    elif state.no_grad and not held.inactive and id(storage) not in trace.written:
        trace.no_grad_write = user_location(2)
    if state.grad and id(storage) in trace.written:
        base = None if view is None else base_of(view)
        base = target if base is None else base
        trace.note_write(storage, base, base)
    written = trace_value(trace, value)
    if view is not None or written.layout.strides != held.layout.strides:
        attrs = {"chain": ViewChain(() if view is None else view.chain)}
        types = (storage.type, value._type)
        key = (types, tuple(attrs.items()))
        update = TABLE["update"]
        specialization = update.specializations.get(key) or update.resolve(key, types, attrs)
        (written,) = trace.emit(specialization, (held, written), user_location(2), held.layout)
    storage.value = written
    if view is None and isinstance(target._value, Var) and target._value.trace is trace:
        target._value = written


def fill_number(target: Tensor, number: object) -> bool:
    """Write a number everywhere, if that is a write of memory alone: it is no value of a trace, and
    part of no graph."""
    state = STATE.get()
    array = target._value
    if (
        state.intercepted
        or array.__class__ is not np.ndarray
        or 0 in array.strides
        or (state.grad and (target._node is not None or target._view is not None))
    ):
        return False
    if not is_plainly_writable(state, target):
        check_writable(state, target, None)
    array.fill(number)
    storage = target._storage
    storage.version += 1
    storage.writer = user_location(2)
    return True


def note_write(storage: Storage) -> None:
    """Note that the caller has written to the memory of a storage."""
    storage.version += 1
    storage.writer = user_location(1)


# -- in-place forms -----------------------------------------------------------------------------


def write_in_place(op: Op, target: Tensor, *others: object, **attrs: object) -> Tensor:
    """``target.op_(*others)``: without a temporary where nothing is recorded or traced."""
    state = STATE.get()
    if state.trace is None and op.takes_out:
        args = (target, *others)
        types: Leaves = []
        values: Leaves = []
        for arg in args:
            if isinstance(arg, Tensor):
                types.append(arg._type)
                values.append(arg._value)
                is_apart = arg._node is None and arg._view is None
                if state.grad and not is_apart and current_node(arg) is not None:
                    break
            else:
                types.append(type(arg))
                values.append(arg)
        else:
            key = (tuple(types), tuple(attrs.items())) if attrs else tuple(types)
            specialization = op.specializations.get(key)
            if specialization is not None and _writes_into(specialization, target):
                return _run_into(state, specialization, target, values)
    return _write_unresolved(op, target, others, attrs)


def _write_unresolved(op: Op, target: Tensor, others: tuple[object, ...], attrs: Attrs) -> Tensor:
    """The same where numbers are to be converted, and where something is recorded or traced."""
    state = STATE.get()
    trace = state.trace
    is_eager = trace is None or (trace.is_off and trace.reader(target._storage) is None)
    if is_eager and op.takes_out:
        others = tuple([a.item() if isinstance(a, np.generic) else a for a in others])
        if trace is not None:  # a session that is off: its numbers are those of Python
            others = tuple(map(plain_attributes, others))
            attrs = {name: plain_attributes(value) for name, value in attrs.items()}
        args = (target, *others)
        is_recorded = state.grad and any(
            isinstance(a, Tensor) and current_node(a) is not None for a in args
        )
        if not is_recorded:
            types = tuple([a._type if isinstance(a, Tensor) else type(a) for a in args])
            key = (types, tuple(attrs.items())) if attrs else types
            specialization = op.specializations.get(key)
            if specialization is None:
                if any(type.__class__ is CompoundType for type in types):
                    return write_result(op.name, target, bind(op, *args, **attrs))
                specialization = op.resolve(key, types, attrs)
            if _writes_into(specialization, target):
                values = [a._value if isinstance(a, Tensor) else a for a in args]
                return _run_into(state, specialization, target, values)
    since = next_sequence()
    result = bind(op, target, *others, **attrs)
    return write_result(op.name, target, result, since)


def _writes_into(specialization: Specialization, target: Tensor) -> bool:
    """Whether the evaluation may write its result to the target itself."""
    out = specialization.out_types[0]
    kind = out.dtype
    return (
        (out is target._type or out.same(target._type))
        and specialization.casts is None
        and kind.compute is kind.np
        and (kind.category >= FLOATING or not _weak_integers(specialization))
    )


def _weak_integers(specialization: Specialization) -> bool:
    return specialization.out_types[0].dtype.category < 2 and any(
        isinstance(t, type) for t in specialization.types
    )


def _run_into(
    state: State, specialization: Specialization, target: Tensor, values: Leaves
) -> Tensor:
    if not is_plainly_writable(state, target):
        check_writable(state, target, None)
    out, run = target._value, specialization.op.eval
    overwrite = specialization.overwrite
    if overwrite is None:
        overwrite = specialization.overwrite = overwriting(specialization) or False
    token = numpy_errors.set(QUIET)
    try:
        if overwrite is not False and overwrite(out, values):
            pass
        # NumPy (2.5 and before) reads wrong elements in the loop of ``negative`` for strided inputs
        # and outputs, so that ufuncs of one argument do not write to strided memory.
        elif len(values) == 1 and not out.flags.c_contiguous:
            out[...] = run(*values, **specialization.attrs)
        else:
            run(*values, out=out, **specialization.attrs)
    finally:
        numpy_errors.reset(token)
    storage = target._storage
    storage.version += 1
    storage.writer = user_location(3)
    return target


def write_result(name: str, target: Tensor, result: Tensor, since: int | None = None) -> Tensor:
    """Write a computed value to a tensor, as in-place forms do.

    Residuals of nodes newer than ``since`` that alias the target would be overwritten by their own
    op, so they are copied.
    """
    if since is not None and result._node is not None:
        copy_saved_values(result._node, target._storage, since)
    if result._type.shape != target._type.shape:
        raise RuntimeError(
            f"output with shape {list(target._type.shape)} doesn't match the broadcast shape "
            f"{list(result._type.shape)} ({name} in place cannot change the shape)"
        )
    if result.dtype is not target.dtype:
        if not can_cast(result.dtype, target.dtype):
            raise RuntimeError(
                f"result type {result.dtype.name} can't be cast to the desired output type "
                f"{target.dtype.name} ({name} in place; use the out-of-place form, or convert "
                "the tensor first)"
            )
        result = cast(result, target.dtype)
    if isinstance(target, Compound):
        return target.take_over(result)
    node = result._node
    return assign(target, result, fresh=since is None or node is None or node.seq > since)


def copy_saved_values(node: GraphNode, storage: Storage, since: int) -> None:
    """Copy the residuals in a storage, of this node and of those it depends on newer than
    ``since``."""
    stack: list[GraphNode | None] = [node]
    seen: set[int] = set()
    while stack:
        found = stack.pop()
        if not isinstance(found, Node) or found.seq < since or found.seq in seen:
            continue
        seen.add(found.seq)
        stack += found.parents
        if found.saved:
            found.saved = type(found.saved)(
                _in_own_storage(entry, storage) for entry in found.saved
            )


def _in_own_storage(entry: Any, storage: Storage) -> object:
    """A residual, copied to a storage of its own if it aliases the given one."""
    if entry.__class__ is Packed or entry[1] is not storage:
        return entry
    value = entry[0]
    if isinstance(value, Var):  # immutable: only its storage gets another value
        return save_value(value, Storage(value, value.type, 0))
    copy = value.copy()
    type = tensor_type(copy.shape, from_numpy_dtype(copy.dtype))
    return save_value(copy, Storage(copy, type, type.nbytes))
