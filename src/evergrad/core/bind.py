"""The one door through which every op goes.

:func:`bind` asks the row for its rule, then either evaluates with NumPy or writes an equation, and
records a node if a gradient may be asked for. :func:`assign` is the only write there is.
Nothing else in the engine looks at the mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from evergrad.core.dtypes import from_numpy_dtype
from evergrad.core.node import GraphNode, Leaf, Node, Packed, keep, next_sequence
from evergrad.core.op import TABLE, Op, Rule
from evergrad.core.quiet import QUIET, numpy_errors
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.site import user_site
from evergrad.core.state import STATE, State, using
from evergrad.core.storage import Storage
from evergrad.core.tensor import (
    Step,
    Tensor,
    View,
    _new,
    current_node,
    detached,
    fresh,
    on_storage,
)
from evergrad.core.trace import Graph, Trace, Var, leaked

Scalar: tuple[type, ...] = (bool, int, float, complex)

_new_node = Node.__new__

# A view that took more steps than this is described by one as_strided step instead.
_LONGEST_CHAIN = 6


def bind(op: Op, *args: Any, **attrs: Any) -> Any:
    """Apply an op to tensors (and Python numbers)."""
    if len(args) == 2:
        a, b = args
        ta = a._type if isinstance(a, Tensor) else a.__class__
        tb = b._type if isinstance(b, Tensor) else b.__class__
        types: tuple[Any, ...] = (ta, tb)
    else:
        types = tuple([a._type if isinstance(a, Tensor) else a.__class__ for a in args])
    key = (types, tuple(attrs.items())) if attrs else types
    rule = op.rules.get(key)
    if rule is None:
        plain = tuple([_as_operand(op, a) for a in args])
        if any(p is not a for p, a in zip(plain, args, strict=True)):
            return bind(op, *plain, **attrs)
        rule = op.resolve(key, types, attrs)
    if rule.casts is not None:
        args = tuple(
            [a if c is None else cast(a, c) for a, c in zip(args, rule.casts, strict=True)]
        )
        return bind(op, *args, **attrs)
    state = STATE.get()
    if state.trace is not None:
        trace = _owner(state.trace, op, args)
        if trace is not None:
            return _emit(trace, state, rule, args)
    if op.alias:
        return _evaluate_view(state, rule, args)
    token = numpy_errors.set(QUIET)
    try:
        if len(args) == 2:
            value = rule.run(
                a._value if isinstance(a := args[0], Tensor) else a,
                b._value if isinstance(b := args[1], Tensor) else b,
            )
        else:
            value = rule.run(*[a._value if isinstance(a, Tensor) else a for a in args])
    except MemoryError:
        raise _out_of_memory(rule) from None
    finally:
        numpy_errors.reset(token)
    if rule.single:
        type = rule.out_types[0]
        out = _new(Tensor)
        out._value = value
        out._type = type
        out._storage = Storage(value, type, type.nbytes)
        out._node = None
        out._index = 0
        out._view = None
        out._leaf = None
        out._grad = None
        if state.trace is not None:
            state.trace.adopt(out._storage)
        if state.grad and rule.differentiable:
            _record(state, rule, args, (out,))
        return out
    outs = tuple([fresh(v, t) for v, t in zip(value, rule.out_types, strict=True)])
    if state.trace is not None:
        for out in outs:
            state.trace.adopt(out._storage)
    if state.grad and rule.differentiable:
        _record(state, rule, args, outs)
    return outs


def _as_operand(op: Op, arg: Any) -> Any:
    """Accept NumPy numbers and subclasses of Python's; refuse anything else by name."""
    if isinstance(arg, Tensor) or arg.__class__ in Scalar:
        return arg
    if isinstance(arg, np.generic):
        return arg.item()
    for kind in Scalar:
        if isinstance(arg, kind):
            return kind(arg)
    raise TypeError(
        f"{op.name}(): an argument must be a Tensor or a number, not {type(arg).__name__}"
    )


