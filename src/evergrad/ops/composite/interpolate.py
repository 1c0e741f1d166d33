"""Images in another size: every dimension resampled by itself, as a weighted sum of a few places.

Where a target element looks, and with which weights, depends on sizes alone and is computed with
NumPy; the sum itself is made of rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import as_float32
from evergrad.core.bind import cast
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.shapes import Shape, as_shape
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.ops.composite.activations import widened
from evergrad.ops.composite.adaptive_pool import adaptive_mean
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.elementwise.rounding import floor
from evergrad.ops.rows.indexing.functions import index_select
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.surface.convert import adopt

if TYPE_CHECKING:
    from evergrad.core.types import Floats, Ints, Leaves


_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3, "lanczos": 2}
_SMOOTH = tuple(_RANKS)
# Larger results are computed row by row: into pooled memory, and in parallel.
_FEW_ELEMENTS = 1 << 15


def interpolate(
    input: Tensor, size: Ints | None = None, scale_factor: object = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resize the dimensions behind samples and channels to a size or by a factor."""
    _check_mode(input, mode, align_corners, antialias)
    sizes, factors = _target(input._type.shape[2:], size, scale_factor)
    if recompute_scale_factor:
        if factors is None:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        factors = None
    return resampled_to(input, sizes, factors, mode, bool(align_corners), antialias)


def resampled_to(
    input: Tensor, sizes: Shape, factors: Sequence[float | None] | None, mode: str, align: bool,
    antialias: bool,
) -> Tensor:  # fmt: skip
    """The dimensions behind samples and channels resampled to these sizes; at the distances that
    factors say, where they are given."""
    rank = input.ndim - 2
    _check_sizes(input._type.shape[2:], sizes)
    in_bytes = input.dtype is dtypes.uint8 and mode in _KERNELS
    mixes = mode not in ("nearest", "nearest-exact")
    if mixes and input.dtype.category <= dtypes.INTEGRAL and not in_bytes:
        raise NotImplementedError(
            f"\"interpolate\" with mode='{mode}' not implemented for '{input.dtype.name}'"
        )
    if mode == "area":
        return adaptive_mean(as_float32(input) if rank == 3 else input, sizes)
    target = input.dtype
    # 16-bit floats are mixed in float32 over all dimensions, and rounded once.
    input = widened(input) if mixes else input
    # The last dimension first, as PyTorch: the others are sums of whole rows then.
    for dim in reversed(range(rank)):
        factor = None if factors is None else factors[dim]
        kernel = _KERNELS[mode] if antialias else None
        given = cast(input, dtypes.float32) if in_bytes else input
        found = _resampled(given, dim + 2, sizes[dim], factor, mode, align, kernel)
        # As PyTorch, whose bytes are rounded after each dimension.
        input = cast(clamp(floor(found + 0.5), 0, 255), dtypes.uint8) if in_bytes else found
    return cast(input, target)


def _check_mode(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    if mode not in ("nearest", "nearest-exact", "area", *_SMOOTH):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the "
            "modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | "
            f"nearest-exact (got {mode})"
        )
    if align_corners is not None and mode not in _SMOOTH:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear "
            "| bicubic | trilinear"
        )
    if input.ndim not in (3, 4, 5) or input.ndim - 2 != _RANKS.get(mode, input.ndim - 2):
        raise NotImplementedError(
            f"Got {input.ndim}D input, but {mode} mode needs {_RANKS.get(mode, 1) + 2}D input"
        )
    if antialias and mode not in _KERNELS:
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a 4-D tensor as input"
        )
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")


