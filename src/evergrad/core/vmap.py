"""vmap: a graph of one example, batched equation by equation.

Each value has a batch dimension or is the same for all examples. A row with a batching rule runs
once; others run one example at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from evergrad.core.batch_plan import Batched, run_planned
from evergrad.core.bind import bind
from evergrad.core.inplace import assign
from evergrad.core.interpret import write_back
from evergrad.core.namespace import ops
from evergrad.core.node import next_sequence
from evergrad.core.op import Op
from evergrad.core.shapes import normalize_dim, tensor_type
from evergrad.core.state import using, without_autocast
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.traced_function import Output, trace
from evergrad.core.tree import TreeSpec, tree_flatten, tree_unflatten

if TYPE_CHECKING:
    from evergrad.core.shapes import TensorType
    from evergrad.core.types import AnyFunction, Leaves, Tree


@without_autocast
def batch_graph(
    graph: Graph, args: Sequence[Tensor], dims: Sequence[int | None], size: int, randomness: str
) -> list[Batched]:
    """The outputs of a graph on a batch, each with its batch dimension (``None``: unbatched)."""
    graph = graph.inlined()
    return run_planned(
        graph, args, dims, size, lambda: _batch_equations(graph, args, dims, size, randomness)
    )


def _batch_equations(
    graph: Graph, args: Sequence[Tensor], dims: Sequence[int | None], size: int, randomness: str
) -> list[Batched]:
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
                "but one sample cannot be shared by examples with arguments of their own. Use "
                "randomness='different', or sample outside of vmap"
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
    op: Op, args: Sequence[object], dims: Sequence[int | None], attrs: dict[str, object], size: int
) -> list[Batched]:
    """The row on one example at a time, stacked."""
    examples = []
    for i in range(size):
        given = [
            a if d is None else ops.clone(ops.select(a, d, i))
            for a, d in zip(args, dims, strict=True)
        ]
        out = bind(op, *given, **attrs)
        examples.append((out,) if op.outputs == 1 else out)
    if not examples:
        return [(_empty_batch(t), 0) for t in _types_of_example(op, args, dims, attrs)]
    return [(ops.stack(column), 0) for column in zip(*examples, strict=True)]


def _types_of_example(
    op: Op, args: Sequence[object], dims: Sequence[int | None], attrs: dict[str, object]
) -> tuple[object, ...]:
    types = tuple(
        _without_dim(a._type, d) if isinstance(a, Tensor) else type(a)
        for a, d in zip(args, dims, strict=True)
    )
    key = (types, tuple(attrs.items())) if attrs else types
    return (op.specializations.get(key) or op.resolve(key, types, attrs)).out_types


def _empty_batch(type: Any) -> Tensor:
    return ops.zeros((0, *type.shape), dtype=type.dtype)


def _without_dim(type: TensorType, dim: int | None) -> TensorType:
    if dim is None:
        return type
    return tensor_type(type.shape[:dim] + type.shape[dim + 1 :], type.dtype)


def vmap(
    func: Callable[..., object],
    in_dims: object = 0,
    out_dims: object = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> AnyFunction:
    """A function of one example as a function of a batch.

    ``in_dims`` is the batch dimension of each argument (``None``: the argument is the same for all
    examples), ``out_dims`` that of the results.

    >>> dot = eg.func.vmap(eg.dot)
    >>> dot(eg.ones(3, 2), eg.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    def batched(*args: object, **kwargs: object) -> Any:
        leaves, spec = tree_flatten(args)
        dims = _broadcast_dims(in_dims, args, spec)
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
    func: Callable[..., object], leaves: Leaves, dims: list[int | None], spec: TreeSpec,
    kwargs: dict[str, object], size: int, out_dims: object, randomness: str,
) -> object:  # fmt: skip
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def on_tensors(*tensors: Tensor) -> Any:
        given = list(leaves)
        for i, tensor in zip(at, tensors, strict=True):
            given[i] = tensor
        return func(*tree_unflatten(given, spec), **kwargs)

    traced = trace(on_tensors, [_without_dim(leaves[i]._type, dims[i]) for i in at])
    traced.refuse_lost_history([leaves[i] for i in at])
    results = batch_graph(
        traced.graph, [leaves[i] for i in at], [dims[i] for i in at], size, randomness
    )
    for i in traced.repeated:
        value, dim = results[i]
        results[i] = ops.clone(value), dim
    for leaf in traced.leaves:
        if not isinstance(leaf, Output):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type "
                f"{type(leaf)}. Did you mean to set out_dims= to None for output?"
            )
    for number, written in traced.writes(results):
        _overwrite_batched(leaves[at[number]], dims[at[number]], written)
    tree = traced.rebuild(list(range(len(results))))
    order, out_spec = tree_flatten(tree)
    targets = _broadcast_dims(out_dims, tree, out_spec)
    moved = [
        _with_batch_dim(results[i], dim, size, _name(func))
        for i, dim in zip(order, targets, strict=True)
    ]
    return tree_unflatten(moved, out_spec)


def _overwrite_batched(target: Tensor, dim: int | None, written: Batched) -> None:
    """Write the final value of a batched argument back to it."""
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


def _with_batch_dim(result: Batched, dim: int | None, size: int, name: str) -> Tensor:
    """A result with its batch dimension moved to ``out_dims``."""
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
    func: Callable[..., object], leaves: list[object], dims: list[int | None], spec: TreeSpec,
    kwargs: dict[str, object], size: int, out_dims: object, randomness: str, chunk: int,
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
    targets = _broadcast_dims(out_dims, parts[0], flat[0][1])
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    joined = [
        column[0] if dim is None else ops.cat(column, dim)
        for column, dim in zip(columns, targets, strict=True)
    ]
    result: Tensor | dict[str, Tensor | tuple[Tensor, Tensor]] | tuple[Tensor, ...] = (
        tree_unflatten(joined, flat[0][1])
    )
    return result


def _broadcast_dims(dims: Any, tree: Tree, spec: TreeSpec) -> Leaves:
    """One dimension per leaf, from an int or a tree that is a prefix of the arguments'."""
    if dims is None or isinstance(dims, int):
        return [dims] * spec.num_leaves
    if spec.is_leaf():
        if isinstance(dims, (tuple, list)) and len(dims) == 1:
            return _broadcast_dims(dims[0], tree, spec)
        raise ValueError(f"vmap: dims {dims!r} do not fit a single value")
    children = list(tree.values()) if isinstance(tree, dict) else list(tree)
    given = [dims[key] for key in tree] if isinstance(dims, dict) else list(dims)
    if len(given) != len(children):
        raise ValueError(
            f"vmap: in_dims/out_dims {dims!r} is not compatible with the structure of the values "
            f"({len(children)} of them)"
        )
    found: Leaves = []
    for dim, child, child_spec in zip(given, children, spec.children, strict=True):
        found += _broadcast_dims(dim, child, child_spec)
    return found


def _checked_dim(func: object, leaf: Any, dim: Any) -> int | None:
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


def _name(func: object) -> str:
    return getattr(func, "__name__", repr(func))
