"""Tensors that are dense elements in a pattern, and how gradients pass between the two.

A :class:`Patterned` tensor has its place in the graph, its elements have theirs, and two custom
functions lead from one to the other: :class:`Elements` (the elements of a tensor) and
:class:`Assemble` (a tensor of given elements). Everything in between is ordinary rows on the
elements, so derivatives of any order need no further formulas.

The cotangent of a patterned tensor is a tensor of the same pattern, or a dense one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.autograd.function import Function
from evergrad.core.bind import cast
from evergrad.core.compound import Compound
from evergrad.core.dtypes import as_dtype
from evergrad.core.node import Leaf
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, current_node, detached

if TYPE_CHECKING:
    from evergrad.autograd.function import FunctionCtx
    from evergrad.core.types import DtypeLike, MemoryFormatLike
    from evergrad.sparse.coo import SparseTensor


class Patterned(Compound):
    """Dense elements, and where they stand."""

    __slots__ = ()

    # The elements without history; inside a trace, with it.
    _elements: Tensor

    if TYPE_CHECKING:  # of each layout, or of every tensor

        def _nnz(self) -> int: ...
        def to_sparse_coo(self) -> SparseTensor: ...

    def rebuilt(self, elements: Tensor) -> Any:
        """The same pattern around other elements, without history."""
        raise NotImplementedError

    def at_pattern(self, cotangent: Tensor) -> Tensor:
        """The elements of a cotangent of this tensor where this pattern has elements."""
        raise NotImplementedError

    def cotangent(self, elements: Tensor) -> Tensor:
        """The cotangent of this tensor, from that of its elements."""
        return self.with_elements(elements)  # type: ignore[no-any-return]

    def with_elements(self, elements: Tensor) -> Any:
        """The same pattern around other elements, with their history."""
        state = STATE.get()
        if not state.grad or current_node(elements) is None:
            return self.rebuilt(elements)
        if state.trace is not None:  # the program is differentiated through the elements alone
            made = self.rebuilt(elements)
            made._node, made._index = current_node(elements), elements._index
            return made
        return Assemble.apply(elements, self.detach())

    def live_elements(self) -> Tensor:
        """The elements with their history."""
        if self._node is None or self._elements._node is not None:
            return self._elements
        return Elements.apply(self)  # type: ignore[no-any-return]

    def detach(self) -> Any:
        """The same elements, without a history."""
        return self.rebuilt(detached(self._elements))

    def clone(self, *, memory_format: MemoryFormatLike = None) -> Any:
        """A copy in memory of its own, connected to the graph."""
        return self.with_elements(self.live_elements().clone())

    def is_sparse_leaf(self) -> bool:
        """Whether the gradient of this very tensor was asked for, not that of its elements."""
        leaf = isinstance(self._node, Leaf) and self._elements._node is None
        return STATE.get().grad and leaf

    def _text(self) -> str:
        raise NotImplementedError

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return self._text()

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment. Use tensor.detach().clone() to copy the elements alone."
            )
        made = memo[id(self)] = self.rebuilt(self._elements.detach().clone())
        made.requires_grad_(self.requires_grad)
        if self._grad is not None:
            made._grad = self._grad.detach().clone()
        return made


def converted(tensor: Tensor, dtype: DtypeLike) -> Tensor:
    """A tensor in another element type, if one is given."""
    return tensor if dtype is None else cast(tensor, as_dtype(dtype))


class Elements(Function):
    """From a patterned tensor to its elements."""

    @staticmethod
    def forward(ctx: FunctionCtx, tensor: Patterned) -> Tensor:
        ctx.pattern = tensor.detach()
        return detached(tensor._elements)

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> Tensor:
        found: Tensor = ctx.pattern.cotangent(g)
        return found


class Assemble(Function):
    """From elements to a patterned tensor."""

    @staticmethod
    def forward(ctx: FunctionCtx, elements: Tensor, pattern: Patterned) -> Any:
        ctx.pattern = pattern
        return pattern.rebuilt(detached(elements))

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Tensor, None]:
        return ctx.pattern.at_pattern(g), None
