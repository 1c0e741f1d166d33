"""Images without Pillow: an array of pixels with the few attributes and methods programs use.

Data sets give Pillow's images where Pillow is installed and :class:`Image` where it is not. The
transforms take both and give back what they were given, with the same pixels either way.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

from evergrad.core.types import Array
from evergrad.datasets import png
from evergrad.datasets.files import written_beside

if TYPE_CHECKING:
    from types import ModuleType

# An image of any kind, or a tensor that is one: what comes out is of the kind that went in.
ImageT = TypeVar("ImageT")

# Mode by element type and number of channels, as Pillow names them.
MODES = {
    ("uint8", 1): "L", ("uint8", 2): "LA", ("uint8", 3): "RGB", ("uint8", 4): "RGBA",
    ("uint16", 1): "I;16", ("int32", 1): "I", ("float32", 1): "F",
}  # fmt: skip


class Image:
    """An image as Pillow would show it: ``size`` is (width, height), pixels are (H, W[, C]).

    Args:
        pixels: an array (H, W) or (H, W, C) of uint8
        mode: such as ``"L"`` or ``"RGB"``; by the shape if not given

    >>> image = eg.datasets.Image(np.zeros((4, 6, 3), np.uint8))
    >>> image.size, image.mode
    ((6, 4), 'RGB')
    """

    def __init__(self, pixels: Array, mode: str | None = None) -> None:
        if pixels.ndim == 3 and pixels.shape[2] == 1:
            pixels = pixels[:, :, 0]
        if pixels.ndim not in (2, 3):
            raise ValueError(f"an image has shape (H, W) or (H, W, C), not {pixels.shape}")
        channels = 1 if pixels.ndim == 2 else pixels.shape[2]
        found = MODES.get((pixels.dtype.name, channels))
        if found is None:
            raise TypeError(f"no image has {channels} channels of {pixels.dtype.name}")
        self._pixels = pixels.view()
        self._pixels.flags.writeable = False  # they may be those of a data set
        self.mode: str = mode or found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._pixels, dtype, copy=copy)

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self.width, self.height

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        return int(self._pixels.shape[1])

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return int(self._pixels.shape[0])

    def getbands(self) -> tuple[str, ...]:
        """The names of the channels."""
        return tuple(self.mode) if self.mode in ("LA", "RGB", "RGBA") else (self.mode[0],)

    def getpixel(self, xy: tuple[int, int]) -> Any:
        """The value at (x, y): a number, or a tuple with one for each channel."""
        pixel = self._pixels[xy[1], xy[0]]
        return tuple(pixel.tolist()) if pixel.ndim else pixel.item()

    def tobytes(self) -> bytes:
        """The pixels, row by row."""
        return self._pixels.tobytes()

    def copy(self) -> Image:
        """A copy with pixels of its own."""
        return Image(self._pixels.copy(), self.mode)

    def crop(self, box: tuple[int, int, int, int]) -> Image:
        """The part from (left, upper) to (right, lower); black where it reaches outside."""
        left, upper, right, lower = box
        shape = (lower - upper, right - left, *self._pixels.shape[2:])
        cropped = np.zeros(shape, self._pixels.dtype)
        inside = self._pixels[max(upper, 0) : max(lower, 0), max(left, 0) : max(right, 0)]
        top, start = max(-upper, 0), max(-left, 0)
        cropped[top : top + inside.shape[0], start : start + inside.shape[1]] = inside
        return Image(cropped, self.mode)

    def convert(self, mode: str) -> Image:
        """The image in another of the modes L, RGB and RGBA."""
        if mode == self.mode:
            return self.copy()
        if mode not in ("L", "RGB", "RGBA") or self.mode not in ("L", "LA", "RGB", "RGBA"):
            raise ValueError(
                f"an image without Pillow cannot go from mode {self.mode} to {mode}; "
                "install Pillow: pip install pillow"
            )
        return Image(_converted(self._pixels, mode), mode)

    def save(self, fp: str | Path | IO[bytes], format: str | None = None, **params: object) -> None:
        """Write a PNG file, the one format that needs no Pillow."""
        write_png(self._pixels, fp, format)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Image)
            and other.mode == self.mode
            and np.array_equal(other._pixels, self._pixels)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<evergrad.datasets.Image mode={self.mode} size={self.width}x{self.height}>"


def _converted(pixels: Array, mode: str) -> Array:
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    colours, alpha = pixels[:, :, : 3 if pixels.shape[2] > 2 else 1], pixels[:, :, 3:]
    if pixels.shape[2] == 2:
        alpha = pixels[:, :, 1:]
    if mode == "L":
        return luma(colours) if colours.shape[2] == 3 else colours[:, :, 0].copy()
    colours = np.broadcast_to(colours, (*colours.shape[:2], 3))
    if mode == "RGB":
        return colours.copy()
    if not alpha.size:
        alpha = np.full_like(colours[:, :, :1], 255)
    return np.concatenate([colours, alpha], axis=2)


def luma(colours: Array) -> Array:
    """The brightness of (H, W, 3) colours: Pillow's weights, in 16-bit fixed point."""
    weighted = colours.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)
    return ((weighted + 0x8000) >> 16).astype(np.uint8)


def write_png(pixels: Array, fp: str | Path | IO[bytes], format: str | None = None) -> None:
    """Write pixels as a PNG file to a path or an open file."""
    is_path = isinstance(fp, str | Path)
    kind = format or (Path(fp).suffix.removeprefix(".") if is_path else "png")  # type: ignore[arg-type]
    if kind.lower() != "png":
        raise ValueError(f"without Pillow images are written as PNG, not {kind!r}: use name.png")
    content = png.encode(pixels)
    if is_path:
        with written_beside(Path(fp)) as file:  # type: ignore[arg-type]
            file.write(content)
    else:
        fp.write(content)  # type: ignore[union-attr]


@cache
def _pillow() -> ModuleType | None:
    """Pillow's module of images, or ``None``."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        return None


def from_pixels(pixels: Array) -> Any:
    """An image of a (H, W) or (H, W, C) array: Pillow's if it is installed."""
    pillow = _pillow()
    return Image(pixels) if pillow is None else pillow.fromarray(pixels)


def is_image(value: object) -> bool:
    """Whether this is an image, ours or Pillow's."""
    if isinstance(value, Image):
        return True
    pillow = sys.modules.get("PIL.Image")  # there is no image of Pillow before it is imported
    return pillow is not None and isinstance(value, pillow.Image)


def pixels_of(image: Any) -> Array:
    """The pixels of an image, (H, W) or (H, W, C); not to be written to."""
    if not isinstance(image, Image) and image.mode == "1":
        image = image.convert("L")
    return np.asarray(image)


def like(image: ImageT) -> Callable[[Array], ImageT]:
    """The function that makes of pixels an image of the same library."""
    return Image if isinstance(image, Image) else from_pixels  # type: ignore[return-value]


def open_image(path: str | Path) -> Any:
    """Read an image file as RGB: PNG always, every other format if Pillow is installed."""
    pillow = _pillow()
    if pillow is not None:
        with pillow.open(path) as image:
            return image.convert("RGB")
    if Path(path).suffix.lower() != ".png":
        raise ImportError(f"reading {path} needs Pillow: pip install pillow. PNG files do not.")
    return Image(png.read(path)).convert("RGB")
