"""Parts of images, edges around them, mirror images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import evergrad as eg
from evergrad.core.tensor import Tensor, from_array
from evergrad.datasets.image import ImageT
from evergrad.nn import functional as F
from evergrad.transforms.conversion import Fill, check_tensor_image, get_dimensions, takes_images
from evergrad.transforms.sampling import InterpolationMode, resize

PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


@takes_images
def hflip(img: Tensor) -> Tensor:
    """The image with left and right exchanged."""
    return img.flip(-1)


@takes_images
def vflip(img: Tensor) -> Tensor:
    """The image with top and bottom exchanged."""
    return img.flip(-2)


@takes_images
def crop(img: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """A part of the image; zeros where it reaches outside."""
    rows, columns = img.shape[-2:]
    bottom, right = top + height, left + width
    if top >= 0 and left >= 0 and bottom <= rows and right <= columns:
        return img[..., top:bottom, left:right]
    inside = img[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    across = [min(max(-left, 0), width), min(max(right - columns, 0), width)]
    down = [min(max(-top, 0), height), min(max(bottom - rows, 0), height)]
    return F.pad(inside, across + down)


def center_crop(img: ImageT, output_size: int | Sequence[int]) -> ImageT:
    """The middle of the image, (height, width); zeros around an image that is smaller."""
    height, width = pair_of(output_size)
    _, rows, columns = get_dimensions(img)
    if height > rows or width > columns:
        down, across = max(height - rows, 0), max(width - columns, 0)
        img = pad(img, [across // 2, down // 2, (across + 1) // 2, (down + 1) // 2])
        _, rows, columns = get_dimensions(img)
    return crop(img, round((rows - height) / 2.0), round((columns - width) / 2.0), height, width)


def pair_of(size: int | Sequence[int]) -> tuple[int, int]:
    """Height and width from one number, a sequence of one, or of two."""
    if isinstance(size, int):
        return size, size
    if len(size) not in (1, 2):
        raise ValueError("Please provide only two dimensions (h, w) for size.")
    return int(size[0]), int(size[-1])


def five_crop(img: ImageT, size: int | Sequence[int]) -> tuple[ImageT, ...]:
    """The four corners and the middle: top left, top right, bottom left, bottom right, middle."""
    height, width = pair_of(size)
    _, rows, columns = get_dimensions(img)
    if width > columns or height > rows:
        raise ValueError(
            f"Requested crop size {(height, width)} is bigger than input size {(rows, columns)}"
        )
    tops, lefts = (0, rows - height), (0, columns - width)
    corners = [crop(img, top, left, height, width) for top in tops for left in lefts]
    return (*corners, center_crop(img, (height, width)))


def ten_crop(
    img: ImageT, size: int | Sequence[int], vertical_flip: bool = False
) -> tuple[ImageT, ...]:
    """The five crops of the image, then those of its mirror image."""
    mirrored = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(mirrored, size)


def resized_crop(
    img: ImageT,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Sequence[int],
    interpolation: object = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> ImageT:
    """A part of the image, resized to (height, width)."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


# -- edges ----------------------------------------------------------------------------------------


def pad(
    img: ImageT, padding: int | Sequence[int], fill: Fill = 0, padding_mode: str = "constant"
) -> ImageT:
    """The image with edges: all alike, (left and right, top and bottom), or (l, t, r, b).

    ``constant`` fills with a number (or one per channel), ``edge`` repeats the outermost pixels,
    ``reflect`` mirrors without and ``symmetric`` with them.
    """
    left, top, right, bottom = four_edges(padding)
    check_padding_mode(padding_mode)
    if padding_mode != "constant":
        return _continued(img, (left, top, right, bottom), padding_mode)
    return _framed(img, [left, right, top, bottom], fill)


def check_padding_mode(mode: str) -> None:
    """Refuse a mode that ``pad`` does not know."""
    if mode not in PADDING_MODES:
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")


def four_edges(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom."""
    if not isinstance(padding, int | list | tuple):
        raise TypeError("Got inappropriate padding arg")
    edges = (padding,) if isinstance(padding, int) else tuple(padding)
    if len(edges) not in (1, 2, 4):
        raise ValueError(
            f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(edges)} element "
            "tuple"
        )
    left, top, right, bottom = edges * (4 // len(edges))
    return left, top, right, bottom


@takes_images
def _framed(img: Tensor, edges: list[int], fill: Fill) -> Tensor:
    if isinstance(fill, int | float):
        return F.pad(img, edges, value=fill)
    colours = list(fill)
    if len(colours) == 1:
        return F.pad(img, edges, value=colours[0])
    if len(colours) != img.shape[-3]:
        raise ValueError(f"fill has {len(colours)} values for {img.shape[-3]} channels")
    framed = [
        F.pad(channel, edges, value=colour)
        for channel, colour in zip(img.unbind(-3), colours, strict=True)
    ]
    return eg.stack(framed, -3)


@takes_images
def _continued(img: Tensor, edges: tuple[int, int, int, int], mode: str) -> Tensor:
    """Edges made of the image itself: the rows and columns they repeat are looked up."""
    left, top, right, bottom = edges
    rows, columns = img.shape[-2:]
    down = _continued_places(rows, top, bottom, mode)
    across = _continued_places(columns, left, right, mode)
    return img.index_select(-2, down).index_select(-1, across)


def _continued_places(size: int, before: int, after: int, mode: str) -> Tensor:
    places = np.arange(size)[max(-before, 0) : size - max(-after, 0)]  # negative edges cut off
    return from_array(np.pad(places, (max(before, 0), max(after, 0)), mode))  # type: ignore[call-overload]


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Tensor:
    """The tensor image with a part replaced by ``v``."""
    check_tensor_image(img)
    result: Tensor = img if inplace else img.clone()
    result[..., i : i + h, j : j + w] = v
    return result
