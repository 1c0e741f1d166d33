"""Movement that needs a copy: reversed, rolled, repeated, shuffled between channels and pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.eager import lanes
from evergrad.core.families import linear
from evergrad.core.functionalize import data_size
from evergrad.core.op import Op
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import Shape, as_shape, normalize_dim
from evergrad.core.tensor import Array, Tensor, from_array
from evergrad.core.tracing import is_known
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import arange
from evergrad.ops.rows.indexing.functions import index_select
from evergrad.ops.rows.movement.views import (
    clone,
    expand,
    owned,
    permute,
    reshape,
    to_front,
    transpose,
)
from evergrad.ops.rows.reduce.counting import searchsorted
from evergrad.ops.rows.reduce.scan import cumsum
from evergrad.ops.rows.reduce.sums import sum as total_of
from evergrad.ops.surface.public import expose

Dims = Sequence[int | None]

# -- reversing ----------------------------------------------------------------------------------


def _flip_eval(x: Array, *, dims: Shape, out: Array | None = None) -> Array:
    backwards, forwards = slice(None, None, -1), slice(None)
    reversed_view = x[tuple([backwards if d in dims else forwards for d in range(x.ndim)])]
    if out is None:
        return reversed_view.copy()
    np.copyto(out, reversed_view)
    return out


def _batch_flip(op: Op, args: Sequence[Tensor], at: Dims, *, dims: Shape) -> tuple[Tensor, int]:
    x = to_front(args[0], at[0])  # type: ignore[arg-type]
    return bind(op, x, dims=tuple(d + 1 for d in dims)), 0


FLIP: Op = linear(
    "flip", _flip_eval, lambda x, *, dims: x, lambda g, x, *, dims: bind(FLIP, g, dims=dims),
    batch=_batch_flip, takes_out=True,
    emit=lowered("kernels.flip"), autocast=AutocastPolicy.KEEP,
    doc="Dimensions in reverse order.",
)  # fmt: skip
FLIP.prepare_for = lambda plain, x, *, dims: lanes.reverse_evaluator(x, dims, plain)


@expose(out=False)
@prepared
def flip(input: Tensor, *args: object, dims: object = None) -> Tensor:
    """Dimensions in reverse order, as a copy."""
    given = as_shape(args if dims is None else (dims,))
    wanted = tuple(normalize_dim(d, input.ndim) for d in given)
    if len(set(wanted)) != len(wanted):
        repeated = next(d for d in wanted if wanted.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return bind(FLIP, input, dims=wanted if input.ndim else ())  # type: ignore[no-any-return]


@expose(out=False)
def fliplr(input: Tensor) -> Tensor:
    """Columns in reverse order."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@expose(out=False)
def flipud(input: Tensor) -> Tensor:
    """Rows in reverse order."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@expose(out=False)
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A plane rotated ``k`` times by 90 degrees, from the first of ``dims`` towards the second."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    first, second = (normalize_dim(d, input.ndim) for d in dims)
    if first == second:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    turns = k % 4
    if turns == 0:
        return clone(input)
    if turns == 2:
        return flip(input, first, second)
    return transpose(flip(input, second if turns == 1 else first), first, second)


# -- rolling ------------------------------------------------------------------------------------


def _roll_back(g: Tensor, x: Tensor, *, shifts: Shape, dims: Shape) -> Tensor:
    return bind(ROLL, g, shifts=tuple(-s for s in shifts), dims=dims)  # type: ignore[no-any-return]


def _batch_roll(op: Op, args: Sequence[Tensor], at: Dims, *, shifts: Shape, dims: Shape) -> object:
    x = to_front(args[0], at[0])  # type: ignore[arg-type]
    return bind(op, x, shifts=shifts, dims=tuple(d + 1 for d in dims)), 0


ROLL = linear(
    "roll", lambda x, *, shifts, dims: np.roll(x, shifts, dims), lambda x, *, shifts, dims: x,
    _roll_back, batch=_batch_roll,
    emit=lowered("passes.decompose_movement"), autocast=AutocastPolicy.KEEP,
    doc="Dimensions shifted around: what leaves one end enters the other.",
)  # fmt: skip


@expose(out=False)
@prepared
def roll(input: Tensor, shifts: object, dims: object = None) -> Tensor:
    """Shifted around: along dimensions, or through the flattened tensor."""
    steps = as_shape((shifts,))
    along = () if dims is None else as_shape((dims,))
    if not along:
        if len(steps) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(steps)}, dims:0")
        flat = bind(ROLL, reshape(input, -1), shifts=steps, dims=(0,))
        return owned(reshape(flat, input._type.shape), input)
    if len(steps) != len(along):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(steps)}, dims:{len(along)}"
        )
    along = tuple(normalize_dim(d, input.ndim) for d in along)
    return bind(ROLL, input, shifts=steps, dims=along)  # type: ignore[no-any-return]


# -- repeating ----------------------------------------------------------------------------------


@expose(function=False)
@prepared
def repeat(self: Tensor, *args: object, repeats: object = None) -> Tensor:
    """The whole tensor several times along each dimension."""
    counts = as_shape(args if repeats is None else (repeats,))
    shape = self._type.shape
    if len(counts) < len(shape):
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor"
        )
    shape = (1,) * (len(counts) - len(shape)) + shape
    result = tuple(count * extent for count, extent in zip(counts, shape, strict=True))
    if any(count < 0 for count in counts):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(result)}: {list(result)}"
        )
    apart = reshape(self, [n for extent in shape for n in (1, extent)])
    pairs = [n for pair in zip(counts, shape, strict=True) for n in pair]
    return _copied(apart, pairs, result)


def _copied(x: Tensor, expanded: Sequence[int], shape: Shape) -> Tensor:
    """Expanded and reshaped, in memory of its own."""
    return owned(reshape(clone(expand(x, expanded)), shape))


@expose(method=False, out=False)
@prepared
def tile(input: Tensor, dims: object) -> Tensor:
    """The whole tensor several times along its last dimensions, or along new ones in front."""
    counts = as_shape((dims,))
    return repeat(input, (1,) * (input.ndim - len(counts)) + counts)


@expose("tile", function=False)
def _tile_method(self: Tensor, *args: object, dims: object = None) -> Tensor:
    """The whole tensor several times along its last dimensions, or along new ones in front."""
    return tile(self, as_shape(args if dims is None else (dims,)))


@expose(out=False, numpy_names=True)
@prepared
def repeat_interleave(
    input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element several times in a row; alone, ``input`` says how often each number occurs."""
    if repeats is None:
        return _numbers_repeated(input, output_size)
    if dim is None:
        input, dim = reshape(input, -1), 0
    dim = normalize_dim(dim, input.ndim)
    if isinstance(repeats, Tensor) and repeats._type.numel != 1:
        extent = input._type.shape[dim] if input.ndim else 1
        if repeats._type.numel != extent:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{repeats._type.numel} and input.size({dim}) = {extent}"
            )
        return index_select(input, dim, _numbers_repeated(repeats, output_size))
    extent = input._type.shape[dim]
    if isinstance(repeats, Tensor):
        if repeats.dtype not in (dtypes.int64, dtypes.int32):
            raise NotImplementedError(
                f"\"repeat_interleave_cpu\" not implemented for '{repeats.dtype.name}'"
            )
        if output_size is not None:
            _require_size(repeats * extent, output_size)
        if output_size is None or is_known(repeats):
            repeats = int(repeats.array().reshape(()))
        else:
            repeats = output_size // max(extent, 1)
    if repeats < 0:
        raise RuntimeError("Repeats must be non-negative")
    if output_size is not None and repeats * extent != output_size:
        raise RuntimeError(
            f"repeat_interleave: Invalid output_size, expected {repeats * extent} but got "
            f"{output_size}"
        )
    shape = input._type.shape
    apart = reshape(input, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
    wide = (*shape[: dim + 1], repeats, *shape[dim + 1 :])
    return _copied(apart, wide, (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]))


