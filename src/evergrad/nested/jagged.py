"""Ragged tensors: examples of different lengths, one after the other, and where each begins.

A tensor of shape ``[B, ragged, *]`` is one dense tensor of values, ``[sum of lengths, *]``, and the
offsets of its examples. The ragged dimension may also stand further back; then it does so in the
values, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.compound import CompoundType, no_form, without_array
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import jagged
from evergrad.core.op import Op
from evergrad.core.shapes import normalize_dim
from evergrad.core.tensor import Tensor
from evergrad.extension import ExtensionPoint
from evergrad.nested.in_place import WritableNested
from evergrad.nested.ragged import Cells, RaggedSize, ragged_size_of
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.indexing.index import INDEX, INDEX_COPY
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import movedim
from evergrad.ops.surface.convert import adopt

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike, MemoryFormatLike

_apply_row: ExtensionPoint[..., object] = ExtensionPoint("jagged_row")


class NestedTensor(WritableNested):
    """Examples that differ in the extent of one dimension."""

    __slots__ = ("_elements", "_lengths", "_offsets", "_ragged_dim")

    backend = "NestedTensorCPU"
    layout_name = "Jagged"
    layout = jagged
    is_nested = True

    _offsets: Tensor
    # The lengths of the examples, where these do not reach from offset to offset.
    _lengths: Tensor | None
    _ragged_dim: int

    # -- pattern ----------------------------------------------------------------------------

    def rebuilt(self, elements: Tensor) -> NestedTensor:
        return raw_jagged(elements, self._offsets, self._lengths, self._ragged_dim)

    def parts(self) -> tuple[Tensor, ...]:
        return self._offsets, self._elements

    def at_pattern(self, cotangent: Tensor) -> Tensor:
        if not isinstance(cotangent, NestedTensor) or cotangent.ragged is not self.ragged:
            raise RuntimeError(
                f"the gradient of a nested tensor must be one of the same offsets, not a "
                f"{cotangent.layout} tensor"
            )
        return cotangent.live_elements()

    def bind_row(self, op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> Any:
        return _apply_row(op, args, attrs)

    def filled(self, value: object, dtype: dtype) -> Tensor:
        return self.rebuilt(full(self._elements.shape, value, dtype=dtype))

    def mapped(self, name: str, function: Callable[[Tensor], Tensor]) -> Tensor:
        return self.with_elements(function(self.live_elements()))  # type: ignore[no-any-return]

    # -- what it is -------------------------------------------------------------------------

    @property
    def ragged(self) -> RaggedSize:
        """The extent that differs."""
        return ragged_size_of(self._offsets, self._lengths)

    def offsets(self) -> Tensor:
        """Where each example begins in the values, and where the last ends."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """The extents of the examples, if these leave gaps between them."""
        return self._lengths

    def values(self) -> Tensor:
        """All examples, one after the other."""
        return self.live_elements()

    def has_layout_of(self, other: Tensor) -> bool:
        if not isinstance(other, NestedTensor) or self._ragged_dim != other._ragged_dim:
            return False
        if self._elements._type.shape != other._elements._type.shape:
            return False
        if self.ragged is other.ragged:
            return True
        pairs = (self._offsets, other._offsets), (self._lengths, other._lengths)
        return all(
            a is b or (a is not None and b is not None and np.array_equal(a.array(), b.array()))
            for a, b in pairs
        )

    def cells(self) -> Cells:
        """Where the elements of each example stand."""
        return Cells(self._offsets, self._lengths)

    def is_contiguous(self, memory_format: MemoryFormatLike = None) -> bool:
        return self._lengths is None and self._elements.is_contiguous()

    def stride(self, dim: int | None = None) -> Any:
        raise RuntimeError("the strides of a nested tensor differ from example to example")

    # -- examples ---------------------------------------------------------------------------

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The examples, as dense tensors that look at the values."""
        if normalize_dim(dim, self.ndim) != 0:
            raise RuntimeError("unbind(): only supported for dim=0 of nested tensors")
        starts = self._offsets.array()
        extents = np.diff(starts) if self._lengths is None else self._lengths.array()
        values = self.live_elements()
        return tuple(
            slice_dim(values, self._ragged_dim - 1, int(start), int(start + extent))
            for start, extent in zip(starts, extents, strict=False)
        )

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __getitem__(self, index: object) -> Tensor:
        items = index if isinstance(index, tuple) else (index,)
        if isinstance(items[0], int):
            examples = self.unbind()
            if not -len(examples) <= items[0] < len(examples):
                raise IndexError(
                    f"index {items[0]} is out of bounds for dimension 0 with size {len(examples)}"
                )
            example = examples[items[0]]
            return example[items[1:]] if len(items) > 1 else example
        if items in ((Ellipsis, None), (*(slice(None),) * self.ndim, None)):
            return self.unsqueeze(-1)
        if items[0] in (slice(None), Ellipsis) and isinstance(items[-1], int | slice):
            return self._last_dimension_at(items)
        raise no_form("index", self)

    def _last_dimension_at(self, items: tuple[object, ...]) -> Tensor:
        """``x[..., i]`` and the same with whole slices in front."""
        whole = items[:-1] == (Ellipsis,) or items[:-1] == (slice(None),) * (self.ndim - 1)
        if not whole or self._ragged_dim == self.ndim - 1:
            raise no_form("index", self)
        return self.with_elements(self.live_elements()[..., items[-1]])  # type: ignore[no-any-return]

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """A dense tensor as long as the longest example, the others filled up with ``padding``."""
        dim = self._ragged_dim - 1
        values = movedim(self.live_elements(), dim, 0)
        cells = self.cells()
        extent = cells.longest if output_size is None else int(output_size[self._ragged_dim])
        if extent < cells.longest:
            raise RuntimeError(
                "Value in output_size is less than NestedTensor padded size. Truncation is not "
                "supported."
            )
        rest = values._type.shape[1:]
        target = full((cells.count, extent, *rest), padding, dtype=self.dtype)
        if self._lengths is not None:
            values = bind(INDEX, values, adopt(cells.number), start=0, wrap=False)
        rows = adopt(cells.example), adopt(cells.place)
        padded = bind(INDEX_COPY, target, values, *rows, start=0, wrap=False)
        return movedim(padded, 1, self._ragged_dim)

    def to_dense(self, dtype: DtypeLike = None, *, masked_grad: bool | None = None) -> Tensor:
        """A nested tensor has no dense form of its own shape."""
        raise RuntimeError(
            "a nested tensor has no dense form of its shape; to_padded_tensor(padding) makes one "
            "with its examples filled up"
        )

    # -- other shapes -----------------------------------------------------------------------

    def view(self, *shape: object) -> NestedTensor:  # type: ignore[override]
        """Another shape behind the ragged dimension, which is given as ``-1`` or as it is."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        target = [*given]
        same = target and target[0] == len(self) and self._ragged_dim == 1
        if not same or len(target) < 2 or target[1] not in (-1, self.ragged):
            raise RuntimeError(
                f"view(): a nested tensor of {self.shape} keeps its first two dimensions, the "
                f"second as -1; got {tuple(given)}"
            )
        values = self.live_elements()
        rest = _inferred(target[2:], values._type.shape[1:])
        return self.with_elements(values.reshape(values.shape[0], *rest))  # type: ignore[no-any-return]

    reshape = view  # type: ignore[assignment]

    def expand(self, *shape: Any) -> NestedTensor:  # type: ignore[override]
        """Singleton dimensions repeated; the ragged one is given as ``-1`` or as it is."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        target, dim = [*given], self._ragged_dim
        same = len(target) == self.ndim and target[0] in (-1, len(self))
        if not same or target[dim] not in (-1, self.ragged):
            raise RuntimeError(
                f"expand(): a nested tensor of {self.shape} keeps its examples and its ragged "
                f"dimension; got {tuple(given)}"
            )
        values = self.live_elements()
        target[dim] = -1
        return self.with_elements(values.expand(target[1:]))  # type: ignore[no-any-return]

    def unsqueeze(self, dim: int) -> NestedTensor:  # type: ignore[override]
        """With a new singleton dimension behind the first."""
        dim = normalize_dim(dim, self.ndim + 1)
        if dim == 0:
            raise RuntimeError("unsqueeze(): a nested tensor's first dimension counts its examples")
        ragged_dim = self._ragged_dim + (dim <= self._ragged_dim)
        return jagged_tensor(
            self.live_elements().unsqueeze(dim - 1), self._offsets, self._lengths, ragged_dim
        )

    def unflatten(self, dim: int, sizes: Any) -> NestedTensor:  # type: ignore[override]
        """One dimension behind the ragged one as several."""
        dim = normalize_dim(dim, self.ndim)
        if dim <= self._ragged_dim:
            raise RuntimeError("unflatten(): only dimensions behind the ragged one")
        return self.with_elements(self.live_elements().unflatten(dim - 1, sizes))  # type: ignore[no-any-return]

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
        """Dimensions behind the ragged one as one."""
        start, end = (normalize_dim(d, self.ndim) for d in (start_dim, end_dim))
        if start <= self._ragged_dim:
            raise RuntimeError("flatten(): only dimensions behind the ragged one")
        return self.with_elements(self.live_elements().flatten(start - 1, end - 1))  # type: ignore[no-any-return]

    # -- the rest ---------------------------------------------------------------------------

    def _text(self) -> str:
        words = [f"size={tuple(self._type.shape)}", f"offsets={self._offsets}"]
        node = self.grad_fn
        if node is not None:
            words.append(f"grad_fn={node}")
        elif self.requires_grad:
            words.append("requires_grad=True")
        return f"NestedTensor({', '.join(words)}, contiguous={self.is_contiguous()})"

    def __reduce_ex__(
        self, protocol: object
    ) -> tuple[
        Callable[[Tensor, Tensor, Tensor | None, int, bool], Tensor],
        tuple[Tensor, Tensor, Tensor | None, int, bool],
    ]:
        args = (self._elements, self._offsets, self._lengths, self._ragged_dim)
        return _rebuilt, (*args, self.requires_grad)


