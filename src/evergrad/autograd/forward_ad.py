"""``torch.autograd.forward_ad``: dual tensors, whose tangents go along with an eager computation.

Inside :class:`dual_level`, :func:`make_dual` gives a tensor with a tangent and :func:`unpack_dual`
the tangent of what was computed from such tensors. The recorded graph is differentiated twice (the
vector-Jacobian product is linear in its vector, so its transpose is the Jacobian-vector product),
which needs a graph: ``no_grad`` around the computation is an error. ``evergrad.func.jvp`` has no
such limit and runs once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evergrad.autograd.engine import grad
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import zeros_like

if TYPE_CHECKING:
    from evergrad.core.node import GraphNode

_levels: list[list[tuple[Tensor, Tensor]]] = []


class UnpackedDualTensor(NamedTuple):
    """A tensor without its tangent, and the tangent; None if it depends on no dual tensor."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Begin a level and give its number; levels do not nest."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append([])
    return len(_levels) - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: tangents are gone."""
    if not _levels:
        raise RuntimeError("Trying to exit a forward AD level when none is active")
    _levels.pop()


class dual_level:  # noqa: N801 - PyTorch's spelling
    """A context in which tensors can have tangents.

    >>> x, t = evergrad.tensor([1.0, 2.0]), evergrad.tensor([1.0, 0.0])
    >>> with dual_level():
    ...     unpack_dual(make_dual(x, t) ** 2).tangent
    tensor([2., 0.])
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """The tensor with a tangent of the same shape and type."""
    if not _levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        raise ValueError(
            f"Expected primal to be floating point or complex, but got: {tensor.dtype}"
        )
    if tuple(tangent.shape) != tuple(tensor.shape) or tangent.dtype is not tensor.dtype:
        raise RuntimeError("Expected tangent to have the shape and dtype of the primal")
    if not STATE.get().grad:
        raise RuntimeError(
            "make_dual() under no_grad: tangents are read from the recorded graph. Leave no_grad, "
            "or use evergrad.func.jvp."
        )
    dual: Tensor = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach()
    if not dual.requires_grad:
        dual.requires_grad_()
    _levels[-1].append((dual, tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor and its tangent."""
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    for dual, given in _levels[-1]:
        if dual is tensor:
            return UnpackedDualTensor(tensor.detach(), given)
    return UnpackedDualTensor(tensor.detach(), _tangent(tensor, _levels[-1]))


def _tangent(tensor: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor | None:
    if not tensor.requires_grad or not pairs:
        return None
    vector = zeros_like(tensor).requires_grad_()
    duals = [dual for dual, _ in pairs]
    options: dict[str, bool] = {"create_graph": True, "allow_unused": True}
    products = grad([tensor], duals, [vector], **options)
    used = [(p, t) for p, (_, t) in zip(products, pairs, strict=True) if p is not None]
    if not used:
        return None
    linear = [(p, t) for p, t in used if p.requires_grad]
    if not linear:
        return zeros_like(tensor)
    outputs, tangents = [p for p, _ in linear], [t for _, t in linear]
    found: Tensor | None = grad(outputs, [vector], tangents, create_graph=True, allow_unused=True)[
        0
    ]
    if found is None:
        return zeros_like(tensor)
    made = {id(leaf) for leaf in (vector, *duals)}
    return found if _depends_on_others(found, made) else found.detach()


def _depends_on_others(tensor: Tensor, known: set[int]) -> bool:
    """Whether there is a leaf among what a tensor was computed from that is not known: then its
    tangent has a gradient too."""
    waiting, seen = [tensor.grad_fn], set[int]()
    while waiting:
        node: GraphNode | None = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            return True
        waiting += [source for source, _ in node.next_functions]
    return False


__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]
