"""``backward`` and ``grad``: what users call to walk back over a graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.autograd.graph import GradientEdge
from evergrad.core.backward import run_backward
from evergrad.core.bind import cast
from evergrad.core.holder import TensorHolder, as_held, held
from evergrad.core.node import GraphNode, Leaf, RemovableHandle
from evergrad.core.package_name import package_name
from evergrad.core.source_location import user_stacklevel
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, current_node, fresh
from evergrad.core.vmap import vmap
from evergrad.errors import GradientError
from evergrad.extension import provides
from evergrad.ops.reference import DOCS
from evergrad.ops.rows.creation.constants import ones, ones_like, zeros_like

if TYPE_CHECKING:
    from evergrad.core.types import Leaves, Tree

Place = Tensor | GradientEdge  # in a graph
TensorOrTensors = Place | GraphNode | Sequence[Place | GraphNode]


def _as_tuple(value: object, name: str) -> tuple[Place, ...]:
    """Tensors and edges; a node is the edge to its first result, and a value means the tensor
    that it holds."""
    places = tuple(GradientEdge(v, 0) if isinstance(v, GraphNode) else held(v)
                   for v in _listed(value))  # fmt: skip
    for place in places:
        if not isinstance(place, (Tensor, GradientEdge)):
            raise TypeError(f"{name} must be tensors, got {type(place).__name__}")
    return places


def _listed(value: Any) -> tuple[object, ...]:
    """One place or some, as given."""
    is_one = isinstance(value, (Tensor, GradientEdge, GraphNode, TensorHolder))
    return (value,) if is_one else tuple(value)


def _edge_of(place: Place) -> tuple[GraphNode | None, int]:
    if isinstance(place, GradientEdge):
        return place.node, place.output_nr
    return current_node(place), place._index


def _root_of_edge(edge: GradientEdge, grad: Tensor | None) -> tuple[GraphNode, int, Tensor]:
    """An edge as a starting place: its cotangent is given, or one if it is known to be scalar."""
    if grad is None:
        type = edge.ownership_token
        if type is None or type.numel != 1:
            raise GradientError(
                "grad can be implicitly created only for scalar outputs but got a GradientEdge "
                "whose shape is not known to be one element; pass the gradient"
            )
        grad = ones(type.shape, dtype=type.dtype)
    return edge.node, edge.output_nr, grad


def _roots(outputs: tuple[Place, ...], grads: object) -> list[tuple[GraphNode, int, Tensor]]:
    """The starting nodes with their cotangents, which default to one for a single element."""
    given = (None,) * len(outputs) if grads is None else tuple(map(held, _listed(grads)))
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    roots = []
    for output, grad in zip(outputs, given, strict=True):
        if isinstance(output, GradientEdge):
            roots.append(_root_of_edge(output, grad))
            continue
        node = current_node(output)
        if node is None:
            raise GradientError(
                "element 0 of tensors does not require grad and does not have a grad_fn: nothing "
                "it was computed from asked for a gradient (requires_grad=True), or it was "
                "computed under no_grad(), or detach() cut it off"
            )
        if grad is None:
            if output._type.numel != 1:
                raise GradientError(
                    "grad can be implicitly created only for scalar outputs; this one has shape "
                    f"{list(output._type.shape)}. Reduce it (`.sum()`), or pass the gradient."
                )
            if output.dtype.is_complex:
                raise GradientError("grad can be implicitly created only for real scalar outputs")
            if output._value.__class__ is np.ndarray and not STATE.get().intercepted:
                grad = fresh(np.ones(output._type.shape, output._type.dtype.np), output._type)
            else:
                grad = ones_like(output)
        roots.append((node, output._index, _matching(grad, output)))
    return roots


def _matching(grad: Tensor, output: Tensor) -> Tensor:
    if grad._type.shape != output._type.shape:
        raise GradientError(
            f"Mismatch in shape: grad_output has a shape of {list(grad._type.shape)} and output "
            f"has a shape of {list(output._type.shape)}."
        )
    if grad.dtype is not output.dtype:
        if grad.dtype.is_complex and not output.dtype.is_complex:
            raise GradientError(
                f"a complex gradient was given for a real output of type {output.dtype}"
            )
        grad = cast(grad, output.dtype)
    return grad


def backward(
    tensors: TensorOrTensors,
    grad_tensors: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Tree = None,
) -> None:
    """Accumulate the gradient of ``tensors`` into the ``.grad`` of the leaves they came from.

    Args:
        tensors: what is differentiated
        grad_tensors: the gradient of each; needed where one is no single number
        retain_graph: keep what the graph saved, for another pass; default ``create_graph``
        create_graph: record the pass, for higher derivatives; default ``False``
        grad_variables: former name of ``grad_tensors``
        inputs: accumulate into these leaves only; default all

    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> eg.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    outputs = _as_tuple(tensors, "tensors")
    roots = _roots(outputs, grad_tensors if grad_variables is None else grad_variables)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph and package_name() == "torch":
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the "
            "parameter and its gradient which can cause a memory leak. We recommend using "
            "autograd.grad when creating the graph to avoid this. If you have to use this "
            "function, make sure to reset the .grad fields of your parameters to None after use "
            "to break the cycle and avoid the leak.",
            stacklevel=user_stacklevel(),
        )
    if inputs is None:
        run_backward(roots, keep_graph=keep, create_graph=create_graph)
        return
    wanted = _as_tuple(inputs, "inputs")
    if not wanted:
        raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    found = _run_to(roots, wanted, keep, create_graph, accumulate=True)
    for tensor, grad in zip(wanted, found, strict=True):
        if isinstance(tensor, GradientEdge):
            continue
        if grad is not None and not tensor.is_leaf and not tensor.retains_grad:
            tensor._grad = grad if tensor._grad is None else tensor._grad + grad


