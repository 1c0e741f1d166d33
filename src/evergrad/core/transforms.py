"""Interpreters over traced graphs: forward derivatives and batching.

Each walks the equations of a :class:`Graph` and calls ``bind`` again, so the result can be
recorded, traced, differentiated or batched once more. There are no tracer levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from evergrad.core import dtypes
from evergrad.core.bind import as_operand_tensor, bind
from evergrad.core.inplace import assign
from evergrad.core.interpret import write_back
from evergrad.core.namespace import ops
from evergrad.core.node import next_sequence
from evergrad.core.op import Op
from evergrad.core.shapes import normalize_dim, tensor_type
from evergrad.core.source_location import SourceLocation, describe
from evergrad.core.state import STATE, using, without_autocast
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.tracing import tracing
from evergrad.core.tree import TreeSpec, tree_flatten, tree_unflatten
from evergrad.errors import GradientError
from evergrad.extension import ExtensionPoint

_grad: ExtensionPoint[..., tuple[Tensor, ...]] = ExtensionPoint("grad")

Tangent = Tensor | None


class Traced:
    """A function as a graph, with the form of its results.

    The last outputs of the graph are what the function wrote into its arguments ``overwritten``.
    """

    __slots__ = ("graph", "leaves", "no_grad_write", "overwritten", "spec")

    def __init__(
        self, graph: Graph, leaves: list[Any], spec: TreeSpec, overwritten: list[int],
        no_grad_write: SourceLocation | None,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.leaves = leaves  # which output of the graph, or a result that is no tensor
        self.spec = spec
        self.overwritten = overwritten
        self.no_grad_write = no_grad_write

    def refuse_lost_history(self, args: Sequence[Any]) -> None:
        """Raise if a gradient is being recorded around a function that overwrites a value under
        ``no_grad()``: its history would be that of the value before, which a graph cannot say."""
        if self.no_grad_write is None or not STATE.get().grad:
            return
        tensors = [*args, *(tensor for _, tensor in self.graph.captures)]
        if any(current_node(t) is not None for t in tensors):
            raise GradientError(
                "a value was overwritten in place under no_grad(), inside a function given to vmap "
                "or jvp, while a gradient is being recorded around it; that gradient would not be "
                "right.\n"
                f"  overwritten by: {describe(self.no_grad_write)}\n"
                "  fix: use the out-of-place form there, or overwrite a clone()."
            )

    def rebuild(self, results: Sequence[Any]) -> Any:
        """The function's result from the graph's outputs."""
        filled = [
            results[leaf.place] if isinstance(leaf, _Output) else leaf for leaf in self.leaves
        ]
        return tree_unflatten(filled, self.spec)

    def writes(self, results: Sequence[Any]) -> list[tuple[int, Any]]:
        """The arguments the function wrote to, with what they hold afterwards."""
        count = len(self.overwritten)
        return list(zip(self.overwritten, results[len(results) - count :], strict=True))


class _Output:
    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


def trace(function: Callable[..., Any], types: Sequence[Any]) -> Traced:
    """Run a function of tensors on symbolic values of these types."""
    with tracing(grad=STATE.get().grad) as tracer:
        inputs = [tracer.input(t) for t in types]
        before = [t._storage.value for t in inputs]
        result = function(*inputs)
        leaves, spec = tree_flatten(result)
        tensors: list[Tensor] = []
        places: list[Any] = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                places.append(_Output(len(tensors)))
                tensors.append(leaf)
            else:
                places.append(leaf)
        overwritten = [
            i
            for i, (t, v) in enumerate(zip(inputs, before, strict=True))
            if t._storage.value is not v
        ]
        graph = tracer.finish([*tensors, *(inputs[i] for i in overwritten)])
    return Traced(graph, places, spec, overwritten, tracer.trace.no_grad_write)


# -- forward derivatives ------------------------------------------------------------------------


@without_autocast
def jvp_graph(
    graph: Graph, primals: Sequence[Tensor], tangents: Sequence[Tangent]
) -> tuple[list[Any], list[Tangent]]:
    """Run a graph together with its derivative in the direction of the tangents."""
    graph = graph.inlined()
    since = next_sequence()
    env: dict[Var, Any] = dict(zip(graph.inputs, primals, strict=True))
    env.update(graph.captures)
    moving: dict[Var, Tensor] = {
        var: t for var, t in zip(graph.inputs, tangents, strict=True) if t is not None
    }
    for eqn in graph.equations:
        args = [env[a] if isinstance(a, Var) else a for a in eqn.args]
        out = eqn.apply(*args)
        single = eqn.op.outputs == 1
        env.update(zip(eqn.outs, (out,) if single else out, strict=True))
        directions = [moving.get(a) if isinstance(a, Var) else None for a in eqn.args]
        if all(t is None for t in directions) or not eqn.op.differentiable:
            continue
        typed = [
            as_operand_tensor(a, t) for a, t in zip(args, eqn.specialization.operands, strict=True)
        ]
        with using(grad=False, no_grad=True) if eqn.no_grad else nullcontext():
            found = op_jvp(eqn.op, directions, out, typed, eqn.attrs)
        for var, t in zip(eqn.outs, (found,) if single else found, strict=True):
            if t is not None:
                moving[var] = t
    for handle, var in graph.writes:
        write_back(handle, env[var], since)
    outs = [env[o] if isinstance(o, Var) else o for o in graph.outputs]
    return outs, [moving.get(o) if isinstance(o, Var) else None for o in graph.outputs]


def op_jvp(
    op: Op, tangents: Sequence[Tangent], out: Any, args: Sequence[Any], attrs: dict[str, Any]
) -> Any:
    """The tangent of one op's result: by its own rule, or as the transpose of its vjp."""
    if op.jvp is not None:
        return op.jvp(tangents, out, *args, **attrs)
    return _transposed_vjp(op, tangents, out, args, attrs)