def cast(tensor: Tensor, dtype: Any) -> Tensor:
    """The same numbers in another element type."""
    return tensor if tensor._type.dtype is dtype else bind(TABLE["cast"], tensor, dtype=dtype)


def as_operand_tensor(value: Any, type: Any) -> Any:
    """A Python number as the 0-d tensor that the op takes it for; formulas then keep its type."""
    if isinstance(value, Tensor) or not isinstance(type, TensorType):
        return value
    return bind(TABLE["full"], value, size=(), dtype=type.dtype)


def _out_of_memory(rule: Rule) -> MemoryError:
    from evergrad.memory.reports import out_of_memory

    size = sum(t.nbytes for t in rule.out_types)
    return out_of_memory(f"{rule.op.name} could not get {size:,} bytes for {rule.out_types}")


# -- history ------------------------------------------------------------------------------------


def _record(
    state: State,
    rule: Rule,
    args: tuple[Any, ...],
    outs: tuple[Tensor, ...],
    traced: tuple[Any, ...] | None = None,
) -> Node | None:
    """Give the results a node, if any argument asks for a gradient.

    ``traced`` are the arguments as values of the running trace, where there is one.
    """
    needs = 0
    bit = 1
    parents: list[GraphNode | None] = []
    indices: list[int] | None = None
    for arg in args:
        node = None
        if isinstance(arg, Tensor):
            node = arg._node if arg._view is None else current_node(arg)
            if node is not None:
                needs |= bit
                if arg._index:
                    if indices is None:
                        indices = [0] * len(args)
                    indices[len(parents)] = arg._index
        parents.append(node)
        bit += bit
    if not needs:
        return None
    plan = rule.plans.get(needs)
    if plan is None:
        plan = rule.plan(needs)
    saved: Any = ()
    if plan.saves:
        if state.saved_hooks is None:
            saved = _keep(plan.saves, args, outs, traced)
        else:
            saved = _pack_all(state, plan.saves, args, outs)
    node = _new_node(Node)
    node.seq = next_sequence()
    node.hooks = None
    node.plan = plan
    node.parents = tuple(parents)
    node.indices = None if indices is None else tuple(indices)
    node.saved = saved
    node.site = user_site(2)
    if rule.chooses:
        _settle_behind(node)
    if len(outs) == 1:
        out = outs[0]
        out._node = node
        return node
    for j, out in enumerate(outs):
        if out._type.dtype.category >= 2:
            out._node = node
            out._index = j
    return node


def _settle_behind(node: Node) -> None:
    """Tell what was computed elementwise before a choice that some of it may not have been chosen.

    Goes back through elementwise rows, reductions and rows that only move elements.
    """
    waiting = list(node.parents)
    while waiting:
        found = waiting.pop()
        if found.__class__ is not Node:
            continue
        plan = found.plan
        rule = plan.rule
        if plan.is_settled or rule.op.family in ("bilinear", "opaque"):
            continue
        found.plan = rule.settled_plan(plan)
        waiting += found.parents


def _keep(
    saves: tuple[int, ...],
    args: tuple[Any, ...],
    outs: tuple[Tensor, ...],
    traced: tuple[Any, ...] | None,
) -> tuple[Any, ...]:
    """The values a plan asks for, by reference."""
    kept: list[Any] = []
    count = len(args)
    for i in saves:
        source = args[i] if i < count else outs[i - count]
        if not isinstance(source, Tensor):
            kept.append((source, None, 0, None))
            continue
        value = source._value if traced is None or i >= count else traced[i]
        storage = source._storage
        if storage.saved and not storage.shared:
            kept.append((value, storage, storage.version, None))
        else:
            kept.append(keep(value, storage))
    return tuple(kept)


def _pack_all(
    state: State, saves: tuple[int, ...], args: tuple[Any, ...], outs: tuple[Tensor, ...]
) -> list[Any]:
    """The values a plan asks for, through the hooks; a list, to be told from plain ones."""
    count = len(args)
    sources = [args[i] if i < count else outs[i - count] for i in saves]
    return [
        _pack(state, source, i >= count) if isinstance(source, Tensor) else (source, None, 0, None)
        for i, source in zip(saves, sources, strict=True)
    ]