def _run_to(
    roots: Any, inputs: tuple[Place, ...], keep: bool, create_graph: bool, accumulate: bool,
    stops_at_targets: bool = False,
) -> Leaves:  # fmt: skip
    targets: dict[tuple[int, int], list[int]] = {}
    nodes: list[GraphNode] = []
    for place, tensor in enumerate(inputs):
        node, number = _edge_of(tensor)
        if node is None:
            raise GradientError(
                f"One of the differentiated Tensors does not require grad (number {place}); call "
                "requires_grad_() on it before the computation"
            )
        targets.setdefault((node.seq, number), []).append(place)
        nodes.append(node)
    return run_backward(
        roots, keep_graph=keep, create_graph=create_graph, targets=targets, target_nodes=nodes,
        accumulate=accumulate, stops_at_targets=stops_at_targets,
    )  # fmt: skip


def grad_up_to(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grad_outputs: Sequence[Tensor]
) -> Leaves:
    """The gradients with respect to the inputs, each of which counts as a leaf: what it was
    computed from is not differentiated. The graph is kept; ``None`` for an input that took no
    part."""
    roots = _roots(tuple(outputs), tuple(grad_outputs))
    return _run_to(roots, tuple(inputs), True, False, accumulate=False, stops_at_targets=True)


@provides("grad")
def grad(
    outputs: TensorOrTensors,
    inputs: TensorOrTensors,
    grad_outputs: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, returned and not accumulated.

    An input that took no part is an error unless ``allow_unused`` (its gradient is then ``None``)
    or ``materialize_grads`` (then zeros).

    Args:
        outputs: what is differentiated
        inputs: by what
        grad_outputs: the gradient of each output; needed where one is no single number
        retain_graph: keep what the graph saved, for another pass; default ``create_graph``
        create_graph: record the pass, for higher derivatives; default ``False``
        only_inputs: accepted
        allow_unused: give ``None`` for an input that outputs do not depend on, in place of an error
        is_grads_batched: ``grad_outputs`` has a batch dimension; default ``False``
        materialize_grads: give zeros in place of ``None``; default ``False``

    Returns a tuple with a gradient for each input.

    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> eg.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    wanted = _listed(inputs)
    outs, ins = _as_tuple(outputs, "outputs"), _as_tuple(wanted, "inputs")
    if is_grads_batched:
        if any(isinstance(i, TensorHolder) for i in wanted):
            raise TypeError("grad(): is_grads_batched takes tensors; give x.elements")
        return _batched_grad(outs, ins, grad_outputs, retain_graph, create_graph, allow_unused,
                             materialize_grads)  # fmt: skip
    keep = create_graph if retain_graph is None else retain_graph
    found = _run_to(_roots(outs, grad_outputs), ins, keep, create_graph, accumulate=False)
    if materialize_grads:
        if any(isinstance(i, GradientEdge) for i in ins):
            raise RuntimeError("materialize_grads cannot be used when an input is a GradientEdge")
        found = [zeros_like(i) if g is None else g for g, i in zip(found, ins, strict=True)]
    elif not allow_unused and any(g is None for g in found):
        raise GradientError(
            "One of the differentiated Tensors appears to not have been used in the graph "
            f"(number {found.index(None)}). Set allow_unused=True if this is the desired behavior."
        )
    return tuple(map(as_held, wanted, found))


def _batched_grad(
    outs: tuple[Place, ...], ins: tuple[Place, ...], grad_outputs: Any, retain_graph: object,
    create_graph: bool, allow_unused: bool | None, materialize_grads: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Many cotangents at once: their first dimension runs over them."""
    given = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    unused: list[bool] = []

    def once(*cotangents: Tensor) -> object:
        found = grad(
            outs, ins, cotangents, retain_graph=True, create_graph=create_graph,
            allow_unused=True if allow_unused else allow_unused,
            materialize_grads=materialize_grads,
        )  # fmt: skip
        unused[:] = [g is None for g in found]
        return tuple(g for g in found if g is not None)

    used = iter(vmap(once)(*given))
    return tuple(None if none else next(used) for none in unused)  # type: ignore[misc]


# -- methods ------------------------------------------------------------------------------------


def _tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: object = None,
) -> None:
    """Accumulate the gradient of this tensor into the leaves it came from."""
    backward((self,), None if gradient is None else (gradient,), retain_graph, create_graph,
             inputs=inputs)  # fmt: skip


def register_hook(self: Tensor, hook: object) -> RemovableHandle:
    """Call ``hook(grad)`` when the gradient of this tensor is known; it may return another."""
    node = current_node(self)
    if node is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return RemovableHandle(node.ensure_hooks().on_result.setdefault(self._index, {}), hook)


def register_post_accumulate_grad_hook(self: Tensor, hook: object) -> RemovableHandle:
    """Call ``hook(tensor)`` after a gradient has been accumulated into this leaf."""
    node = current_node(self)
    if not isinstance(node, Leaf):
        raise RuntimeError(
            "post accumulate grad hooks cannot be registered on non-leaf tensors"
            if node is not None
            else "cannot register a hook on a tensor that doesn't require gradient"
        )
    if node.accumulated is None:
        node.accumulated = {}
    Leaf.has_hooked = True
    return RemovableHandle(node.accumulated, hook)


def _hooks_of_tensor(self: Tensor) -> Any:
    """The hooks of a tensor by number, or None: optimizers and wrappers look whether it has any."""
    node = current_node(self)
    hooks = None if node is None else node.hooks
    return None if hooks is None else hooks.on_result.get(self._index)


def _hooks_after_accumulation(self: Tensor) -> Any:
    node = current_node(self)
    return node.accumulated if isinstance(node, Leaf) else None


setattr(Tensor, "_backward_hooks", property(_hooks_of_tensor))  # noqa: B010
setattr(  # noqa: B010
    Tensor, "_post_accumulate_grad_hooks", property(_hooks_after_accumulation)
)
for _method in (_tensor_backward, register_hook):
    _method.__doc__ = DOCS[_method.__name__.removeprefix("_tensor_")]
setattr(Tensor, "backward", _tensor_backward)  # noqa: B010 - declared in a stub
setattr(Tensor, "register_hook", register_hook)  # noqa: B010
setattr(  # noqa: B010
    Tensor, "register_post_accumulate_grad_hook", register_post_accumulate_grad_hook
)