def _transposed_vjp(
    op: Op, tangents: Sequence[Tangent], out: Any, args: Sequence[Any], attrs: dict[str, Any]
) -> Any:
    """The vjp is linear in the cotangent; its own vjp there is the jvp."""
    assert callable(op.vjp)
    recording = STATE.get().grad and any(
        isinstance(t, Tensor) and current_node(t) is not None for t in (*args, *tangents)
    )
    outs = (out,) if op.outputs == 1 else out
    with using(grad=True, saved_hooks=None):
        probes = [
            ops.zeros_like(o).requires_grad_()
            if o.dtype.category >= dtypes.FLOATING
            else ops.zeros_like(o)
            for o in outs
        ]
        grads = op.vjp(probes[0] if op.outputs == 1 else tuple(probes), out, *args, **attrs)
        grads = grads if isinstance(grads, tuple) else (grads,)
        pairs = [
            (g, t)
            for g, t in zip(grads, tangents, strict=True)
            if t is not None and g is not None and g.requires_grad
        ]
        wanted = [p for p in probes if p.requires_grad]
        found: list[Any] = [None] * len(wanted)
        if pairs and wanted:
            found = list(
                _grad(
                    [g for g, _ in pairs], wanted, [t for _, t in pairs],
                    create_graph=recording, allow_unused=True,
                )
            )  # fmt: skip
    moved = iter(found)
    result = tuple(next(moved) if p.requires_grad else None for p in probes)
    return result[0] if op.outputs == 1 else result


# -- batching -----------------------------------------------------------------------------------

Batched = tuple[Any, int | None]


@without_autocast
def batch_graph(
    graph: Graph, args: Sequence[Tensor], dims: Sequence[int | None], size: int, randomness: str
) -> list[Batched]:
    """Run a graph on many examples at once; gives each result with its batch dimension."""
    graph = graph.inlined()
    since = next_sequence()
    env: dict[Var, Batched] = {
        var: (arg, dim) for var, arg, dim in zip(graph.inputs, args, dims, strict=True)
    }
    for var, tensor in graph.captures:
        env[var] = (tensor, None)
    for eqn in graph.equations:
        pairs = [env[a] if isinstance(a, Var) else (a, None) for a in eqn.args]
        with using(grad=False, no_grad=True) if eqn.no_grad else nullcontext():
            outs = _batch_equation(eqn, pairs, size, randomness)
        env.update(zip(eqn.outs, outs, strict=True))
    for handle, var in graph.writes:
        value, dim = env[var]
        if dim is not None:
            raise _batched_into_unbatched()
        write_back(handle, value, since)
    return [env[o] if isinstance(o, Var) else (o, None) for o in graph.outputs]


