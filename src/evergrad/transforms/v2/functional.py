"""The functions under the names of the second generation."""

from __future__ import annotations

import numpy as np

import evergrad as eg
from evergrad.core.tensor import Tensor, from_array
from evergrad.transforms.functional import (
    InterpolationMode,
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    affine,
    center_crop,
    convert_image_dtype,
    crop,
    erase,
    five_crop,
    gaussian_blur,
    get_dimensions,
    get_image_num_channels,
    get_image_size,
    hflip,
    normalize,
    pad,
    pil_to_tensor,
    resize,
    resized_crop,
    rgb_to_grayscale,
    rotate,
    ten_crop,
    to_grayscale,
    to_pil_image,
    to_tensor,
    vflip,
)

__all__ = [
    "InterpolationMode",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "affine",
    "center_crop",
    "convert_image_dtype",
    "crop",
    "erase",
    "five_crop",
    "gaussian_blur",
    "get_dimensions",
    "get_image_num_channels",
    "get_image_size",
    "get_num_channels",
    "get_size",
    "hflip",
    "horizontal_flip",
    "normalize",
    "pad",
    "pil_to_tensor",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "ten_crop",
    "to_dtype",
    "to_grayscale",
    "to_image",
    "to_pil_image",
    "to_tensor",
    "vertical_flip",
    "vflip",
]

horizontal_flip = hflip
vertical_flip = vflip
get_num_channels = get_image_num_channels


def get_size(inpt: object) -> list[int]:
    """Height and width."""
    return get_dimensions(inpt)[1:]


def to_image(inpt: object) -> Tensor:
    """An image or array (H, W[, C]) as a tensor (C, H, W), its elements unchanged."""
    if isinstance(inpt, Tensor):
        return inpt
    if isinstance(inpt, np.ndarray):
        pixels = inpt[:, :, None] if inpt.ndim == 2 else inpt
        return from_array(pixels.transpose(2, 0, 1).copy())
    return pil_to_tensor(inpt)


def to_dtype(inpt: Tensor, dtype: eg.dtype = eg.float32, scale: bool = False) -> Tensor:
    """A tensor of another element type, scaled to its range if asked."""
    return convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)
