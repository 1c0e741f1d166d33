"""Images at other places than their pixels: resized, turned, sheared, blurred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache

import numpy as np

import evergrad as eg
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Array
from evergrad.datasets.image import ImageT, is_image
from evergrad.nn import functional as F
from evergrad.transforms.conversion import (
    Fill,
    as_floats,
    get_dimensions,
    rounded_to,
    takes_images,
)


class InterpolationMode(Enum):
    """How values between pixels are found. The last three are Pillow's and only named here.

    >>> eg.transforms.InterpolationMode.BILINEAR.value
    'bilinear'
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PILLOW_NUMBERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_UNFILTERED = ("nearest", "nearest-exact")


def interpolation_mode(value: object) -> InterpolationMode:
    """The mode of a name, of Pillow's number, or the mode itself."""
    if isinstance(value, InterpolationMode):
        return value
    name = _PILLOW_NUMBERS.get(value) if isinstance(value, int) else value
    try:
        return InterpolationMode(name)
    except ValueError:
        raise TypeError(
            "Argument interpolation should be a InterpolationMode or a corresponding Pillow "
            f"integer constant, not {value!r}"
        ) from None


# -- resizing -------------------------------------------------------------------------------------


def resize(
    img: ImageT,
    size: int | Sequence[int] | None,
    interpolation: object = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> ImageT:
    """An image of another size: (height, width), or one number for the shorter edge.

    ``antialias`` blurs what shrinks. Images are resized as Pillow does it: always antialiased, and
    the nearest pixel is the one whose middle is nearest.
    """
    mode = interpolation_mode(interpolation).value
    if mode not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError(f"resize does not know interpolation {mode!r}; use bilinear or bicubic")
    _, height, width = get_dimensions(img)
    target = output_size((height, width), size, max_size)
    if target == (height, width):
        return img
    if is_image(img):
        return _resized(img, target, "nearest-exact" if mode == "nearest" else mode, True)
    return _resized(img, target, mode, bool(antialias))


def output_size(
    current: tuple[int, int], size: int | Sequence[int] | None, max_size: int | None
) -> tuple[int, int]:
    """Height and width that ``size`` and ``max_size`` ask for."""
    if isinstance(size, Sequence) and len(size) == 2:
        if max_size is not None:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge, "
                "i.e. size should be an int or a sequence of length 1"
            )
        return int(size[0]), int(size[1])
    height, width = current
    short, long = sorted(current)
    if size is None:
        if max_size is None:
            raise ValueError("size and max_size cannot both be None")
        new_short, new_long = int(max_size * short / long), max_size
    else:
        new_short = size[0] if isinstance(size, Sequence) else size
        new_long = int(new_short * long / short)
        if max_size is not None and max_size <= new_short:
            raise ValueError(
                f"max_size = {max_size} must be strictly greater than the requested size for the "
                f"smaller edge size = {size}"
            )
        if max_size is not None and new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if height <= width else (new_long, new_short)


@takes_images
def _resized(img: Tensor, target: tuple[int, int], mode: str, antialias: bool) -> Tensor:
    if mode in _UNFILTERED:
        return _as_batch(img, lambda batch: F.interpolate(batch, target, mode=mode))
    if antialias:
        height, width = img.shape[-2:]
        floats = as_floats(img)
        across = from_array(_filter_weights(width, target[1], mode)).to(floats.dtype)
        down = from_array(_filter_weights(height, target[0], mode)).to(floats.dtype)
        return rounded_to(down @ (floats @ across.t()), img.dtype)
    resized = _as_batch(
        as_floats(img), lambda batch: F.interpolate(batch, target, mode=mode, align_corners=False)
    )
    return rounded_to(resized, img.dtype)