def _batch_equation(
    eqn: Equation, pairs: Sequence[Batched], size: int, randomness: str
) -> list[Batched]:
    op, attrs = eqn.op, eqn.attrs
    args = [value for value, _ in pairs]
    dims = [dim for _, dim in pairs]
    plain = all(dim is None for dim in dims)
    if op.random and op.family != "custom":
        if randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap"
            )
        if randomness == "different":
            return _batch_by_loop(op, args, dims, attrs, size)
        if not plain:
            raise RuntimeError(
                "vmap: called a random operation with batched arguments in randomness 'same' mode, "
                "but one draw cannot serve examples with arguments of their own. Use randomness="
                "'different', or draw outside of vmap"
            )
    if plain:
        out = op.apply(*args, **attrs)
        return [(o, None) for o in ((out,) if op.outputs == 1 else out)]
    if op.batch is None:
        return _batch_by_loop(op, args, dims, attrs, size)
    if op.family == "custom":
        op.randomness = randomness  # type: ignore[attr-defined]
    out, dim = op.batch(op, args, dims, **attrs)
    if op.outputs == 1:
        return [(out, dim)]
    return [(o, dim) for o in out]


def _batch_by_loop(
    op: Op, args: Sequence[Any], dims: Sequence[int | None], attrs: dict[str, Any], size: int
) -> list[Batched]:
    """Any row can be batched one example at a time."""
    rounds = []
    for i in range(size):
        given = [
            a if d is None else ops.clone(ops.select(a, d, i))
            for a, d in zip(args, dims, strict=True)
        ]
        out = bind(op, *given, **attrs)
        rounds.append((out,) if op.outputs == 1 else out)
    if not rounds:
        return [(_no_examples(t), 0) for t in _types_without_examples(op, args, dims, attrs)]
    return [(ops.stack(column), 0) for column in zip(*rounds, strict=True)]


def _types_without_examples(
    op: Op, args: Sequence[Any], dims: Sequence[int | None], attrs: dict[str, Any]
) -> tuple[Any, ...]:
    types = tuple(
        _without(a._type, d) if isinstance(a, Tensor) else type(a)
        for a, d in zip(args, dims, strict=True)
    )
    key = (types, tuple(attrs.items())) if attrs else types
    return (op.specializations.get(key) or op.resolve(key, types, attrs)).out_types


def _no_examples(type: Any) -> Tensor:
    return ops.zeros((0, *type.shape), dtype=type.dtype)


def _without(type: Any, dim: int | None) -> Any:
    if dim is None:
        return type
    return tensor_type(type.shape[:dim] + type.shape[dim + 1 :], type.dtype)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function of one example as a function of many.

    ``in_dims`` says which dimension of each argument runs over the examples (``None``: the argument
    is the same for all), ``out_dims`` where to put it in the results.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    def batched(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten(args)
        dims = _spread(in_dims, args, spec)
        for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
            dims[i] = _checked_dim(func, leaf, dim)
        sizes = {leaf._type.shape[d] for leaf, d in zip(leaves, dims, strict=True) if d is not None}
        if not sizes:
            raise ValueError(
                f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>): at least one input must "
                "have a dimension to map over"
            )
        if len(sizes) > 1:
            raise ValueError(
                "vmap: Expected all tensors to have the same size in the mapped dimension, got "
                f"sizes {sorted(sizes)} for the mapped dimension"
            )
        size = sizes.pop()
        if chunk_size is None or chunk_size >= size:
            return _vmap_once(func, leaves, dims, spec, kwargs, size, out_dims, randomness)
        return _vmap_in_chunks(
            func, leaves, dims, spec, kwargs, size, out_dims, randomness, chunk_size
        )

    return batched


def _vmap_once(
    func: Callable[..., Any], leaves: list[Any], dims: list[int | None], spec: TreeSpec,
    kwargs: dict[str, Any], size: int, out_dims: Any, randomness: str,
) -> Any:  # fmt: skip
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def on_tensors(*tensors: Tensor) -> Any:
        given = list(leaves)
        for i, tensor in zip(at, tensors, strict=True):
            given[i] = tensor
        return func(*tree_unflatten(given, spec), **kwargs)

    traced = trace(on_tensors, [_without(leaves[i]._type, dims[i]) for i in at])
    traced.refuse_lost_history([leaves[i] for i in at])
    results = batch_graph(
        traced.graph, [leaves[i] for i in at], [dims[i] for i in at], size, randomness
    )
    for leaf in traced.leaves:
        if not isinstance(leaf, _Output):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type "
                f"{type(leaf)}. Did you mean to set out_dims= to None for output?"
            )
    for number, written in traced.writes(results):
        _overwrite_batched(leaves[at[number]], dims[at[number]], written)
    tree = traced.rebuild(list(range(len(results))))
    order, out_spec = tree_flatten(tree)
    targets = _spread(out_dims, tree, out_spec)
    placed = [
        _place(results[i], dim, size, _name(func)) for i, dim in zip(order, targets, strict=True)
    ]
    return tree_unflatten(placed, out_spec)


