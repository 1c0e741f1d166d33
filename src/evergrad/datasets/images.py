"""Grids of images, and image files from tensors: torchvision's ``utils`` without Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np

import evergrad as eg
from evergrad.core.tensor import Tensor, from_array
from evergrad.datasets import png
from evergrad.datasets.image import write_png


def make_grid(
    tensor: Tensor | list[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images side by side, ``nrow`` in a row, with edges between: (C, H, W).

    ``normalize`` stretches ``value_range`` (if not given, what the images span, or each image with
    ``scale_each``) to 0 .. 1.

    Args:
        tensor: images (N, C, H, W), or a list of them
        nrow: how many in a row; default 8
        padding: width of the edges; default 2
        normalize: move values to 0 to 1; default ``False``
        value_range: least and greatest value for it; default those of the images
        scale_each: normalize each by itself; default ``False``
        pad_value: of the edges; default 0.0

    >>> eg.datasets.make_grid(eg.ones(6, 3, 4, 4), nrow=3).shape
    evergrad.Size([3, 14, 20])
    """
    batch = _as_colour_batch(tensor).detach()
    if normalize:
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError(
                "value_range has to be a tuple (min, max) if specified. min and max are numbers"
            )
        parts = batch.unbind(0) if scale_each else [batch]
        stretched = [_stretched(part, value_range) for part in parts]
        batch = eg.stack(stretched) if scale_each else stretched[0]
    if len(batch) == 1:
        return batch.squeeze(0)
    return _tiled(batch, nrow, padding, pad_value)


def _as_colour_batch(tensor: object) -> Tensor:
    """(N, C, H, W) of whatever was given; one channel becomes three."""
    if isinstance(tensor, list):
        for part in tensor:
            if not isinstance(part, Tensor):
                raise TypeError(
                    f"tensor or list of tensors expected, got a list containing {type(part)}"
                )
        tensor = eg.stack(tensor)
    elif not isinstance(tensor, Tensor):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    if tensor.ndim == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.ndim == 3:
        tensor = tensor.unsqueeze(0)
    if tensor.ndim != 4:
        raise ValueError(f"a grid is made of images (N, C, H, W), not of {tuple(tensor.shape)}")
    return tensor.expand(-1, 3, -1, -1) if tensor.shape[1] == 1 else tensor


def _stretched(image: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    low, high = value_range or (float(image.min().item()), float(image.max().item()))
    return (image.clamp(low, high) - low) / max(high - low, 1e-5)


def _tiled(batch: Tensor, nrow: int, padding: int, pad_value: float) -> Tensor:
    count, channels, rows, columns = batch.shape
    across = min(nrow, count)
    down = -(-count // across)
    height, width = rows + padding, columns + padding
    grid = batch.new_full((channels, height * down + padding, width * across + padding), pad_value)
    for index, image in enumerate(batch.unbind(0)):
        top, left = index // across * height + padding, index % across * width + padding
        grid[:, top : top + rows, left : left + columns] = image
    return grid


def save_image(
    tensor: Tensor | list[Tensor],
    fp: str | Path | IO[bytes],
    format: str | None = None,
    **kwargs: Any,
) -> None:
    """Write images with values from 0 to 1 as one PNG file; options are those of ``make_grid``.

    Args:
        tensor: (C, H, W) or (N, C, H, W)
        fp: path or file
        format: ``"png"``
        kwargs: options of :func:`make_grid`

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     eg.datasets.save_image(eg.ones(3, 4, 4), f"{folder}/x.png")
    ...     eg.datasets.read_image(f"{folder}/x.png").shape
    evergrad.Size([3, 4, 4])
    """
    grid = make_grid(tensor, **kwargs)
    pixels = grid.mul(255).add(0.5).clamp(0, 255).to(eg.uint8)
    write_png(np.ascontiguousarray(pixels.array().transpose(1, 2, 0)), fp, format)


def read_image(path: str | Path) -> Tensor:
    """The pixels of a PNG file as a uint8 tensor (C, H, W).

    Args:
        path: of the file

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     eg.datasets.save_image(eg.ones(3, 4, 4), f"{folder}/x.png")
    ...     eg.datasets.read_image(f"{folder}/x.png").shape
    evergrad.Size([3, 4, 4])
    """
    pixels = png.read(path)
    layered = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return from_array(layered.copy())