def _as_batch(img: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of (N, C, H, W) to an image with any leading dimensions."""
    batch = img.reshape(-1, 1, *img.shape[-2:])
    result = function(batch)
    return result.reshape(*img.shape[:-2], *result.shape[-2:])


@lru_cache(maxsize=64)
def _filter_weights(size: int, target: int, mode: str) -> Array:
    """The matrix (target, size) that resizes one dimension: each row is a stretched filter."""
    scale = size / target
    stretch = max(scale, 1.0)
    reach = stretch * (1.0 if mode == "bilinear" else 2.0)
    centre = scale * (np.arange(target) + 0.5)
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + reach + 0.5).astype(np.int64), size)
    place = np.arange(size)
    distance = np.abs(place + 0.5 - centre[:, None]) / stretch
    weights = _triangle(distance) if mode == "bilinear" else _cubic(distance)
    weights *= (place >= first[:, None]) & (place < last[:, None])
    weights /= weights.sum(1, keepdims=True)
    return weights.astype(np.float32)


def _triangle(distance: Array) -> Array:
    return np.maximum(1.0 - distance, 0.0)


def _cubic(x: Array, a: float = -0.5) -> Array:
    """The cubic convolution filter, in pieces up to distance 1 and from there to 2."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


# -- turning and shearing -------------------------------------------------------------------------


def rotate(
    img: ImageT,
    angle: float,
    interpolation: object = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill | None = None,
) -> ImageT:
    """The image turned by an angle in degrees, against the clock.

    ``expand`` makes the result large enough for all of it; ``center`` is (x, y) from the top left.
    """
    matrix = _inverse_matrix(img, -angle, (0.0, 0.0), 1.0, (0.0, 0.0), center)
    mode = interpolation_mode(interpolation).value
    return _warped(img, matrix, mode, fill, expand, soft_edges=not is_image(img))


def affine(
    img: ImageT,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: object = InterpolationMode.NEAREST,
    fill: Fill | None = None,
    center: Sequence[float] | None = None,
) -> ImageT:
    """The image turned with the clock, scaled, sheared (degrees along x and y) and moved."""
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    if len(translate) != 2:
        raise ValueError("Argument translate should be a sequence of length 2")
    shears = (shear,) if isinstance(shear, int | float) else tuple(shear)
    if len(shears) not in (1, 2):
        raise ValueError(f"Shear should be a sequence containing two values. Got {shear}")
    matrix = _inverse_matrix(
        img, angle, translate, scale, (shears[0], shears[1] if len(shears) == 2 else 0.0), center
    )
    mode = interpolation_mode(interpolation).value
    return _warped(img, matrix, mode, fill, expand=False, soft_edges=not is_image(img))


def _inverse_matrix(
    img: object,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
    center: Sequence[float] | None,
) -> Array:
    """The (2, 3) matrix from places in the result to places in the image, from its middle."""
    _, height, width = get_dimensions(img)
    middle = np.zeros(2) if center is None else np.asarray(center) - (width * 0.5, height * 0.5)
    turn, along_x, along_y = np.radians([angle, *shear])
    # Shear along y, then along x, then turn; the inverse of this matrix has determinant 1.
    a = np.cos(turn - along_y) / np.cos(along_y)
    c = np.sin(turn - along_y) / np.cos(along_y)
    b, d = -a * np.tan(along_x) - np.sin(turn), -c * np.tan(along_x) + np.cos(turn)
    inverse = np.array([[d, -b], [-c, a]]) / scale
    offset = middle - inverse @ (middle + np.asarray(translate, float))
    return np.concatenate([inverse, offset[:, None]], axis=1)


@takes_images
def _warped(
    img: Tensor, matrix: Array, mode: str, fill: Fill | None, expand: bool, soft_edges: bool
) -> Tensor:
    """The image seen through a matrix; Pillow's images end sharply, tensors fade into ``fill``."""
    if mode not in ("nearest", "bilinear"):
        raise ValueError(f"rotate and affine interpolate nearest or bilinear, not {mode!r}")
    height, width = img.shape[-2:]
    target = _expanded_size(matrix, height, width) if expand else (height, width)
    grid = _sampling_grid(matrix, (height, width), target)
    channels = 1 if img.ndim == 2 else img.shape[-3]
    batch = as_floats(img).reshape(-1, channels, height, width)
    grids = grid.to(batch.dtype).expand(len(batch), *grid.shape[1:])
    sample = _faded if soft_edges or mode == "nearest" else _cut
    warped = sample(batch, grids, mode, _fill_values(fill, channels))
    return rounded_to(warped.reshape(*img.shape[:-2], *target), img.dtype)


def _sampling_grid(matrix: Array, size: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """The image coordinates of each pixel of the result, both from -1 to 1: (1, H, W, 2)."""
    height, width = target
    x = eg.linspace(-width * 0.5 + 0.5, width * 0.5 - 0.5, width)
    y = eg.linspace(-height * 0.5 + 0.5, height * 0.5 - 0.5, height)
    places = eg.stack(
        [x.expand(height, width), y.unsqueeze(1).expand(height, width), eg.ones(height, width)], -1
    )  # (H, W, 3)
    scaled = eg.tensor(matrix, dtype=eg.float32).t() / eg.tensor([0.5 * size[1], 0.5 * size[0]])
    return (places.reshape(-1, 3) @ scaled).reshape(1, height, width, 2)


def _expanded_size(matrix: Array, height: int, width: int) -> tuple[int, int]:
    """Height and width of what the corners of the image span after the turn."""
    corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]]) * (0.5 * width, 0.5 * height)
    turned = corners @ matrix[:, :2].T + matrix[:, 2] + (0.5 * width, 0.5 * height)
    # A turn by 90 degrees is not exact; a ten-thousandth of a pixel does not ask for another row.
    lower, upper = (np.trunc(edge / 1e-4) * 1e-4 for edge in (turned.min(0), turned.max(0)))
    across, down = (np.ceil(upper) - np.floor(lower)).astype(int).tolist()
    return down, across


