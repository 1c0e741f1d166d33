"""Writes of given values to nested tensors: ``fill_``, ``zero_`` and ``copy_``."""

from __future__ import annotations

from typing import Any, Self

from evergrad.core.tensor import Tensor
from evergrad.sparse.pattern import Patterned


class WritableNested(Patterned):
    """A nested tensor whose values are dense, so that all of them can be written."""

    __slots__ = ()

    def has_layout_of(self, other: Tensor) -> bool:
        """Whether the examples of another tensor have the same shapes in the same places."""
        raise NotImplementedError

    def fill_(self, value: Any) -> Self:
        """Write one number everywhere."""
        self.take_over(self.with_elements(self.live_elements().clone().fill_(value)))
        return self

    def zero_(self) -> Self:
        """Write zeros everywhere."""
        return self.fill_(0)

    def copy_(self, other: Any, non_blocking: bool = False) -> Self:
        """Write the values of a nested tensor of the same layout, or one number."""
        if not isinstance(other, Tensor) or not other.ndim:
            return self.fill_(other)
        if not isinstance(other, WritableNested) or not self.has_layout_of(other):
            raise RuntimeError(
                "copy_(): only supports nested tensors whose examples have the same shapes"
            )
        values = self.live_elements().clone().copy_(other.live_elements())
        self.take_over(self.with_elements(values))
        return self
