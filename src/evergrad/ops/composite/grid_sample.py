"""Images read at any positions: affine grids, and sampling at the positions of a grid."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import cast
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.errors import DTypeError, ShapeError
from evergrad.ops.composite.activations import hardtanh, widened
from evergrad.ops.composite.interpolate import cubic_weights
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.elementwise.magnitude import abs as absolute
from evergrad.ops.rows.elementwise.rounding import floor
from evergrad.ops.rows.elementwise.rounding import round as to_nearest
from evergrad.ops.rows.indexing.scatter import gather
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.slices import select
from evergrad.ops.rows.movement.views import expand, reshape, transpose, unsqueeze
from evergrad.ops.surface.convert import adopt
from evergrad.ops.surface.handles import detach


def _corners_aligned(align_corners: bool | None, name: str) -> bool:
    if align_corners is None:
        warnings.warn(
            f"Default {name} behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired.",
            UserWarning,
            stacklevel=3,
        )
    return bool(align_corners)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The positions that affine maps ``theta`` [N, 2, 3] (or [N, 3, 4]) give to the elements of
    an image of ``size``, from -1 to 1."""
    aligned = _corners_aligned(align_corners, "affine_grid and grid_sample")
    if theta.dtype.category < dtypes.FLOATING:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype.name}")
    rank = len(size) - 2
    if rank not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}."
        )
    if theta._type.shape[1:] != (rank, rank + 1) or theta.ndim != 3:
        raise ValueError(
            f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size "
            f"{size}. Got {list(theta._type.shape)}."
        )
    extents = tuple(size[2:])
    along = [_positions(n, aligned).astype(theta.dtype.np) for n in extents]
    mesh = np.meshgrid(*along, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones_like(mesh[0])], -1).reshape(-1, rank + 1)
    grid = matmul(adopt(points), transpose(theta, 1, 2))
    return reshape(grid, (size[0], *extents, rank))


def _positions(extent: int, aligned: bool) -> Array:
    """The elements of a dimension from -1 to 1: those being the outer centers, or the edges."""
    if extent <= 1:
        return np.zeros(extent)
    ends = np.linspace(-1, 1, extent)
    return ends if aligned else ends * ((extent - 1) / extent)


@autocast_policy(AutocastPolicy.FLOAT32)
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """The image [N, C, ...] at the positions of ``grid`` [N, ..., 2 or 3], between -1 and 1."""
    _check_sampling(input, grid, mode, padding_mode)
    aligned = _corners_aligned(align_corners, "grid_sample and affine_grid")
    return _sampled(  # type: ignore[no-any-return]
        input, grid, mode=mode, padding_mode=padding_mode, aligned=aligned
    )


@eager_composite(least=16)
def _sampled(input: Tensor, grid: Tensor, *, mode: str, padding_mode: str, aligned: bool) -> Tensor:
    target, input, grid = input.dtype, widened(input), widened(grid)
    extents = input._type.shape[2:]
    rank = len(extents)
    positions = []
    for dim, extent in enumerate(extents):
        given = select(grid, -1, rank - 1 - dim)  # a grid names the last dimension first
        position = _unnormalized(given, extent, aligned)
        positions.append(position if mode == "bicubic" else _held(
            position, extent, padding_mode, aligned))  # fmt: skip
    if mode == "nearest":
        rounded = [to_nearest(detach(p)) for p in positions]
        return cast(_read(input, rounded, padding_mode, aligned), target)
    taps = [_taps(p, mode) for p in positions]
    result: Any = None
    for choice in itertools.product(*taps):
        weight = choice[0][1]
        for _, share in choice[1:]:
            weight = weight * share
        part = _read(input, [place for place, _ in choice], padding_mode, aligned)
        part = part * unsqueeze(weight, 1)
        result = part if result is None else result + part
    return cast(result, target)


def _check_sampling(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if input.dtype is not grid.dtype:
        raise DTypeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype.name} and grid has {grid.dtype.name}"
        )
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        raise ShapeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(input._type.shape)} and grid with sizes "
            f"{list(grid._type.shape)}"
        )
    if mode == "bicubic" and input.ndim == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if grid._type.shape[0] != input._type.shape[0]:
        raise ShapeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input._type.shape)} and grid with sizes {list(grid._type.shape)}"
        )
    if grid._type.shape[-1] != input.ndim - 2:
        raise ShapeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but "
            f"got grid with sizes {list(grid._type.shape)}"
        )


def _unnormalized(position: Tensor, extent: int, aligned: bool) -> Tensor:
    """From [-1, 1] to the numbers of elements."""
    if aligned:
        return (position + 1) * ((extent - 1) / 2)
    return ((position + 1) * extent - 1) / 2


def _held(position: Tensor, extent: int, padding_mode: str, aligned: bool) -> Tensor:
    """Positions outside moved inside, for the modes of padding that do so."""
    if padding_mode == "zeros":
        return position
    if padding_mode == "reflection":
        position = _reflected(position, extent, aligned)
    return hardtanh(position, 0, extent - 1)


def _reflected(position: Tensor, extent: int, aligned: bool) -> Tensor:
    """Folded back and forth between the outer centers, or the edges."""
    low, span = (0.0, extent - 1) if aligned else (-0.5, extent)
    if span == 0:
        return position * 0
    distance = absolute(position - low)
    turns = floor(detach(distance) / span)
    rest = distance - turns * span
    return where(turns % 2 == 0, rest + low, span - rest + low)


def _taps(position: Tensor, mode: str) -> list[tuple[Tensor, Tensor]]:
    """The places around a position and their weights."""
    low = floor(detach(position))
    share = position - low
    if mode == "bicubic":
        return list(zip([low - 1, low, low + 1, low + 2], cubic_weights(share), strict=True))
    return [(low, 1 - share), (low + 1, share)]


def _read(input: Tensor, places: Sequence[Tensor], padding_mode: str, aligned: bool) -> Tensor:
    """The elements at whole-numbered places; with zeros around the image."""
    samples, channels, *extents = input._type.shape
    inside: Any = None
    flat: Any = None
    for place, extent in zip(places, extents, strict=True):
        place = _held(place, extent, padding_mode, aligned)
        within = (place >= 0) & (place <= extent - 1)
        number = cast(where(within, place, 0), dtypes.int64)
        inside = within if inside is None else inside & within
        flat = number if flat is None else flat * extent + number
    shape = flat._type.shape
    numbers = reshape(flat, (samples, 1, math.prod(shape[1:])))
    numbers = expand(numbers, (samples, channels, numbers._type.shape[-1]))
    found = gather(reshape(input, (samples, channels, math.prod(extents))), 2, numbers)
    found = reshape(found, (samples, channels, *shape[1:]))
    return where(unsqueeze(inside, 1), found, 0)