def _rebuilt(
    values: Tensor, offsets: Tensor, lengths: Tensor | None, ragged_dim: int, requires_grad: bool
) -> Tensor:
    return raw_jagged(values, offsets, lengths, ragged_dim).requires_grad_(requires_grad)


def _inferred(shape: list[Any], own: tuple[int, ...]) -> list[int]:
    """A shape with ``-1`` filled in."""
    known = math.prod(n for n in shape if n != -1)
    return [math.prod(own) // max(known, 1) if n == -1 else n for n in shape]


def raw_jagged(
    values: Tensor, offsets: Tensor, lengths: Tensor | None, ragged_dim: int
) -> NestedTensor:
    """A ragged tensor of these parts, without history. Nothing is checked."""
    inner: list[object] = list(values._type.shape)
    inner[ragged_dim - 1] = ragged_size_of(offsets, lengths)
    shape = (offsets.numel() - 1, *inner)
    made: NestedTensor = without_array(
        NestedTensor, CompoundType(shape, values.dtype, values.numel())
    )
    made._elements = values
    made._offsets = offsets
    made._lengths = lengths
    made._ragged_dim = ragged_dim
    return made


def jagged_tensor(
    values: Tensor, offsets: Tensor, lengths: Tensor | None = None, ragged_dim: int = 1
) -> NestedTensor:
    """A ragged tensor of these parts, with the history of the values. Nothing is checked."""
    made = raw_jagged(values.detach(), offsets, lengths, ragged_dim)
    return made.with_elements(values)  # type: ignore[no-any-return]