def _fill_values(fill: Fill | None, channels: int) -> Tensor | None:
    """One number for each channel, (C, 1, 1), or ``None`` for zeros."""
    if fill is None:
        return None
    values = [fill] if isinstance(fill, int | float) else list(fill)
    if len(values) not in (1, channels):
        raise ValueError(
            "The number of elements in 'fill' cannot broadcast to match the number of channels of "
            f"the image ({len(values)} != {channels})"
        )
    return eg.tensor([float(v) for v in values]).reshape(-1, 1, 1)


def _faded(batch: Tensor, grid: Tensor, mode: str, fill: Tensor | None) -> Tensor:
    """The batch at the places of a grid; the fill shows through between inside and outside."""
    sampled = F.grid_sample(batch, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is None:
        return sampled
    inside = F.grid_sample(
        eg.ones_like(batch[:, :1]), grid, mode=mode, padding_mode="zeros", align_corners=False
    )
    if mode == "nearest":
        return eg.where(inside < 0.5, fill.to(batch.dtype), sampled)
    return sampled * inside + (1.0 - inside) * fill


def _cut(batch: Tensor, grid: Tensor, mode: str, fill: Tensor | None) -> Tensor:
    """The batch at the places of a grid; places outside of the image are filled."""
    sampled = F.grid_sample(batch, grid, mode=mode, padding_mode="border", align_corners=False)
    outside = (grid.abs() > 1).any(-1).unsqueeze(1)
    filling = eg.zeros(1, 1, 1) if fill is None else fill
    return eg.where(outside, filling.to(batch.dtype), sampled)


# -- blurring -------------------------------------------------------------------------------------


def gaussian_blur(
    img: ImageT, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None
) -> ImageT:
    """The image under a Gaussian of odd extent (x, y) and standard deviations (x, y)."""
    across, down = _pair(kernel_size, "kernel_size")
    if any(size % 2 == 0 or size < 0 for size in (across, down)):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {[across, down]}")
    default = tuple(size * 0.15 + 0.35 for size in (across, down))
    sigmas = default if sigma is None else _pair(sigma, "sigma")
    if any(value <= 0.0 for value in sigmas):
        raise ValueError(f"sigma should have positive values. Got {list(sigmas)}")
    return _blurred(img, _gaussian(int(across), sigmas[0]), _gaussian(int(down), sigmas[1]))


def _pair(value: float | Sequence[float], name: str) -> tuple[float, float]:
    values = (value,) if isinstance(value, int | float) else tuple(value)
    if len(values) not in (1, 2):
        raise ValueError(f"If {name} is a sequence its length should be 2. Got {len(values)}")
    return values[0], values[-1]


def _gaussian(size: int, sigma: float) -> Tensor:
    half = (size - 1) * 0.5
    weights = eg.exp(-0.5 * (eg.linspace(-half, half, size) / sigma) ** 2)
    return weights / weights.sum()


@takes_images
def _blurred(img: Tensor, across: Tensor, down: Tensor) -> Tensor:
    kernel = (down.unsqueeze(1) * across).to(as_floats(img).dtype)  # (down, across)

    def blur(batch: Tensor) -> Tensor:
        x, y = kernel.shape[1] // 2, kernel.shape[0] // 2
        return F.conv2d(F.pad(batch, [x, x, y, y], mode="reflect"), kernel[None, None])

    return rounded_to(_as_batch(as_floats(img), blur), img.dtype)
