"""Private operators of PyTorch that its decompositions call, in evergrad's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.shapes import as_shape, normalize_dim
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn import native
from evergrad.ops.composite.interpolate import resampled_to
from evergrad.ops.surface.public import FUNCTIONS

from ._root import _softmax_backward_data

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike, Ints


def _segment_reduce(*args: object, **kwargs: object) -> Tensor:
    """``segment_reduce``."""
    found: Tensor = FUNCTIONS["segment_reduce"](*args, **kwargs)
    return found


def _native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: object, **kwargs: object
) -> tuple[Tensor, Tensor, Tensor]:
    """``native_batch_norm``, whose running statistics may be left out."""
    running = () if len(rest) + len(kwargs) > 3 else (None, None)
    found: tuple[Tensor, Tensor, Tensor] = native.native_batch_norm(
        input, weight, bias, *running, *rest, **kwargs
    )
    return found


def slice_(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A view of every ``step``-th element of a dimension."""
    places: list[Any] = [slice(None)] * input.ndim
    places[dim] = slice(start, end, step)
    return input[tuple(places)]


def _safe_softmax(self: Tensor, dim: int, dtype: DtypeLike = None) -> Tensor:
    """Softmax that is zero where all elements are negative infinity."""
    found = FUNCTIONS["softmax"](self, dim, dtype=dtype)
    blank = (self == float("-inf")).all(dim, keepdim=True)
    zero = FUNCTIONS["zeros"]((), dtype=found.dtype)
    made: Tensor = FUNCTIONS["where"](blank, zero, found)
    return made


def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient at the elements that dropout kept, scaled."""
    made: Tensor = grad_output * mask.to(grad_output.dtype) * scale
    return made


def _upsample_bilinear2d_aa(
    input: Tensor, output_size: Sequence[int] | None, align_corners: bool,
    scale_factors: Any = None, scales_w: float | None = None, *,
    scales_h: float | None = None,
) -> Tensor:  # fmt: skip
    """Bilinear interpolation with a filter as wide as the scale."""
    if output_size is None:
        return F.interpolate(input, None, scale_factors, "bilinear", align_corners, antialias=True)
    size = as_shape(tuple(output_size))
    scales = (scales_h if scale_factors is None else scale_factors, scales_w)
    known = None if size == input.shape[2:] else scales  # a copy, whatever the scales
    return resampled_to(input, size, known, "bilinear", align_corners, True)


def max_pool2d_with_indices_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Ints, stride: Ints, padding: Ints | str,
    dilation: Ints, ceil_mode: bool, indices: Tensor,
) -> Tensor:  # fmt: skip
    """The gradients of maxima, added at the places where they were."""
    planes = self.shape[:-2]
    flat = FUNCTIONS["zeros"]((*planes, self.shape[-2] * self.shape[-1]), dtype=grad_output.dtype)
    added = flat.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2))
    made: Tensor = added.reshape(tuple(self.shape))
    return made


def _chunk_cat(
    tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor | None = None
) -> Tensor:
    """Chunks of several tensors, padded with zeros to equal extents, flattened and joined."""
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    if dim < 0 and len({tensor.ndim for tensor in tensors}) > 1:
        raise RuntimeError(
            "_chunk_cat expects non-negative dim when input tensors have different ndims"
        )
    dim, rows = normalize_dim(dim, tensors[0].ndim), []
    if any(dim >= tensor.ndim for tensor in tensors):
        raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
    if not all(tensor.numel() for tensor in tensors):
        raise RuntimeError("_chunk_cat expects non-empty tensor")
    for tensor in tensors:
        extent = -(-tensor.shape[dim] // num_chunks) * num_chunks
        padding = [0, 0] * (tensor.ndim - dim - 1) + [0, extent - tensor.shape[dim]]
        whole = F.pad(tensor, padding) if padding[-1] else tensor
        rows.append(whole.reshape((*whole.shape[:dim], num_chunks, -1)))
    joined: Tensor = FUNCTIONS["cat"](rows, dim + 1, out=out)
    return joined


def _masked_places(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], least: bool
) -> tuple[Any, ...]:
    """The indices, moved into the tensor where the mask does not select."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError("tensors used as masks must be bool tensors")
    return tuple(
        slice(None) if i is None else i.clamp(0 if least else -extent, extent - 1)
        for i, extent in zip(indices, self.shape, strict=False)
    )


def _unsafe_masked_index(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any
) -> Tensor:
    """``self[indices]`` where the mask selects, elsewhere ``fill``."""
    places = _masked_places(self, mask, indices, least=True)
    made: Tensor = self[places].masked_fill(~mask, fill)
    return made


def _unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """``self`` with the values that the mask selects added at ``indices``."""
    places = _masked_places(self, mask, indices, least=False)
    full = [
        FUNCTIONS["arange"](n).reshape((-1, *(1,) * (mask.ndim - d - 1))) if p == slice(None) else p
        for d, (p, n) in enumerate(zip(places, self.shape, strict=False))
    ]
    made: Tensor = self.index_put(tuple(full), values.masked_fill(~mask, 0), accumulate=True)
    return made


OPERATORS = {
    "_chunk_cat": _chunk_cat,
    "_unsafe_masked_index": _unsafe_masked_index,
    "_unsafe_masked_index_put_accumulate": _unsafe_masked_index_put_accumulate,
    "_native_batch_norm_legit": _native_batch_norm_legit,
    "_safe_softmax": _safe_softmax,
    "_segment_reduce": _segment_reduce,
    "_softmax_backward_data": _softmax_backward_data,
    "_upsample_bilinear2d_aa": _upsample_bilinear2d_aa,
    "max_pool2d_with_indices_backward": max_pool2d_with_indices_backward,
    "native_dropout_backward": native_dropout_backward,
    "slice": slice_,
}
