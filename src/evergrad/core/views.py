"""Views: the chain of view ops from a storage's whole array to a tensor that aliases it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.op import TABLE, Op, Specialization
from evergrad.core.state import State
from evergrad.core.tensor import Array, Tensor
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.core.types import LayoutLike

# A longer chain is replaced by one as_strided op.
_MAX_CHAIN = 6


ViewOp = tuple[Op, dict[str, Any]]


class View:
    """How a tensor aliases its storage: the chain of view ops that gives it from the whole array.

    ``base`` is the tensor whose node this one follows (``None`` for a detached view); ``seen`` is
    the storage version for which the tensor's own node is valid, ``traced`` the one for which its
    symbolic value is. ``from_no_grad`` is the base of a view made without recording; ``function``
    names the function that gave this view among others. Neither must be written while recording.
    """

    __slots__ = ("base", "chain", "from_no_grad", "function", "seen", "traced")

    def __init__(
        self,
        base: Tensor | None,
        chain: tuple[ViewOp, ...],
        seen: int,
        from_no_grad: Tensor | None = None,
    ) -> None:
        self.base: Tensor | None = base
        self.chain: tuple[ViewOp, ...] = chain
        self.seen: int = seen
        self.traced: int = seen
        self.from_no_grad: Tensor | None = from_no_grad
        self.function: str = ""

    def outdate(self) -> None:
        """Have the node rebuilt when it is read next."""
        self.seen = -1

    def detached(self) -> View:
        """The same alias without a base to follow."""
        made = View(None, self.chain, self.seen)
        made.traced = self.traced
        return made


def viewable(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether a reshape of this array can be a view."""
    if array.flags.c_contiguous:
        return True
    try:
        array.reshape(shape, copy=False)
    except ValueError:
        return False
    return True


class ViewChain:
    """View ops as an attribute of a row: compared by content."""

    __slots__ = ("_key", "ops")

    def __init__(self, chain: tuple[ViewOp, ...]) -> None:
        self.ops: tuple[ViewOp, ...] = chain
        self._key = tuple((op.name, tuple(attrs.items())) for op, attrs in chain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ViewChain) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return " ".join(name for name, _ in self._key) or "whole"


_new: Any = object.__new__


def first_view(source: Tensor, specialization: Specialization, grad: bool) -> View:
    """The view that a view op gives of a tensor that is none, in a call less."""
    made: View = _new(View)
    if grad:
        made.base, made.from_no_grad = source, None
    else:
        made.base, made.from_no_grad = None, source
    made.chain = ((specialization.op, specialization.attrs),)
    made.seen = made.traced = source._storage.version
    made.function = ""
    return made


def view_after(
    state: State, source: Tensor, specialization: Specialization, layout: LayoutLike
) -> View:
    """The view that a view op on a tensor gives."""
    view = source._view
    if view is None and state.grad and specialization.op is not TABLE["as_strided"]:
        step = specialization.op, specialization.attrs
        return View(source, (step,), source._storage.version)
    chain = () if view is None else view.chain
    base = source if view is None or view.base is None else view.base
    hidden = not state.grad
    if specialization.op is TABLE["as_strided"] or len(chain) > _MAX_CHAIN:
        chain = (_as_strided_op(source, layout),)
        # The op starts at the storage: it cannot be replayed on a leaf that is a view itself.
        hidden = hidden or base._view is not None
    else:
        chain = (*chain, (specialization.op, specialization.attrs))
    if hidden:
        return View(None, chain, source._storage.version, from_no_grad=base)
    made = View(base, chain, source._storage.version)
    if view is not None:
        made.function = view.function
    return made


def _as_strided_op(source: Tensor, layout: Any) -> ViewOp:
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


def own_memory(tensor: Tensor) -> Tensor:
    """A view of memory that nothing else references, as a tensor of its own."""
    storage = tensor._storage
    storage.value, storage.type = tensor._value, tensor._type
    tensor._view = None
    return tensor


def base_of(view: View) -> Tensor | None:
    """The tensor whose node a view follows.

    A base that has become a view itself (``squeeze_()``, ``transpose_()``) is replaced by its own
    base.
    """
    base = view.base
    while base is not None and base._view is not None and base._view.base is not None:
        base = view.base = base._view.base
    return base


def view_ops_from(base: Tensor, tensor: Tensor) -> tuple[ViewOp, ...]:
    """The view ops that lead from the base to the tensor."""
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