def _numbers_repeated(repeats: Tensor, output_size: int | None) -> Tensor:
    """0, 1, 2, ... each as often as ``repeats`` says."""
    if repeats.dtype not in (dtypes.int64, dtypes.int32) or repeats.ndim != 1:
        raise RuntimeError("repeat_interleave only accepts 1D integer vectors as repeat")
    if not is_known(repeats):
        known = output_size is not None
        size = output_size if known else data_size(total_of(cast(repeats, dtypes.int64)))
        if size is not None and size >= 0:
            return _traced_numbers_repeated(repeats, size)
    counts = repeats.array()
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeats can not be negative")
    if output_size is not None and output_size != counts.sum():
        raise RuntimeError("allocated size does not match required size")
    return from_array(np.repeat(np.arange(counts.size), counts))


def _require_size(total: Tensor, output_size: int) -> None:
    require(
        total == output_size, RuntimeError, lambda: "allocated size does not match required size"
    )


def _traced_numbers_repeated(repeats: Tensor, output_size: int) -> Tensor:
    """The same where the repeats cannot be read: the number of ends at or before each place."""
    require(repeats >= 0, RuntimeError, lambda: "repeats can not be negative")
    counts = cast(repeats, dtypes.int64)
    _require_size(total_of(counts), output_size)
    places = arange(output_size)
    return searchsorted(cumsum(counts, 0), places, right=True)


# -- channels and pixels ------------------------------------------------------------------------


def _require_image(name: str, factor_name: str, input: Tensor, factor: int) -> None:
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} "
            "dimension(s)"
        )
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {factor_name}, but got {factor}")


@expose(method=False, out=False)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels spread out into blocks of pixels."""
    _require_image("pixel_shuffle", "upscale_factor", input, upscale_factor)
    *lead, channels, height, width = input._type.shape
    r = upscale_factor
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(lead)
    blocks = reshape(input, (*lead, channels // (r * r), r, r, height, width))
    spread = clone(permute(blocks, (*range(n), n, n + 3, n + 1, n + 4, n + 2)))
    return owned(reshape(spread, (*lead, channels // (r * r), height * r, width * r)))


@expose(method=False, out=False)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Blocks of pixels gathered into channels."""
    _require_image("pixel_unshuffle", "downscale_factor", input, downscale_factor)
    *lead, channels, height, width = input._type.shape
    r = downscale_factor
    for name, place, extent in (("height", -2, height), ("width", -1, width)):
        if extent % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                f"input.size({place})={extent} is not divisible by {r}"
            )
    n = len(lead)
    blocks = reshape(input, (*lead, channels, height // r, r, width // r, r))
    gathered = clone(permute(blocks, (*range(n), n, n + 2, n + 4, n + 1, n + 3)))
    return reshape(gathered, (*lead, channels * r * r, height // r, width // r))


@expose(method=False, out=False)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels dealt out over groups in turn."""
    shape = input._type.shape
    if len(shape) <= 2:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    if shape[1] % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {shape[1]} channels and "
            f"{groups} groups."
        )
    apart = reshape(input, (shape[0], groups, shape[1] // groups, math.prod(shape[2:])))
    return reshape(clone(transpose(apart, 1, 2)), shape)
