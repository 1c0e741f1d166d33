"""How a view was made: the steps that lead from the base to it. Computes nothing."""

from __future__ import annotations

from typing import Any

from evergrad.core.op import TABLE, Specialization
from evergrad.core.state import State
from evergrad.core.tensor import Step, Tensor, View
from evergrad.core.trace import Var

# A view that took more steps than this is described by one as_strided step instead.
_LONGEST_CHAIN = 6


def viewable(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether a reshape of this array needs no copy."""
    if array.flags.c_contiguous:
        return True
    try:
        array.reshape(shape, copy=False)
    except ValueError:
        return False
    return True


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


def view_after(state: State, source: Tensor, specialization: Specialization, layout: Any) -> View:
    view = source._view
    chain = () if view is None else view.chain
    base = source if view is None or view.base is None else view.base
    hidden = not state.grad
    if specialization.op.name == "as_strided" or len(chain) > _LONGEST_CHAIN:
        chain = (_as_one_step(source, layout),)
        # The step starts at the storage; from a leaf that is itself a view it cannot be retraced.
        hidden = hidden or base._view is not None
    else:
        chain = (*chain, (specialization.op, specialization.attrs))
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


def base_of(view: View) -> Tensor | None:
    """The tensor whose history a view follows.

    A base that has become a view itself (``squeeze_()``, ``transpose_()``) passes that on to what
    it was before.
    """
    base = view.base
    while base is not None and base._view is not None and base._view.base is not None:
        base = view.base = base._view.base
    return base


def steps_from(base: Tensor, tensor: Tensor) -> tuple[Step, ...]:
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
