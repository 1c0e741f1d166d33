"""``grad vjp jvp linearize jacrev jacfwd hessian`` as functions of functions.

Reverse mode runs the function eagerly and walks its graph; forward mode traces the function and
interprets the graph with tangents.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from evergrad.autograd.engine import grad as graph_grad
from evergrad.core import dtypes
from evergrad.core.inplace import assign
from evergrad.core.interpret import interpret
from evergrad.core.jvp import jvp_graph
from evergrad.core.node import GraphNode, Leaf
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor, current_node, detached
from evergrad.core.traced_function import Output, trace
from evergrad.core.tracing import in_trace, tracing
from evergrad.core.tree import tree_flatten, tree_map, tree_unflatten
from evergrad.core.vmap import vmap
from evergrad.extension import provides
from evergrad.ops.rows.creation.constants import eye, ones_like, zeros_like
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import clone, movedim, reshape, view_as_is

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Leaves, Tree

ArgNums = int | tuple[int, ...]

# Leaves of finished calls that nothing outside depends on, but the graph of whose gradients is kept
# for the sake of cotangents.
_CLOSED: WeakSet[Leaf] = WeakSet()


# -- reverse ------------------------------------------------------------------------------------


def _watched(tensor: Tensor) -> Tensor:
    """The same tensor as a place of its own in the graph, connected to what came before."""
    if not isinstance(tensor, Tensor):
        raise RuntimeError(f"Expected a Tensor to differentiate by, got {type(tensor).__name__}")
    if tensor.dtype.category < dtypes.FLOATING:
        raise RuntimeError(
            f"cannot differentiate by a tensor of {tensor.dtype}; only floating point and complex"
        )
    if current_node(tensor) is None:
        return detached(in_trace(tensor)).requires_grad_()
    return view_as_is(tensor)


def _reaches_beyond(outputs: list[Tensor], watched: list[Tensor]) -> bool:
    """Whether the outputs also depend on something outside that asks for a gradient."""
    own = {t._node.seq for t in watched if isinstance(t._node, Leaf)}
    seen: dict[int, GraphNode] = {}
    heap: list[int] = []
    for out in outputs:
        node = current_node(out)
        if node is not None and node.seq not in seen:
            seen[node.seq] = node
            heappush(heap, -node.seq)
    while heap:
        node = seen[-heappop(heap)]
        if isinstance(node, Leaf) and node.seq not in own and node not in _CLOSED:
            return True
        for parent in node.parents:
            if parent is not None and parent.seq not in seen:
                seen[parent.seq] = parent
                heappush(heap, -parent.seq)
    return False


class _Recorded:
    """A call of a function whose chosen arguments are watched."""

    def __init__(
        self, func: Callable[..., object], argnums: ArgNums, has_aux: bool, args: Any, kwargs: Any
    ) -> None:
        self.outer = STATE.get().grad
        chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        for number in chosen:
            if not -len(args) <= number < len(args):
                raise RuntimeError(f"Got argnum={number}, but only {len(args)} positional inputs")
        self.single = isinstance(argnums, int)
        with using(grad=True):
            given = list(args)
            for number in chosen:
                given[number] = tree_map(_watched, args[number])
            self.trees = [given[number] for number in chosen]
            result = func(*given, **kwargs)
        self.aux = None
        if has_aux:
            if not (isinstance(result, tuple) and len(result) == 2):
                raise RuntimeError(
                    "has_aux=True: the function must return a tuple (output, aux), got "
                    f"{type(result).__name__}"
                )
            result, self.aux = result
        self.outputs, self.out_spec = tree_flatten(result)
        for out in self.outputs:
            if not isinstance(out, Tensor):
                raise RuntimeError(f"the function must return Tensors, got {type(out).__name__}")
        self.inputs, self.in_spec = tree_flatten(tuple(self.trees))
        self.create_graph = self.outer and _reaches_beyond(self.outputs, self.inputs)

    def released(self, value: object) -> object:
        """Results without the private part of the graph, unless the outside depends on it."""
        if self.create_graph:
            return value
        return tree_map(lambda v: detached(v) if isinstance(v, Tensor) else v, value)

    def _is_recorded(self, cotangents: list[object]) -> bool:
        """Whether the gradients are differentiated again: by what the outputs depend on outside,
        or by the cotangents, on which they depend as well."""
        if self.create_graph:
            return True
        given = [c for c in cotangents if isinstance(c, Tensor)]
        return STATE.get().grad and any(current_node(c) is not None for c in given)

    def pull(
        self, cotangents: list[object], *, keep: bool, create_graph: bool | None = None
    ) -> object:
        pairs = [
            (out, cot)
            for out, cot in zip(self.outputs, cotangents, strict=True)
            if current_node(out) is not None
        ]
        if create_graph is None:
            create_graph = self._is_recorded(cotangents)
            if create_graph and not self.create_graph:
                _CLOSED.update(i._node for i in self.inputs if isinstance(i._node, Leaf))
        if pairs:
            found = graph_grad(
                [out for out, _ in pairs], self.inputs, [cot for _, cot in pairs],
                retain_graph=keep, materialize_grads=True, create_graph=create_graph,
            )  # fmt: skip
        else:
            found = tuple(zeros_like(i) for i in self.inputs)
        trees = tree_unflatten(found, self.in_spec)
        return trees[0] if self.single else trees


def value_and_grad(
    func: Callable[..., object], argnums: ArgNums = 0, has_aux: bool = False
) -> AnyFunction:
    """A function that gives ``(value, gradient)``, or ``((value, aux), gradient)``.

    Args:
        func: the function
        argnums: the argument, or arguments, to differentiate by; default 0
        has_aux: whether it returns a pair whose second part is passed on; default ``False``

    PyTorch has :func:`grad_and_value` only; the order here is JAX's.

    >>> eg.func.value_and_grad(lambda x: x**3)(eg.tensor(2.0))
    (tensor(8.), tensor(12.))
    """

    def wrapper(*args: object, **kwargs: object) -> object:
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return value, grads

    return wrapper


def grad_and_value(
    func: Callable[..., object], argnums: ArgNums = 0, has_aux: bool = False
) -> AnyFunction:
    """A function that gives ``(gradient, value)``, or ``(gradient, (value, aux))``.

    Args:
        func: the function
        argnums: the argument, or arguments, to differentiate by; default 0
        has_aux: whether it returns a pair whose second part is passed on; default ``False``

    >>> eg.func.grad_and_value(lambda x: x**3)(eg.tensor(2.0))
    (tensor(12.), tensor(8.))
    """

    def wrapper(*args: object, **kwargs: object) -> object:
        call = _Recorded(func, argnums, has_aux, args, kwargs)
        if len(call.outputs) != 1 or call.outputs[0]._type.numel != 1 or call.outputs[0].ndim:
            shape = [list(o._type.shape) for o in call.outputs]
            raise RuntimeError(
                "Expected f(*args) to return a scalar tensor, got tensor with "
                f"{call.outputs[0].ndim if len(call.outputs) == 1 else len(shape)} dims (shapes "
                f"{shape}). Use jacrev or vjp for functions with more results."
            )
        keep = call.create_graph or (call.aux is not None)
        grads = call.pull([ones_like(call.outputs[0])], keep=keep)
        value = call.released(tree_unflatten(call.outputs, call.out_spec))
        return grads, (value, call.released(call.aux)) if has_aux else value

    return wrapper


def grad(func: Callable[..., object], argnums: ArgNums = 0, has_aux: bool = False) -> AnyFunction:
    """A function that gives the gradient of ``func``, which returns a single number.

    Args:
        func: the function
        argnums: the argument, or arguments, to differentiate by; default 0
        has_aux: whether it returns a pair whose second part is passed on; default ``False``

    >>> eg.func.grad(lambda x: x**3)(eg.tensor(2.0))
    tensor(12.)
    >>> eg.func.grad(eg.func.grad(lambda x: x**3))(eg.tensor(2.0))
    tensor(12.)
    """

    def wrapper(*args: object, **kwargs: object) -> object:
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapper


@provides("vjp")
def vjp(func: Callable[..., object], *primals: object, has_aux: bool = False) -> Any:
    """``(output, vjp_fn)``: ``vjp_fn`` maps cotangents of the output to those of the inputs.

    Args:
        func: the function
        primals: its arguments
        has_aux: whether it returns a pair whose second part is passed on; default ``False``

    >>> value, pull = eg.func.vjp(lambda x: x * x, eg.tensor([1.0, 2.0]))
    >>> pull(eg.ones(2))
    (tensor([2., 4.]),)
    """
    call = _Recorded(func, tuple(range(len(primals))), has_aux, primals, {})
    output = call.released(tree_unflatten(call.outputs, call.out_spec))

    def vjp_fn(
        *cotangents: object, retain_graph: bool = True, create_graph: bool | None = None
    ) -> object:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        leaves, spec = tree_flatten(given)
        if spec != call.out_spec and len(leaves) != len(call.outputs):
            raise RuntimeError(
                f"vjp_fn: expected cotangents of the same form as the output ({call.out_spec}), "
                f"got {spec}"
            )
        return call.pull(leaves, keep=retain_graph, create_graph=create_graph)

    if has_aux:
        return output, vjp_fn, call.released(call.aux)
    return output, vjp_fn


# -- forward ------------------------------------------------------------------------------------


@provides("jvp")
def jvp(
    func: Callable[..., object], primals: Tree, tangents: Tree, *, strict: bool = False,
    has_aux: bool = False,
) -> Any:  # fmt: skip
    """``(output, tangent)``: the derivative of ``func`` at ``primals`` in a direction.

    Args:
        func: the function
        primals: its arguments
        tangents: the direction, one tensor for each
        strict: accepted
        has_aux: whether it returns a pair whose second part is passed on; default ``False``

    >>> eg.func.jvp(lambda x: x * x, (eg.tensor([1.0, 2.0]),), (eg.ones(2),))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    points, spec = tree_flatten(tuple(primals))
    directions, other = tree_flatten(tuple(tangents))
    if spec != other:
        raise RuntimeError("jvp: expected primals and tangents to have the same python structure")
    for p, d in zip(points, directions, strict=True):
        if not isinstance(p, Tensor) or not isinstance(d, Tensor) or p._type.shape != d._type.shape:
            raise RuntimeError("jvp: each tangent must be a tensor of its primal's shape")

    def on_leaves(*leaves: Tensor) -> object:
        return func(*tree_unflatten(leaves, spec))

    traced = trace(on_leaves, [p._type for p in points])
    traced.refuse_lost_history(points)
    outs, moved = jvp_graph(traced.graph, points, directions)
    for i in traced.repeated:
        tangent = moved[i]
        outs[i], moved[i] = clone(outs[i]), None if tangent is None else clone(tangent)
    for number, value in traced.writes(outs):
        assign(points[number], value)
    filled = [
        (zeros_like(o) if isinstance(o, Tensor) else None) if t is None else t
        for o, t in zip(outs, moved, strict=True)
    ]
    if strict and any(t is None for t in moved):
        raise RuntimeError("jvp: an output does not depend on the inputs (strict=True)")
    result = traced.rebuild(outs)
    direction = tree_unflatten(
        [filled[leaf.position] if isinstance(leaf, Output) else None for leaf in traced.leaves],
        traced.spec,
    )
    if has_aux:
        return result[0], direction[0], result[1]
    return result, direction


