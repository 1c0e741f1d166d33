"""Brightness, contrast, saturation, hue, grey values, and normalisation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import evergrad as eg
from evergrad.core.tensor import Tensor
from evergrad.datasets.image import ImageT, is_image, like, luma, pixels_of
from evergrad.transforms.conversion import (
    as_floats,
    convert_image_dtype,
    get_dimensions,
    max_value,
    takes_images,
)

_GREY_WEIGHTS = (0.2989, 0.587, 0.114)


def normalize(
    tensor: object, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> Tensor:
    """Each channel less its mean, divided by its standard deviation."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(
            "Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = "
            f"{tensor.size()}"
        )
    means = _by_channel(_numbers(mean), tensor.dtype)
    deviations = _by_channel(_numbers(std), tensor.dtype)
    if 0.0 in deviations.array():
        raise ValueError(
            f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by "
            "zero."
        )
    # In place, so that more means than channels are refused instead of making channels.
    result = tensor if inplace else tensor.clone()
    return result.sub_(means).div_(deviations)


def _numbers(values: Tensor | float | Iterable[float]) -> tuple[float, ...]:
    listed = values.tolist() if isinstance(values, Tensor) else values
    return tuple(float(v) for v in (listed if isinstance(listed, Iterable) else (listed,)))


@lru_cache(maxsize=64)
def _by_channel(values: tuple[float, ...], dtype: eg.dtype) -> Tensor:
    """(C, 1, 1); kept, because every image of a data set is normalised with the same numbers."""
    return eg.tensor(values, dtype=dtype).reshape(-1, 1, 1)


def rgb_to_grayscale(img: ImageT, num_output_channels: int = 1) -> ImageT:
    """The brightness of colours, once or three times; a tensor with one channel keeps it."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if is_image(img):
        return _grey_image(img, num_output_channels)
    grey: ImageT = _grey_tensor(img, num_output_channels)
    return grey


def _grey_tensor(img: Any, channels: int) -> Any:
    if get_dimensions(img)[0] not in (1, 3) or img.ndim < 3:
        raise TypeError(
            f"Input image tensor permitted channel values are 1 or 3, but found {img.shape}"
        )
    if img.shape[-3] == 1:
        return img.clone()
    return _brightness(img).expand(*img.shape[:-3], channels, *img.shape[-2:])


def to_grayscale(img: ImageT, num_output_channels: int = 1) -> ImageT:
    """The grey version of an image (not of a tensor: see ``rgb_to_grayscale``)."""
    if not is_image(img):
        raise TypeError("Input should be PIL Image")
    return rgb_to_grayscale(img, num_output_channels)


def _grey_image(img: ImageT, channels: int) -> ImageT:
    pixels = pixels_of(img)
    if pixels.ndim == 3:
        pixels = luma(pixels[:, :, :3]) if pixels.shape[2] > 2 else pixels[:, :, 0].copy()
    return like(img)(pixels if channels == 1 else pixels[:, :, None].repeat(3, axis=2))


def _brightness(img: Tensor) -> Tensor:
    """(..., 1, H, W), in the type of the image."""
    if img.shape[-3] == 1:
        return img
    red, green, blue = as_floats(img).unbind(-3)
    parts = zip(_GREY_WEIGHTS, (red, green, blue), strict=True)
    first, second, third = (weight * channel for weight, channel in parts)
    return (first + second + third).to(img.dtype).unsqueeze(-3)


def _blended(img: Tensor, other: Tensor | float, share: float) -> Tensor:
    """``share`` of the image and the rest of the other, within the range of its type."""
    mixed = share * as_floats(img) + (1.0 - share) * other
    return mixed.clamp(0, max_value(img.dtype)).to(img.dtype)


def _check_factor(name: str, factor: float) -> None:
    if factor < 0:
        raise ValueError(f"{name}_factor ({factor}) is not non-negative.")


@takes_images
def adjust_brightness(img: Tensor, brightness_factor: float) -> Tensor:
    """0 gives black, 1 the image, 2 twice the brightness."""
    _check_factor("brightness", brightness_factor)
    return _blended(img, 0.0, brightness_factor)


@takes_images
def adjust_contrast(img: Tensor, contrast_factor: float) -> Tensor:
    """0 gives the mean grey everywhere, 1 the image, 2 twice the contrast."""
    _check_factor("contrast", contrast_factor)
    mean = as_floats(_brightness(img)).mean((-3, -2, -1), keepdim=True)
    return _blended(img, mean, contrast_factor)


@takes_images
def adjust_saturation(img: Tensor, saturation_factor: float) -> Tensor:
    """0 gives grey values, 1 the image, 2 twice the saturation."""
    _check_factor("saturation", saturation_factor)
    if img.shape[-3] == 1:
        return img
    return _blended(img, as_floats(_brightness(img)), saturation_factor)


@takes_images
def adjust_gamma(img: Tensor, gamma: float, gain: float = 1) -> Tensor:
    """``gain`` times the image to the power of ``gamma``."""
    _check_factor("gamma", gamma)
    floats = convert_image_dtype(img, as_floats(img).dtype)
    return convert_image_dtype((gain * floats**gamma).clamp(0, 1), img.dtype)


@takes_images
def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    """Colours moved around the circle of hues by -0.5 to 0.5 of it."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if img.shape[-3] == 1:
        return img
    hue, saturation, value = _hsv_from_rgb(convert_image_dtype(img, as_floats(img).dtype))
    turned = _rgb_from_hsv((hue + hue_factor) % 1.0, saturation, value)
    return convert_image_dtype(turned, img.dtype)


def _hsv_from_rgb(img: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value, (..., H, W) each, from 0 to 1."""
    red, green, blue = img.unbind(-3)
    value, least = img.amax(-3), img.amin(-3)
    spread = value - least
    is_grey = value == least
    divisor = eg.where(is_grey, 1.0, spread)
    saturation = spread / eg.where(is_grey, 1.0, value)
    from_red, from_green, from_blue = (
        (value - channel) / divisor for channel in (red, green, blue)
    )
    hue = eg.where(
        value == red,
        from_blue - from_green,
        eg.where(value == green, 2.0 + from_red - from_blue, 4.0 + from_green - from_red),
    )
    return (hue / 6.0 + 1.0).fmod(1.0), saturation, value


def _rgb_from_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """Colours (..., 3, H, W): each channel is a trapezoid over the circle of hues."""
    sector = eg.floor(hue * 6.0)
    rest = hue * 6.0 - sector
    low = (value * (1.0 - saturation)).clamp(0.0, 1.0)
    falling = (value * (1.0 - saturation * rest)).clamp(0.0, 1.0)
    rising = (value * (1.0 - saturation * (1.0 - rest))).clamp(0.0, 1.0)
    levels = eg.stack([value, falling, low, low, rising, value])  # a channel, sector by sector
    sectors = sector.to(eg.int64) % 6
    channels = [
        levels.gather(0, ((sectors + shift) % 6).unsqueeze(0)).squeeze(0) for shift in (0, 4, 2)
    ]
    return eg.stack(channels, -3)
