"""Sparse tensors in coordinate form: for each element where it stands.

The first ``sparse_dim`` dimensions are indexed, the others are dense: an element is a tensor of the
dense dimensions. Elements that stand in the same place are summed, by :meth:`coalesce` at last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.compound import CompoundType, no_form, without_array
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import sparse_coo
from evergrad.core.op import Op
from evergrad.core.shapes import Shape
from evergrad.core.state import STATE
from evergrad.core.tensor import Array, Tensor, detached, from_array
from evergrad.extension import ExtensionPoint
from evergrad.ops.composite.padding import pad
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.indexing.index import INDEX, INDEX_SUM
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.surface.convert import adopt
from evergrad.sparse.pattern import Patterned, converted
from evergrad.sparse.places import keys_of, look_up, places_of
from evergrad.sparse.text import sparse_text

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike, MemoryFormatLike

_to_sparse: ExtensionPoint[..., Tensor] = ExtensionPoint("to_sparse")
_row: ExtensionPoint[[Op], Any] = ExtensionPoint("coo_row")


class SparseTensor(Patterned):
    """A tensor of which only some elements are stored."""

    __slots__ = ("_coalesced", "_elements", "_places_part")

    backend = "SparseCPU"
    layout_name = "Sparse"
    is_sparse = True
    layout = sparse_coo

    _places_part: Tensor
    _coalesced: bool

    # -- pattern ----------------------------------------------------------------------------

    def rebuilt(self, elements: Tensor) -> SparseTensor:
        return raw_coo(self._places_part, elements, self._type.shape, self._coalesced)

    def parts(self) -> tuple[Tensor, ...]:
        return self._places_part, self._elements

    @property
    def _places(self) -> Array:
        return self._places_part.array()

    def at_pattern(self, cotangent: Tensor) -> Tensor:
        if not isinstance(cotangent, Patterned):
            return elements_at(cotangent, self._places)
        given: SparseTensor = cotangent.to_sparse_coo()
        if given._places_part is self._places_part and given._coalesced:
            return given.live_elements()
        given = given.coalesce()
        position, there = look_up(self.keys(), given.keys())
        return picked(given.live_elements(), position, there)

    def cotangent(self, elements: Tensor) -> Tensor:
        """Elements in one place have one cotangent, which stands there once."""
        if self._coalesced:
            return self.with_elements(elements)  # type: ignore[no-any-return]
        keys, first = np.unique(self.keys(), return_index=True)
        places = places_of(keys, self.sparse_shape())
        return coo(places, taken(elements, first), self._type.shape, True)

    def bind_row(self, op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> Any:
        row = _row(op)
        if row is None:
            raise no_form(op.name, self)
        return row(op, args, attrs)

    def add_into(self, array: Array) -> None:
        np.add.at(array, tuple(self._places), self._elements.array())

    # -- what it is -------------------------------------------------------------------------

    def sparse_dim(self) -> int:
        """The number of indexed dimensions."""
        return len(self._places)

    def dense_dim(self) -> int:
        """The number of dimensions that an element has."""
        return self.ndim - len(self._places)

    def sparse_shape(self) -> Shape:
        """The extents of the indexed dimensions."""
        return self._type.shape[: len(self._places)]

    def dense_shape(self) -> Shape:
        """The shape of an element."""
        return self._type.shape[len(self._places) :]

    def keys(self) -> Array:
        """The number of each element's place."""
        return keys_of(self._places, self.sparse_shape())

    def _nnz(self) -> int:
        return int(self._places.shape[1])

    def is_coalesced(self) -> bool:
        """Whether places are sorted and none is named twice."""
        return self._coalesced

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        """Declare whether the tensor is coalesced, without looking."""
        self._coalesced = coalesced
        return self

    def stride(self, dim: int | None = None) -> Any:
        """Sparse tensors have no strides: zeros."""
        return (0,) * self.ndim if dim is None else 0

    def is_contiguous(self, memory_format: MemoryFormatLike = None) -> bool:
        return False

    # -- parts ------------------------------------------------------------------------------

    def indices(self) -> Tensor:
        """The places as ``[sparse_dim, elements]``, of a coalesced tensor."""
        self._require_coalesced("indices")
        return self._indices()

    def values(self) -> Tensor:
        """The elements, of a coalesced tensor."""
        self._require_coalesced("values")
        return self.live_elements()

    def _indices(self) -> Tensor:
        return detached(self._places_part)

    def _values(self) -> Tensor:
        return self._elements

    def _require_coalesced(self, what: str) -> None:
        if not self._coalesced:
            raise RuntimeError(
                f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )

    def coalesce(self) -> SparseTensor:
        """With sorted places, each named once; itself if that is so."""
        if self._coalesced:
            return self
        extents = self.sparse_shape()
        keys, target = np.unique(self.keys(), return_inverse=True)
        summed = summed_at(self.live_elements(), target.reshape(-1), len(keys))
        return coo(places_of(keys, extents), summed, self._type.shape, True)

    def filled(self, value: object, dtype: dtype) -> Tensor:
        if value != 0:
            raise no_form("full_like", self)
        return converted(empty_coo(self), dtype)

    # -- other layouts ----------------------------------------------------------------------

    def to_dense(self, dtype: DtypeLike = None, *, masked_grad: bool | None = None) -> Tensor:
        """The same elements as one dense tensor. Its gradient comes back to the places that are
        stored; those that are not stored have none."""
        elements = converted(self.live_elements(), dtype)
        if not len(self._places):
            return reshape(summed_at(elements, np.zeros(self._nnz(), np.int64), 1), self.shape)
        rows = [adopt(row.copy()) for row in self._places]
        return bind(INDEX_SUM, elements, *rows, start=0, extents=self.sparse_shape())  # type: ignore[no-any-return]

    def to_sparse(self, *args: object, **options: object) -> Tensor:
        """In another sparse layout."""
        return _to_sparse(self, *args, **options)

    def to_sparse_coo(self) -> SparseTensor:
        return self

    # -- in place ---------------------------------------------------------------------------

    def zero_(self) -> SparseTensor:
        """Forget all elements."""
        return cast(SparseTensor, self.take_over(empty_coo(self)))

    def copy_(self, other: Tensor, non_blocking: bool = False) -> SparseTensor:  # type: ignore[override]
        """Take the elements of another sparse tensor."""
        if not isinstance(other, SparseTensor):
            raise RuntimeError(
                "copy_() between dense and sparse Tensors is not implemented! Found self type = "
                f"{self.layout} and src type = {other.layout}"
            )
        if other._type.shape != self._type.shape:
            raise RuntimeError(
                f"copy_(): expected a sparse tensor of {list(self.shape)}, got {list(other.shape)}"
            )
        return cast(SparseTensor, self.take_over(converted(other, self.dtype).clone()))

    def sparse_resize_(self, size: Sequence[int], sparse_dim: int, dense_dim: int) -> SparseTensor:
        """Change the shape in place. What is stored stays: with elements only larger extents of as
        many indexed and dense dimensions are taken."""
        shape = tuple(size)
        if sparse_dim + dense_dim != len(shape):
            raise RuntimeError(
                f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)},"
                f" sparse_dim = {sparse_dim}, dense_dim = {dense_dim}"
            )
        if self.requires_grad and STATE.get().grad:
            raise RuntimeError("sparse_resize_() is not allowed on a tensor that requires grad")
        if not self._nnz():
            return self.sparse_resize_and_clear_(shape, sparse_dim, dense_dim)
        refused = "on a non-empty sparse tensor is not supported."
        for word, own, wanted in (
            ("sparse", self.sparse_dim(), sparse_dim), ("dense", self.dense_dim(), dense_dim)
        ):  # fmt: skip
            if own != wanted:
                raise RuntimeError(
                    f"changing the number of {word} dimensions (from {own} to {wanted}) {refused}"
                )
        for word, first, last in (("sparse", 0, sparse_dim), ("dense", sparse_dim, len(shape))):
            before, after = list(self._type.shape[first:last]), list(shape[first:last])
            if any(n < m for n, m in zip(after, before, strict=True)):
                raise RuntimeError(
                    f"shrinking the size of {word} dimensions (from {before} to {after}) {refused}"
                )
        elements = self._elements.detach()
        behind = [n - m for n, m in zip(shape[sparse_dim:], self.dense_shape(), strict=True)]
        if any(behind):
            elements = pad(elements, [n for extra in reversed(behind) for n in (0, extra)])
        made = raw_coo(self._places_part, elements, shape, self._coalesced)
        return cast(SparseTensor, self.take_over(made))

    def sparse_resize_and_clear_(
        self, size: Sequence[int], sparse_dim: int, dense_dim: int
    ) -> SparseTensor:
        """Change the shape in place, and forget all elements."""
        shape = tuple(size)
        if sparse_dim + dense_dim != len(shape):
            raise RuntimeError("sparse_dim + dense_dim must be the number of dimensions")
        places = from_array(np.zeros((sparse_dim, 0), np.int64))
        elements = adopt(np.zeros((0, *shape[sparse_dim:]), self.dtype.np))
        return cast(SparseTensor, self.take_over(raw_coo(places, elements, shape, True)))

    def resize_as_sparse_(self, the_template: Tensor) -> SparseTensor:
        """Change the shape in place to that of another sparse tensor."""
        dims = the_template.sparse_dim(), the_template.dense_dim()
        return self.sparse_resize_(the_template._type.shape, *dims)

    # -- the rest ---------------------------------------------------------------------------

    def norm(  # type: ignore[override]
        self,
        p: object = "fro",
        dim: object = None,
        keepdim: bool = False,
        *,
        dtype: DtypeLike = None,
    ) -> Tensor:
        """The norm of all elements."""
        if dim is not None or keepdim:
            raise no_form("norm", self)
        return self.coalesce().live_elements().norm(p, dtype=dtype)

    def _text(self) -> str:
        parts = {"indices": self._indices(), "values": self._elements}
        return sparse_text(self, parts, new_line=True)

    def __reduce_ex__(
        self, protocol: object
    ) -> tuple[
        Callable[[Tensor, Tensor, tuple[int, ...], bool, bool], Tensor],
        tuple[Tensor, Tensor, tuple[int, ...], bool, bool],
    ]:
        args = (self._places_part, self._elements, self._type.shape, self._coalesced)
        return _rebuilt, (*args, self.requires_grad)