def linearize(func: Callable[..., object], *primals: object) -> tuple[Any, AnyFunction]:
    """``(output, jvp_fn)``: the function's value, and its derivative there as a function.

    What depends on the primals alone is computed once, here.

    Args:
        func: the function
        primals: its arguments

    >>> value, derivative = eg.func.linearize(lambda x: x * x, eg.tensor([1.0, 2.0]))
    >>> derivative(eg.tensor([1.0, 0.0]))
    tensor([2., 0.])
    """
    points, spec = tree_flatten(tuple(primals))

    def on_leaves(*leaves: Tensor) -> object:
        return func(*tree_unflatten(leaves, spec))

    traced = trace(on_leaves, [p._type for p in points])
    traced.refuse_lost_history(points)
    with tracing(grad=STATE.get().grad) as tracer:
        inputs = [tracer.input(p._type) for p in points]
        outs, moved = jvp_graph(traced.graph, points, inputs)
        for number, value in traced.writes(outs):
            assign(points[number], value)
        directions = [zeros_like(o) if t is None else t for o, t in zip(outs, moved, strict=True)]
        graph = tracer.finish(directions).without_dead_code()

    def jvp_fn(*tangents: object) -> object:
        leaves, given = tree_flatten(tuple(tangents))
        if given != spec:
            raise RuntimeError("linearize: tangents must have the form of the primals")
        return traced.rebuild(interpret(graph, *leaves))

    return traced.rebuild(outs), jvp_fn


