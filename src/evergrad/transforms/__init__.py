"""Transforms of images, with torchvision's names: ``transforms.Compose([...])`` and its parts.

They take images of Pillow, images of :mod:`evergrad.datasets` and tensors (..., C, H, W).
"""

from evergrad.transforms import functional, v2
from evergrad.transforms.chance import (
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
)
from evergrad.transforms.fixed import (
    CenterCrop,
    Compose,
    ConvertImageDtype,
    FiveCrop,
    Grayscale,
    Lambda,
    Normalize,
    Pad,
    PILToTensor,
    RandomApply,
    RandomChoice,
    RandomOrder,
    Resize,
    TenCrop,
    ToPILImage,
    ToTensor,
)
from evergrad.transforms.functional import InterpolationMode
from evergrad.transforms.jitter import ColorJitter, GaussianBlur, RandomErasing, RandomGrayscale

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomAffine",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomOrder",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "TenCrop",
    "ToPILImage",
    "ToTensor",
    "functional",
    "v2",
]