def _rebuilt(
    places: Tensor, elements: Tensor, shape: Shape, coalesced: bool, requires_grad: bool
) -> Tensor:
    return raw_coo(places, elements, shape, coalesced).requires_grad_(requires_grad)


def raw_coo(places: Tensor, elements: Tensor, shape: Shape, coalesced: bool) -> SparseTensor:
    """A sparse tensor of these parts, without history. Nothing is checked."""
    made: SparseTensor = without_array(SparseTensor, CompoundType(tuple(shape), elements.dtype))
    made._places_part = places
    made._elements = elements
    made._coalesced = coalesced or elements._type.shape[0] < 2
    return made


def coo(places: Array, elements: Tensor, shape: Shape, coalesced: bool = False) -> SparseTensor:
    """A sparse tensor of these parts, with the history of the elements. Nothing is checked."""
    made = raw_coo(from_array(places), elements.detach(), shape, coalesced)
    return made.with_elements(elements)  # type: ignore[no-any-return]


def empty_coo(like: SparseTensor) -> SparseTensor:
    """A sparse tensor of the same shape without elements."""
    places = from_array(np.zeros((like.sparse_dim(), 0), np.int64))
    elements = adopt(np.zeros((0, *like.dense_shape()), like.dtype.np))
    return raw_coo(places, elements, like._type.shape, True)


