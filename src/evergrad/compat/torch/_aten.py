"""Private operators of PyTorch that its decompositions call, in evergrad's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn import native
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
    scale_factors: Sequence[float] | None = None,
) -> Tensor:  # fmt: skip
    """Bilinear interpolation with a filter as wide as the scale."""
    size = None if output_size is None else tuple(output_size)
    return F.interpolate(input, size, scale_factors, "bilinear", align_corners, antialias=True)


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


OPERATORS = {
    "_native_batch_norm_legit": _native_batch_norm_legit,
    "_safe_softmax": _safe_softmax,
    "_segment_reduce": _segment_reduce,
    "_softmax_backward_data": _softmax_backward_data,
    "_upsample_bilinear2d_aa": _upsample_bilinear2d_aa,
    "max_pool2d_with_indices_backward": max_pool2d_with_indices_backward,
    "native_dropout_backward": native_dropout_backward,
    "slice": slice_,
}
