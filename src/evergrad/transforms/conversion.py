"""From images and arrays to tensors and back, and between the element types of pixels.

An image is one of Pillow or of :mod:`evergrad.datasets.image`; as a tensor it is (..., C, H, W).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias

import numpy as np

import evergrad as eg
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Array
from evergrad.datasets.image import MODES, ImageT, from_pixels, is_image, like, pixels_of

P = ParamSpec("P")
# What fills the edges: a number, or one for each channel.
Fill: TypeAlias = "float | Sequence[float]"


class ImageFunction(Protocol[P]):
    """A function of one image and further arguments, with a result of the same kind."""

    def __call__(self, img: ImageT, *args: P.args, **kwargs: P.kwargs) -> ImageT: ...


# Half a step less than one, so that 1.0 gives the largest integer and equal parts give all others.
_STEP = 1.0 - 1e-3


def takes_images(function: Callable[Concatenate[Tensor, P], Tensor]) -> ImageFunction[P]:
    """Let a function of tensors take images too: an image goes in, one of its kind comes out."""

    @functools.wraps(function)
    def of_image_or_tensor(img: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        if is_image(img):
            result = function(pil_to_tensor(img), *args, **kwargs)
            return like(img)(_of_a_mode(pixels_from(result)))
        check_tensor_image(img)
        return function(img, *args, **kwargs)

    return of_image_or_tensor


def check_tensor_image(img: object) -> None:
    """Refuse what is neither an image nor a tensor that could be one."""
    if not isinstance(img, Tensor):
        raise TypeError(f"img should be an image or a Tensor image. Got {type(img)}")
    if img.ndim < 2:
        raise TypeError(f"a Tensor image has 2 or more dimensions, not shape {tuple(img.shape)}")


def pixels_from(tensor: Tensor) -> Array:
    """The (H, W) or (H, W, C) array of a tensor (C, H, W)."""
    pixels = tensor.detach().array()
    return np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def _tensor_from(pixels: Array) -> Tensor:
    """The tensor (C, H, W) of an array, with memory of its own."""
    layered = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if layered.dtype == np.uint16:  # which tensors do not have
        return from_array(layered.astype(np.int16))
    return from_array(layered.copy())


def to_tensor(pic: object) -> Tensor:
    """The tensor (C, H, W) of an image or array; uint8 pixels become floats from 0 to 1."""
    if not is_image(pic) and not isinstance(pic, np.ndarray):
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    pixels = pic if isinstance(pic, np.ndarray) else pixels_of(pic)
    if pixels.ndim not in (2, 3):
        raise ValueError(f"pic should be 2/3 dimensional. Got {pixels.ndim} dimensions.")
    tensor = _tensor_from(pixels)
    if tensor.dtype is not eg.uint8:
        return tensor
    return tensor.to(eg.get_default_dtype()).div(255)


def pil_to_tensor(pic: object) -> Tensor:
    """The tensor (C, H, W) of an image, its pixels unchanged."""
    if not is_image(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return _tensor_from(pixels_of(pic))


def to_pil_image(pic: object, mode: str | None = None) -> Any:
    """The image of a tensor (C, H, W) or an array (H, W, C); floats are taken from 0 to 1."""
    if not isinstance(pic, Tensor | np.ndarray):
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if pic.ndim not in (2, 3):
        raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
    if isinstance(pic, Tensor):
        pic = pic.unsqueeze(0) if pic.ndim == 2 else pic
        _check_channels(pic.shape[0])
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).to(eg.uint8)
        pixels = pixels_from(pic)
    else:
        pixels = pic[:, :, 0] if pic.ndim == 3 and pic.shape[2] == 1 else pic
        _check_channels(1 if pixels.ndim == 2 else pixels.shape[2])
    pixels = _of_a_mode(pixels)
    _check_mode(pixels, mode)
    return from_pixels(pixels)


def _check_channels(channels: int) -> None:
    if channels > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {channels} channels.")


def _of_a_mode(pixels: Array) -> Array:
    """Pixels of an element type that images have."""
    if pixels.dtype == np.int16:
        return pixels.astype(np.uint16)
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if (pixels.dtype.name, channels) not in MODES:
        raise TypeError(f"Input type {pixels.dtype} is not supported")
    return pixels


def _check_mode(pixels: Array, mode: str | None) -> None:
    """Refuse a mode that is not the one these pixels have."""
    found = MODES[(pixels.dtype.name, 1 if pixels.ndim == 2 else pixels.shape[2])]
    if mode not in (None, found):
        raise ValueError(
            f"Incorrect mode ({mode}) supplied for {pixels.dtype} pixels of shape {pixels.shape}. "
            f"Should be {found}"
        )


def convert_image_dtype(image: Tensor, dtype: eg.dtype = eg.float32) -> Tensor:
    """Pixels as another element type, scaled so that the largest value stays the largest."""
    if not isinstance(image, Tensor):
        raise TypeError("Input img should be Tensor Image")
    if image.dtype is dtype:
        return image
    if image.is_floating_point():
        return _from_floats(image, dtype)
    largest = eg.iinfo(image.dtype).max
    if dtype.is_floating_point:
        return image.to(dtype) / largest
    ratio = (largest + 1) / (eg.iinfo(dtype).max + 1)
    if ratio > 1:
        return eg.div(image, int(ratio), rounding_mode="floor").to(dtype)
    return image.to(dtype) * int(1 / ratio)


def _from_floats(image: Tensor, dtype: eg.dtype) -> Tensor:
    if dtype.is_floating_point:
        return image.to(dtype)
    too_wide = (eg.int32, eg.int64) if image.dtype is eg.float32 else (eg.int64,)
    if dtype in too_wide and image.dtype in (eg.float32, eg.float64):
        raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
    return image.mul(eg.iinfo(dtype).max + _STEP).to(dtype)


def get_dimensions(img: Any) -> list[int]:
    """Channels, height and width."""
    if is_image(img):
        return [len(img.getbands()), img.height, img.width]
    check_tensor_image(img)
    return [1 if img.ndim == 2 else img.shape[-3], img.shape[-2], img.shape[-1]]


def get_image_size(img: object) -> list[int]:
    """Width and height."""
    _, height, width = get_dimensions(img)
    return [width, height]


def get_image_num_channels(img: object) -> int:
    return get_dimensions(img)[0]


def max_value(dtype: eg.dtype) -> float:
    """The value of full brightness."""
    return 1.0 if dtype.is_floating_point else float(eg.iinfo(dtype).max)


def as_floats(img: Tensor) -> Tensor:
    """The pixels as floats to calculate with."""
    return img if img.is_floating_point() else img.to(eg.float32)


def rounded_to(img: Tensor, dtype: eg.dtype) -> Tensor:
    """Calculated pixels back in the element type they had."""
    if dtype.is_floating_point:
        return img
    return img.round().clamp(0, max_value(dtype)).to(dtype)
