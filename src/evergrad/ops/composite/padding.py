"""Tensors made larger at their edges (or smaller, by negative padding)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.core.autocast import as_float32
from evergrad.core.bind import bind
from evergrad.core.prepared import prepared
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.core.views import ViewChain
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.indexing.arguments import number_as
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.movement.slices import PAD_SLICE, SLICE
from evergrad.ops.rows.movement.views import clone
from evergrad.ops.surface.convert import adopt
from evergrad.ops.surface.view_forms import UPDATE

_MODES = ("constant", "reflect", "replicate", "circular")


@prepared
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: object = None) -> Tensor:
    """Padded by ``pad`` = (left, right, top, bottom, ...), from the last dimension backwards."""
    amounts = [int(n) for n in pad]
    if len(amounts) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(amounts) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(amounts)} and input of dimension {input.ndim}"
        )
    if mode not in _MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    edges = [(0, 0)] * input.ndim
    for i in range(len(amounts) // 2):
        edges[-1 - i] = (amounts[2 * i], amounts[2 * i + 1])
    if mode == "constant":
        return _pad_constant(input, edges, 0 if value is None else value)
    if value:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if not len(amounts) // 2 < input.ndim <= len(amounts) // 2 + 2 or len(amounts) > 6:
        raise NotImplementedError(
            f"Padding size {len(amounts)} is not supported for {input.ndim}D input tensor."
        )
    return _pad_by_index(input, edges, mode)


def _pad_constant(x: Tensor, edges: Sequence[tuple[int, int]], value: object) -> Tensor:
    x, grown = _cropped(x, edges), _grown(edges)
    if not any(before or after for before, after in grown):
        return clone(x)
    extents = x._type.shape
    shape = tuple(a + n + b for n, (a, b) in zip(extents, grown, strict=True))
    slices = tuple((a, a + n, 1) for n, (a, _) in zip(extents, grown, strict=True))
    value = number_as(value, x.dtype)
    if not value:
        return bind(PAD_SLICE, x, slices=slices, shape=shape)  # type: ignore[no-any-return]
    around = full(shape, value, dtype=x.dtype)
    chain = ViewChain(((SLICE, {"slices": slices}),))
    return bind(UPDATE, around, x, chain=chain)  # type: ignore[no-any-return]


def _grown(edges: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """Without negative padding."""
    return [(max(0, before), max(0, after)) for before, after in edges]


def _cropped(x: Tensor, edges: Sequence[tuple[int, int]]) -> Tensor:
    """Without what negative padding takes away."""
    if all(n >= 0 for edge in edges for n in edge):
        return x
    slices = []
    for dim, (extent, (before, after)) in enumerate(zip(x._type.shape, edges, strict=True)):
        start, stop = max(0, -before), extent - max(0, -after)
        if stop < start:
            raise RuntimeError(
                f"negative padding ({before}, {after}) takes more than there is of dimension {dim} "
                f"with size {extent}"
            )
        slices.append((start, stop, 1))
    return bind(SLICE, x, slices=tuple(slices))  # type: ignore[no-any-return]


def _pad_by_index(x: Tensor, edges: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """Padded with elements of the tensor itself, one dimension after the other."""
    if mode == "circular":
        x, edges = _cropped(x, edges), _grown(edges)
    else:
        x = as_float32(x)
    shape = x._type.shape
    for dim, (before, after) in enumerate(edges):
        if (before, after) != (0, 0):
            _require_enough(mode, shape, dim, before, after)
            places = _places(mode, shape[dim], before, after)
            x = bind(INDEX, x, adopt(places), start=dim, wrap=True)
    return clone(x) if x._type.shape == shape else x


def _places(mode: str, extent: int, before: int, after: int) -> Any:
    """Which element of a dimension stands at each place of the padded one."""
    places = np.arange(-before, extent + after)
    if mode == "circular":
        return places % extent
    if mode == "replicate":
        return np.clip(places, 0, extent - 1)
    return (extent - 1) - np.abs((extent - 1) - np.abs(places))


def _require_enough(mode: str, shape: Shape, dim: int, before: int, after: int) -> None:
    extent = shape[dim]
    if extent + before + after < 0 or not extent:
        raise RuntimeError(
            f"padding ({before}, {after}) cannot be applied to dimension {dim} of input "
            f"{list(shape)}"
        )
    if mode == "reflect" and max(before, after) >= extent:
        raise RuntimeError(
            "Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {dim} of input {list(shape)}"
        )
    if mode == "circular" and max(before, after) > extent:
        raise RuntimeError("Padding value causes wrapping around more than once.")