def _overwrite_batched(target: Tensor, dim: int | None, written: Batched) -> None:
    """Write to an argument of a batched function what its examples were given."""
    value, at = written
    if dim is None:
        if at is not None:
            raise _batched_into_unbatched()
    elif at is not None:
        value = ops.movedim(value, at, dim)
    else:
        value = ops.movedim(
            ops.expand(value, (target._type.shape[dim], *value._type.shape)), 0, dim
        )
    assign(target, value)


def _batched_into_unbatched() -> RuntimeError:
    return RuntimeError(
        "vmap: inplace arithmetic is not possible because a batched value would be written into an "
        "unbatched tensor (one from outside the function, or given with in_dims=None). Return the "
        "new value instead of writing it."
    )


def _place(result: Batched, dim: int | None, size: int, name: str) -> Tensor:
    """Put the batch dimension of a result where ``out_dims`` wants it."""
    value, at = result
    if dim is None:
        if at is not None:
            raise ValueError(
                f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
            )
        return value  # type: ignore[no-any-return]
    if at is None:
        value, at = ops.expand(value, (size, *value._type.shape)), 0
    dim = normalize_dim(dim, value.ndim)
    return value if at == dim else ops.movedim(value, at, dim)


def _vmap_in_chunks(
    func: Callable[..., Any], leaves: list[Any], dims: list[int | None], spec: TreeSpec,
    kwargs: dict[str, Any], size: int, out_dims: Any, randomness: str, chunk: int,
) -> Any:  # fmt: skip
    parts = []
    for start in range(0, size, chunk):
        count = min(chunk, size - start)
        given = [
            leaf if d is None else ops.narrow(leaf, d, start, count)
            for leaf, d in zip(leaves, dims, strict=True)
        ]
        parts.append(_vmap_once(func, given, dims, spec, kwargs, count, out_dims, randomness))
    flat = [tree_flatten(part) for part in parts]
    targets = _spread(out_dims, parts[0], flat[0][1])
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    joined = [
        column[0] if dim is None else ops.cat(column, dim)
        for column, dim in zip(columns, targets, strict=True)
    ]
    return tree_unflatten(joined, flat[0][1])


def _spread(dims: Any, tree: Any, spec: TreeSpec) -> list[Any]:
    """One dimension per leaf from a number, or from a tree that is a prefix of the arguments'."""
    if dims is None or isinstance(dims, int):
        return [dims] * spec.num_leaves
    if spec.is_leaf():
        if isinstance(dims, (tuple, list)) and len(dims) == 1:
            return _spread(dims[0], tree, spec)
        raise ValueError(f"vmap: dims {dims!r} do not fit a single value")
    children = list(tree.values()) if isinstance(tree, dict) else list(tree)
    given = [dims[key] for key in tree] if isinstance(dims, dict) else list(dims)
    if len(given) != len(children):
        raise ValueError(
            f"vmap: in_dims/out_dims {dims!r} is not compatible with the structure of the values "
            f"({len(children)} of them)"
        )
    found: list[Any] = []
    for dim, child, child_spec in zip(given, children, spec.children, strict=True):
        found += _spread(dim, child, child_spec)
    return found


def _checked_dim(func: Any, leaf: Any, dim: Any) -> int | None:
    if dim is None or not isinstance(leaf, Tensor):
        if dim is not None and not isinstance(leaf, Tensor):
            raise ValueError(
                f"vmap({_name(func)}, ...): Got in_dim={dim} for an input but the input is of type "
                f"{type(leaf)}. We cannot vmap over non-Tensor arguments, please use None as the "
                "respective in_dim"
            )
        return None
    if not leaf.ndim or not -leaf.ndim <= dim < leaf.ndim:
        raise ValueError(
            f"vmap({_name(func)}, ...): Got in_dim={dim} for some input, but that input is a "
            f"Tensor of dimensionality {leaf.ndim} so expected in_dim to satisfy "
            f"-{leaf.ndim} <= in_dim < {leaf.ndim}."
        )
    return int(dim) % leaf.ndim


def _name(func: Any) -> str:
    return getattr(func, "__name__", repr(func))