# -- Jacobians ----------------------------------------------------------------------------------


def _basis(tensors: list[Tensor]) -> list[Tensor]:
    """The unit vectors of all tensors together, one tensor of them for each."""
    total = sum(t._type.numel for t in tensors)
    found, start = [], 0
    for t in tensors:
        stop = start + t._type.numel
        part = slice_dim(eye(total, dtype=t.dtype), 1, start, stop)
        found.append(reshape(part, (total, *t._type.shape)))
        start = stop
    return found


def _split_rows(stacked: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Rows of a stacked result, back to the shapes of the tensors they belong to."""
    found, start = [], 0
    for t in tensors:
        stop = start + t._type.numel
        rows = slice_dim(stacked, 0, start, stop)
        found.append(reshape(rows, (*t._type.shape, *stacked._type.shape[1:])))
        start = stop
    return found


def jacrev(
    func: Callable[..., object], argnums: ArgNums = 0, *, has_aux: bool = False,
    chunk_size: int | None = None,
) -> AnyFunction:  # fmt: skip
    """The Jacobian by reverse mode: one backward pass for each number in the output.

    Args:
        func: the function
        argnums: the argument, or arguments, to differentiate by; default 0
        has_aux: whether it returns a pair whose second part is passed on; default ``False``
        chunk_size: how many rows at once; default all

    >>> eg.func.jacrev(lambda x: x * x)(eg.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    def wrapper(*args: object, **kwargs: object) -> object:
        call = _Recorded(func, argnums, has_aux, args, kwargs)

        def pull(*cotangents: Tensor) -> object:
            return tuple(tree_flatten(call.pull(list(cotangents), keep=True))[0])

        stacked = vmap(pull, chunk_size=chunk_size)(*_basis(call.outputs))
        # columns[i][o] is the derivative of output o by input i
        columns = [_split_rows(part, call.outputs) for part in stacked]
        per_output = []
        for o in range(len(call.outputs)):
            trees = tree_unflatten([column[o] for column in columns], call.in_spec)
            per_output.append(trees[0] if call.single else trees)
        jacobian = call.released(tree_unflatten(per_output, call.out_spec))
        return (jacobian, call.released(call.aux)) if has_aux else jacobian

    return wrapper


def jacfwd(
    func: AnyFunction, argnums: ArgNums = 0, has_aux: bool = False, *,
    randomness: str = "error",
) -> AnyFunction:  # fmt: skip
    """The Jacobian by forward mode: one pass for each number in the input.

    Args:
        func: the function
        argnums: the argument, or arguments, to differentiate by; default 0
        has_aux: whether it returns a pair whose second part is passed on; default ``False``
        randomness: ``"error"`` (default), ``"same"`` or ``"different"`` draws in each pass

    >>> eg.func.jacfwd(lambda x: x * x)(eg.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    def wrapper(*args: object, **kwargs: object) -> object:
        chosen = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        points, in_spec = tree_flatten(tuple(args[n] for n in chosen))
        aux: Leaves = []

        def on_points(*leaves: Tensor) -> object:
            given = list(args)
            for number, tree in zip(chosen, tree_unflatten(leaves, in_spec), strict=True):
                given[number] = tree
            result = func(*given, **kwargs)
            if has_aux:
                result, extra = result
                aux[:] = [extra]
            return result

        def push(*tangents: Tensor) -> object:
            return jvp(on_points, tuple(points), tangents)[1]

        stacked = vmap(push, randomness=randomness)(*_basis(points))

        def arrange(part: Tensor) -> object:
            rank = part.ndim - 1
            blocks = [
                movedim(b, tuple(range(b.ndim - rank, b.ndim)), tuple(range(rank))) if rank else b
                for b in _split_rows(part, points)
            ]
            trees = tree_unflatten(blocks, in_spec)
            return trees[0] if isinstance(argnums, int) else trees

        jacobian = tree_map(arrange, stacked)
        if has_aux:
            on_points(*points)  # once more, for the values beside the function's
            return jacobian, aux[0]
        return jacobian

    return wrapper


def hessian(func: Callable[..., object], argnums: ArgNums = 0) -> AnyFunction:
    """The matrix of second derivatives: forward over reverse.

    Args:
        func: the function
        argnums: the argument, or arguments, to differentiate by; default 0

    >>> eg.func.hessian(lambda x: (x**3).sum())(eg.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