def _target(own: Shape, size: Any, scale_factor: Any) -> tuple[Shape, tuple[float, ...] | None]:
    """The sizes to reach, and the factors if those were given."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            "only one of size or scale_factor should be defined"
            if size is not None
            else "either size or scale_factor should be defined"
        )
    given = size if scale_factor is None else scale_factor
    values = tuple(given) if isinstance(given, Sequence) else (given,) * len(own)
    if len(values) != len(own):
        word = "output size" if scale_factor is None else "scale_factor"
        raise ValueError(
            f"Input and {word} must have the same number of spatial dimensions, but got input with "
            f"spatial dimensions of {list(own)} and {word} of {given}."
        )
    if scale_factor is None:
        return as_shape(values), None
    factors = tuple(float(v) for v in values)
    return tuple(math.floor(n * f) for n, f in zip(own, factors, strict=True)), factors


def _check_sizes(own: Shape, wanted: Shape) -> None:
    if min(*own, *wanted) <= 0:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(own)} "
            f"output {list(wanted)}"
        )


def _resampled(
    input: Tensor, dim: int, size: int, factor: float | None, mode: str, align: bool,
    kernel: Kernel | None,
) -> Tensor:  # fmt: skip
    """One dimension resampled to ``size`` elements."""
    extent = input._type.shape[dim]
    wide: type = np.float64 if input.dtype is dtypes.float64 and mode in _SMOOTH else np.float32
    step = wide(extent / size if factor is None else 1 / factor)
    if mode in ("nearest", "nearest-exact"):
        half = wide(0.5 if mode == "nearest-exact" else 0)
        places = np.floor((np.arange(size, dtype=wide) + half) * step)
        chosen = np.minimum(places.astype(np.int64), extent - 1)
        return index_select(input, dim, adopt(chosen))
    if extent == size and (factor is None or factor == 1):
        return input * 1
    if align:
        step = wide((extent - 1) / (size - 1) if size > 1 else 0)
    weights_type = input.dtype.np
    arrays = _taps_of(size, extent, step, align, mode, kernel, weights_type)
    taps = [adopt(a) for a in arrays]
    mixed = _mixed if input._type.numel // extent * size < _FEW_ELEMENTS else _mixed.function
    return mixed(input, *taps, dim=dim)  # type: ignore[no-any-return]


@eager_composite(least=1, plans=False)
def _mixed(input: Tensor, *taps: Tensor, dim: int) -> Tensor:
    """The weighted sum of places along a dimension; ``taps`` are places and weights in turn."""
    result: Tensor | None = None
    for places, weights in zip(taps[::2], taps[1::2], strict=True):
        weight = reshape(weights, (-1,) + (1,) * (input.ndim - 1 - dim))
        part = index_select(input, dim, places) * weight
        result = part if result is None else result + part
    assert result is not None
    return result


Taps = tuple[
    list[Array], list[Array]
]  # for each tap, where every target element looks, and weights


@lru_cache(64)
def _taps_of(
    size: int, extent: int, step: object, align: bool, mode: str, kernel: Kernel | None,
    weights_type: np.dtype[np.generic],
) -> tuple[Array, ...]:  # fmt: skip
    """Places and weights of each tap. Nothing writes to them: they are arguments of the weighted
    sum alone."""
    found = (
        _taps(size, extent, step, align, mode)
        if kernel is None
        else _averaging_taps(size, extent, step, kernel)
    )
    return tuple(a for p, w in zip(*found, strict=True) for a in (p, w.astype(weights_type)))


def _taps(size: int, extent: int, step: Any, align: bool, mode: str) -> Taps:
    numbers = np.arange(size, dtype=type(step))
    half = type(step)(0.5)
    positions = numbers * step if align else (numbers + half) * step - half
    return (_cubic_taps if mode == "bicubic" else _linear_taps)(positions, extent)


def _averaging_taps(size: int, extent: int, step: Any, kernel: Kernel) -> Taps:
    """All places within the reach of a kernel that is as wide as a target element, if that is
    wider than a place."""
    weigh, reach = kernel
    width = np.maximum(step, 1)
    centres = (np.arange(size, dtype=type(step)) + type(step)(0.5)) * step
    first = np.maximum((centres - reach * width + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + reach * width + 0.5).astype(np.int64), extent)
    places = [first + k for k in range(int((last - first).max(initial=1)))]
    weights = [np.where(p < last, weigh((p - centres + 0.5) / width), 0) for p in places]
    total = np.sum(weights, 0)
    return [np.minimum(p, extent - 1) for p in places], [w / total for w in weights]


def _linear_taps(positions: Array, extent: int) -> Taps:
    positions = np.maximum(positions, 0)
    low = np.minimum(np.floor(positions).astype(np.int64), extent - 1)
    high = np.minimum(low + 1, extent - 1)
    share = np.clip(positions - low, 0, 1)
    return [low, high], [1 - share, share]


def _cubic_taps(positions: Array, extent: int) -> Taps:
    low = np.floor(positions).astype(np.int64)
    places = [np.clip(low + shift, 0, extent - 1) for shift in (-1, 0, 1, 2)]
    return places, cubic_weights(positions - low)


def cubic_weights(share: Any) -> Leaves:
    """The weights of the four places around a position, by Keys' kernel with a = -0.75."""
    return [_far(share + 1), _near(share), _near(1 - share), _far(2 - share)]


def _near(x: Any, a: float = -0.75) -> Array:
    result: Array = ((a + 2) * x - (a + 3)) * x * x + 1
    return result


def _far(x: Any, a: float = -0.75) -> Array:
    result: Array = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return result


# -- kernels for averages -----------------------------------------------------------------------


def _tent(x: Any) -> object:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: Any) -> object:
    """Keys' kernel with a = -0.5, as PyTorch has it here."""
    size = np.abs(x)
    return np.where(size < 1, _near(size, -0.5), np.where(size < 2, _far(size, -0.5), 0))


def _lanczos(x: Any) -> object:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


Kernel = tuple[Callable[[Any], Any], int]  # weights by distance, and how far they reach
_KERNELS: dict[str, Kernel] = {
    "bilinear": (_tent, 1),
    "bicubic": (_cubic, 2),
    "lanczos": (_lanczos, 3),
}


def upsample(
    input: Tensor, size: Ints | None = None, scale_factor: Floats | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """An older name of ``interpolate``.

    Args:
        input: (N, C, *)
        size: extents of the result, or
        scale_factor: what the input's are multiplied by
        mode, align_corners: as ``interpolate`` has them

    >>> F.interpolate(eg.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    _warn_renamed("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: Ints | None = None, scale_factor: Floats | None = None
) -> Tensor:
    """``interpolate`` to the nearest element.

    Args:
        input: (N, C, *)
        size: extents of the result, or
        scale_factor: what the input's are multiplied by

    >>> F.interpolate(eg.tensor([[[1.0, 2.0]]]), 4)
    tensor([[[1., 1., 2., 2.]]])
    """
    _warn_renamed("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: Ints | None = None, scale_factor: Floats | None = None
) -> Tensor:
    """``interpolate`` between four elements, corners on corners.

    Args:
        input: (N, C, *)
        size: extents of the result, or
        scale_factor: what the input's are multiplied by

    >>> F.interpolate(eg.tensor([[[[1.0, 2.0]]]]), (1, 3), mode="bilinear", align_corners=True)
    tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """
    _warn_renamed("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def _warn_renamed(name: str) -> None:
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        UserWarning,
        stacklevel=3,
    )