# -- rows on elements ---------------------------------------------------------------------------


def elements_at(dense: Tensor, places: Array) -> Tensor:
    """The elements of a dense tensor at places of its first dimensions."""
    if not len(places):
        return dense.expand((places.shape[1], *dense.shape))
    rows = [adopt(row.copy()) for row in places]
    return bind(INDEX, dense, *rows, start=0, wrap=False)  # type: ignore[no-any-return]


def taken(elements: Tensor, positions: Array) -> Tensor:
    """The elements with these numbers."""
    return bind(INDEX, elements, adopt(positions.copy()), start=0, wrap=False)  # type: ignore[no-any-return]


def picked(elements: Tensor, positions: Array, there: Array) -> Tensor:
    """The elements with these numbers, and zeros where there is none."""
    if not elements._type.shape[0]:
        return adopt(np.zeros((len(there), *elements._type.shape[1:]), elements.dtype.np))
    found = taken(elements, positions)
    mask = adopt(there.reshape(-1, *(1,) * (found.ndim - 1)))
    return where(mask, found, 0)


def summed_at(elements: Tensor, target: Array, count: int) -> Tensor:
    """``count`` sums: each element is added to the one with its target's number."""
    index = adopt(target.copy())
    return bind(INDEX_SUM, elements, index, start=0, extents=(count,))  # type: ignore[no-any-return]