def _pack(state: State, tensor: Tensor, is_result: bool) -> Packed:
    """Hand a value to the pack hook; a result is detached, so that it does not hold its node."""
    assert state.saved_hooks is not None
    pack, unpack = state.saved_hooks
    version = tensor._storage.version
    with using(saved_hooks=None):
        packed = pack(detached(tensor) if is_result else tensor)
    if tensor._storage.version != version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input "
            "to pack hook can not be modified by in-place operations: let it return a changed copy."
        )
    return Packed(packed, unpack, tensor)


# -- views --------------------------------------------------------------------------------------


def _evaluate_view(state: State, rule: Rule, args: tuple[Any, ...]) -> Tensor:
    source: Tensor = args[0]
    if rule.op.alias == "reshape" and not viewable(source._value, rule.out_types[0].shape):
        args = (source,) = (bind(TABLE["clone"], source),)
    value = rule.run(source._value)
    out = on_storage(value, rule.out_types[0], source._storage, None)
    out._view = _view_after(state, source, rule, value)
    if state.grad and rule.differentiable:
        _record(state, rule, args, (out,))
    return out


def viewable(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether a reshape of this array needs no copy."""
    if array.flags.c_contiguous:
        return True
    try:
        array.reshape(shape, copy=False)
    except ValueError:
        return False
    return True


def _view_after(state: State, source: Tensor, rule: Rule, layout: Any) -> View:
    view = source._view
    chain = () if view is None else view.chain
    base = source if view is None or view.base is None else view.base
    hidden = not state.grad
    if rule.op.name == "as_strided" or len(chain) > _LONGEST_CHAIN:
        chain = (_as_one_step(source, layout),)
        # The step starts at the storage; from a leaf that is itself a view it cannot be retraced.
        hidden = hidden or base._view is not None
    else:
        chain = (*chain, (rule.op, rule.attrs))
    if hidden:
        return View(None, chain, source._storage.version, from_no_grad=base)
    return View(base, chain, source._storage.version)


def _as_one_step(source: Tensor, layout: Any) -> Step:
    whole = source._storage.value
    whole = whole.layout if isinstance(whole, Var) else whole
    size = layout.itemsize
    start = layout.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    attrs = {
        "size": tuple(layout.shape),
        "stride": tuple(s // size for s in layout.strides),
        "offset": int(start) // size,
        "base_stride": tuple(s // whole.itemsize for s in whole.strides),
    }
    return TABLE["as_strided"], attrs


def _replay(value: Tensor, steps: Sequence[Step]) -> Tensor:
    for op, attrs in steps:
        value = bind(op, value, **attrs)
    return value


def _base_of(view: View) -> Tensor | None:
    """The tensor whose history a view follows.

    A base that has become a view itself (``squeeze_()``, ``transpose_()``) passes that on to what
    it was before.
    """
    base = view.base
    while base is not None and base._view is not None and base._view.base is not None:
        base = view.base = base._view.base
    return base


def _steps_from(base: Tensor, tensor: Tensor) -> tuple[Step, ...]:
    assert tensor._view is not None
    chain = tensor._view.chain
    before = () if base._view is None else base._view.chain
    if chain[: len(before)] != before:
        raise RuntimeError(
            "the leaf this is a view of has since been given another shape in place (squeeze_(), "
            "transpose_(), ...), so that gradients cannot pass through the view any more. Make the "
            "view after that."
        )
    return chain[len(before) :]


def refresh(tensor: Tensor) -> None:
    """Rebuild the history of a view whose storage was written since it was made."""
    view = tensor._view
    assert view is not None
    base = _base_of(view)
    assert base is not None
    view.seen = tensor._storage.version
    node = base._node
    if node is None:
        tensor._node = None
        return
    with using(grad=True, saved_hooks=None):
        replayed = _replay(base, _steps_from(base, tensor))
    assert replayed._node is not None
    _keep_retaining(tensor, replayed._node, replayed._index)
    tensor._node, tensor._index = replayed._node, replayed._index


# -- writing ------------------------------------------------------------------------------------


def assign(target: Tensor, value: Tensor, fresh: bool = False) -> Tensor:
    """Overwrite the elements that ``target`` looks at. ``value`` has exactly its type; ``fresh``
    says that it was made for this write alone."""
    state = STATE.get()
    storage = target._storage
    check_writable(state, target, value)
    trace = state.trace
    if trace is not None:
        trace = _owner(trace, None, (target, value)) or trace.reader(storage)
    if trace is None:
        np.copyto(target._value, value._value)
    else:
        _assign_traced(trace, target, value)
    storage.version += 1
    storage.writer = user_site(1)
    if state.grad:
        _record_write(state, target, value, fresh)
    return target


def refuse_overlap(array: Any) -> None:
    """Raise if one element of memory stands for several of the array (``expand``)."""
    if (
        array.size
        and 0 in array.strides
        and any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )


def check_writable(state: State, target: Tensor, value: Tensor | None) -> None:
    refuse_overlap(target.layout_array())
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
    base = _base_of(view)
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


def _record_write(state: State, target: Tensor, value: Tensor, fresh: bool) -> None:
    """Let the history of the target go through the value that was written.

    ``fresh`` says that no other tensor stands at the value's place in the graph, so that the target
    may take it over.
    """
    view = target._view
    source = current_node(value)
    base = None if view is None else _base_of(view)
    if base is None:
        base = target
    if source is None and base._node is None:
        return
    node: GraphNode
    if fresh and source is not None and base is target:
        node, index = source, value._index
    else:
        node, index = _node_of_write(base, target, value), 0
    _keep_retaining(base, node, index)
    base._node, base._index = node, index
    if base is target and view is not None:
        view.seen = target._storage.version


def _node_of_write(base: Tensor, target: Tensor, value: Tensor) -> Node:
    """The base with the target's part replaced; what was overwritten has a gradient of zero."""
    steps = () if base is target else _steps_from(base, target)
    attrs = {"steps": Steps(steps)}
    types = (base._type, value._type)
    key = (types, tuple(attrs.items()))
    update = TABLE["update"]
    rule = update.rules.get(key) or update.resolve(key, types, attrs)
    before, source = base._node, value._node
    needs = (1 if before is not None else 0) | (2 if source is not None else 0)
    return Node(rule.plan(needs), (before, source), (base._index, value._index), ())


def _keep_retaining(tensor: Tensor, node: GraphNode, index: int) -> None:
    """A gradient that was to be kept is from now on that of the value at the given place."""
    before = tensor._node
    if before is None or before.hooks is None or not tensor.retains_grad:
        return
    node.ensure_hooks().retained[index] = before.hooks.retained.pop(tensor._index)


class Steps:
    """View steps as an attribute: compared by content."""

    __slots__ = ("_key", "steps")

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self._key = tuple((op.name, tuple(attrs.items())) for op, attrs in steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Steps) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return " ".join(name for name, _ in self._key) or "whole"


def _assign_traced(trace: Trace, target: Tensor, value: Tensor) -> None:
    storage = target._storage
    held = storage.value
    view = target._view
    if not (isinstance(held, Var) and held.trace is trace):
        handle = on_storage(held, storage.type, storage, None)
        trace.note_write(storage, handle, None)
        held = trace.capture(handle)
    if STATE.get().grad and id(storage) in trace.written:
        base = target if view is None else _base_of(view)
        if base is not None and base._view is None:
            trace.note_write(storage, base, base)
    written = trace_value(trace, value)
    if view is not None or written.layout.strides != held.layout.strides:
        attrs = {"steps": Steps(() if view is None else view.chain)}
        types = (storage.type, value._type)
        key = (types, tuple(attrs.items()))
        update = TABLE["update"]
        rule = update.rules.get(key) or update.resolve(key, types, attrs)
        (written,) = trace.emit(rule, (held, written), user_site(2), held.layout)
    storage.value = written
    if view is None and isinstance(target._value, Var) and target._value.trace is trace:
        target._value = written


def write_in_place(op: Op, target: Tensor, *others: Any, **attrs: Any) -> Tensor:
    """``target.op_(*others)``: without a temporary where no history needs one."""
    state = STATE.get()
    if state.trace is None and op.takes_out:
        args = (target, *others)
        wants_history = state.grad and any(
            isinstance(a, Tensor) and current_node(a) is not None for a in args
        )
        if not wants_history:
            types = tuple([a._type if isinstance(a, Tensor) else a.__class__ for a in args])
            key = (types, tuple(attrs.items())) if attrs else types
            rule = op.rules.get(key) or op.resolve(key, types, attrs)
            out = rule.out_types[0]
            same = rule.casts is None and out.same(target._type)
            if same and out.dtype.compute is out.dtype.np and not _weak_integers(rule):
                return _run_into(state, rule, target, args)
    since = next_sequence()
    result = bind(op, target, *others, **attrs)
    return write_result(op.name, target, result, since)


def _weak_integers(rule: Rule) -> bool:
    return rule.out_types[0].dtype.category < 2 and any(isinstance(t, type) for t in rule.types)


def _run_into(state: State, rule: Rule, target: Tensor, args: tuple[Any, ...]) -> Tensor:
    check_writable(state, target, None)
    token = numpy_errors.set(QUIET)
    try:
        rule.op.eval(
            *[a._value if isinstance(a, Tensor) else a for a in args],
            out=target._value,
            **rule.attrs,
        )
    finally:
        numpy_errors.reset(token)
    storage = target._storage
    storage.version += 1
    storage.writer = user_site(2)
    return target


def write_result(name: str, target: Tensor, result: Tensor, since: int | None = None) -> Tensor:
    """Write a computed value into a tensor, as in-place forms do.

    What the nodes made ``since`` then saved of the target is about to be overwritten by their own
    op, so they get copies of it.
    """
    from evergrad.core.dtypes import can_cast

    if since is not None and result._node is not None:
        _keep_copies(result._node, target._storage, since)
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
    node = result._node
    return assign(target, result, fresh=since is None or node is None or node.seq > since)


def _keep_copies(node: GraphNode, storage: Storage, since: int) -> None:
    waiting: list[GraphNode | None] = [node]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if not isinstance(found, Node) or found.seq < since or found.seq in seen:
            continue
        seen.add(found.seq)
        waiting += found.parents
        if found.saved:
            found.saved = type(found.saved)(_own_copy(entry, storage) for entry in found.saved)


def _own_copy(entry: Any, storage: Storage) -> Any:
    """A kept value in a storage of its own, if it was in the given one."""
    if entry.__class__ is Packed or entry[1] is not storage:
        return entry
    value = entry[0]
    if isinstance(value, Var):  # a symbolic value cannot be overwritten, only its storage moves on
        return keep(value, Storage(value, value.type, 0))
    copy = value.copy()
    type = tensor_type(copy.shape, from_numpy_dtype(copy.dtype))
    return keep(copy, Storage(copy, type, type.nbytes))


# -- tracing ------------------------------------------------------------------------------------


def _owner(innermost: Trace, op: Op | None, args: tuple[Any, ...]) -> Trace | None:
    """The innermost trace that knows one of the arguments; ``None`` if all are arrays."""
    found: Trace | None = None
    tensors = False
    for arg in args:
        if isinstance(arg, Tensor):
            tensors = True
            held = arg._storage.value
            if isinstance(held, Var) and (found is None or held.trace.depth > found.depth):
                found = held.trace
    if op is not None and (op.random or not tensors):
        return innermost  # what is made inside a trace belongs to it
    if found is not None and not found.encloses(innermost):
        raise leaked()
    return found


def trace_value(trace: Trace, tensor: Tensor) -> Var:
    """A tensor as a value of this trace: its own, replayed if written since, or captured."""
    storage = tensor._storage
    held = storage.value
    if not (isinstance(held, Var) and held.trace is trace):
        return trace.capture(tensor)
    view = tensor._view
    if view is None:
        return held
    value = tensor._value
    if isinstance(value, Var) and value.trace is trace and view.traced == storage.version:
        return value
    for op, attrs in view.chain:
        types = (held.type,)
        key = (types, tuple(attrs.items())) if attrs else types
        rule = op.rules.get(key) or op.resolve(key, types, attrs)
        (held,) = trace.emit(rule, (held,), user_site(3), op.eval(held.layout, **attrs))
    if isinstance(value, Var):  # a tensor of the outside keeps its array
        tensor._value = held
        view.traced = storage.version
    return held


def in_trace(tensor: Tensor) -> Tensor:
    """A tensor of the outside as one of the running trace, so that what is done to the handle (such
    as asking for its gradient) stays inside; itself where there is no trace."""
    trace = STATE.get().trace
    if trace is None or isinstance(tensor._storage.value, Var):
        return tensor
    return fresh(trace.capture(tensor), tensor._type)


def _emit(trace: Trace, state: State, rule: Rule, args: tuple[Any, ...]) -> Any:
    values = tuple([trace_value(trace, a) if isinstance(a, Tensor) else a for a in args])
    outs: tuple[Tensor, ...]
    if rule.op.alias:
        source: Tensor = args[0]
        if rule.op.alias == "reshape" and not viewable(values[0].layout, rule.out_types[0].shape):
            return bind(rule.op, bind(TABLE["clone"], source), **rule.attrs)
        layout = rule.op.eval(values[0].layout, **rule.attrs)
        (var,) = trace.emit(rule, values, user_site(2), layout, state.muted)
        out = on_storage(var, rule.out_types[0], source._storage, None)
        out._view = _view_after(state, source, rule, layout)
        outs = (out,)
    else:
        results = trace.emit(rule, values, user_site(2), muted=state.muted)
        outs = tuple([fresh(v, v.type) for v in results])
    if state.grad and rule.differentiable:
        _record(state, rule, args, outs, values)
    return outs[0] if rule.single else outs


class Tracer:
    """The hands of :func:`tracing`: makes the inputs, and the graph at the end."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def input(self, type: TensorType) -> Tensor:
        return fresh(self.trace.add_input(type), type)

    def finish(self, outputs: Sequence[Tensor | None]) -> Graph:
        values = [trace_value(self.trace, o) if isinstance(o, Tensor) else o for o in outputs]
        return self.trace.finish(values)


@contextmanager
def tracing(grad: bool = False) -> Iterator[Tracer]:
    """Inside, ops on the tracer's inputs write equations."""
    trace = Trace(STATE.get().trace)
    with using(trace=trace, grad=grad, muted=False, saved_hooks=None):
        try:
            yield Tracer(trace)
        finally:
            trace.abandon()


def interpret(graph: Graph, *args: Any) -> tuple[Any, ...]:
    """Run a graph row by row through :func:`bind`."""
    since = next_sequence()
    env: dict[Var, Any] = dict(zip(graph.inputs, args, strict=True))
    env.update(graph.captures)
    for eqn in graph.equations:
        out = eqn.apply(*[env[a] if isinstance(a, Var) else a for a in eqn.args])
        if eqn.op.outputs == 1:
            env[eqn.outs[0]] = out
        else:
            env.update(zip(eqn.outs, out, strict=True))
    for handle, var in graph.writes:
        write_back(handle, env[var], since)
    return tuple(env[o] if isinstance(o, Var) else o for o in graph.outputs)


def write_back(handle: Tensor, value: Tensor, since: int) -> None:
    """Give a tensor of the outside the value it has at the end of a graph. What the graph's nodes
    saved of its memory, they keep as copies."""
    if value._node is not None:
        _keep_copies(value._node, handle._storage, since)
    assign(handle, value)
