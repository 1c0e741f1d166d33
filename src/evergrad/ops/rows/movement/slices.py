"""Regular parts of dimensions, as views, and their transpose: a part laid into zeros.

One row serves all of basic indexing with steps: it has for each dimension (start, stop, step) with
step > 0, or a single index, which drops the dimension. Dimensions not mentioned at the end stay
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, bind_and_prepare, bind_prepared
from evergrad.core.families import linear
from evergrad.core.namespace import late_bound
from evergrad.core.op import Op, prepared_calls
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import Shape, TensorType, normalize_dim
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.movement.views import Dims, shaped, to_front
from evergrad.ops.surface.public import expose

Slices = tuple[tuple[int, int, int] | int, ...]


def _slice_type(x: TensorType, *, slices: Slices) -> TensorType:
    cut = [max(0, -((s[0] - s[1]) // s[2])) for s in slices if isinstance(s, tuple)]
    return shaped(x, (*cut, *x.shape[len(slices) :]))


def numpy_index(slices: Slices) -> tuple[Any, ...]:
    """The slices as NumPy takes them; the ellipsis makes even a single element a view."""
    return (*[slice(*s) if isinstance(s, tuple) else s for s in slices], ...)


def _slice_eval(x: Array, *, slices: Slices) -> object:
    return x[numpy_index(slices)]


def _slice_transpose(g: Tensor, x: Tensor, *, slices: Slices) -> Tensor:
    return bind(PAD_SLICE, g, slices=slices, shape=x._type.shape)  # type: ignore[no-any-return]


def _whole(x: Tensor) -> tuple[int, int, int]:
    return (0, x._type.shape[0], 1)


def _batch_slice(
    op: Op, args: Sequence[Tensor], dims: Dims, *, slices: Slices
) -> tuple[Tensor, int]:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return bind(op, x, slices=(_whole(x), *slices)), 0


SLICE = linear("slice", _slice_eval, _slice_type, _slice_transpose, batch=_batch_slice,
               alias="view", shape_generic=True,
               doc="A regular part of each dimension.")  # fmt: skip
SLICE.prepare = lambda *, slices: itemgetter(numpy_index(slices))


def _pad_slice_eval(g: Array, *, slices: Slices, shape: Shape) -> Array:
    out = np.zeros(shape, g.dtype)
    out[numpy_index(slices)] = g
    return out


def _batch_pad_slice(
    op: Op, args: Sequence[Tensor], dims: Dims, *, slices: Slices, shape: Shape
) -> tuple[Tensor, int]:
    g = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return bind(op, g, slices=(_whole(g), *slices), shape=(g._type.shape[0], *shape)), 0


PAD_SLICE = linear(
    "pad_slice", _pad_slice_eval,
    lambda g, *, slices, shape: shaped(g, shape),
    lambda g, x, *, slices, shape: bind(SLICE, g, slices=slices),
    batch=_batch_pad_slice,
    emit=lowered("passes.decompose_movement"), autocast=AutocastPolicy.KEEP,
    doc="Zeros with the argument laid into a regular part: slice's transpose.",
)  # fmt: skip
PAD_SLICE.scatter_index = lambda *, slices, shape: numpy_index(slices)


_SLICED = prepared_calls()


def sliced(x: Tensor, slices: Slices) -> Tensor:
    """A regular part of each dimension, in the terms of the row."""
    key = x._type, slices
    found = _SLICED.get(key)
    if found is not None:
        return bind_prepared(found, x)  # type: ignore[no-any-return]
    return bind_and_prepare(_SLICED, key, SLICE, x, slices=slices)  # type: ignore[no-any-return]


def slice_dim(x: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """A part of one dimension, all of the others; bounds are already in range."""
    whole = [(0, n, 1) for n in x._type.shape]
    whole[dim] = (start, stop, step)
    return sliced(x, tuple(whole))


@late_bound
@expose(out=False, numpy_names=True)
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """``length`` elements of one dimension from ``start`` on."""
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.ndim)
    extent = input._type.shape[dim]
    if isinstance(start, Tensor) and (start.ndim or start.dtype.category != dtypes.INTEGRAL):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    start = int(start)
    if not -extent <= start <= extent:
        raise IndexError(
            f"start out of range (expected to be in range of [{-extent}, {extent}], but got "
            f"{start})"
        )
    start = start + extent if start < 0 else start
    if length < 0 or start + length > extent:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({extent})."
        )
    return slice_dim(input, dim, start, start + length)


@late_bound
@expose(out=False, numpy_names=True)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One index of one dimension, which disappears."""
    if not input.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.ndim)
    shape = input._type.shape
    extent = shape[dim]
    index = int(index)
    if not -extent <= index < extent:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} at dimension "
            f"{dim}"
        )
    index %= extent
    return sliced(input, tuple([index if i == dim else (0, n, 1) for i, n in enumerate(shape)]))
