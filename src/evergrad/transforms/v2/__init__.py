"""The second generation of names: transforms that take a whole sample, ``transform(image, label)``.

In a sample (values, tuples, lists, dicts) the first image is transformed, or the first tensor if
there is no image; everything else is passed on. Draws are torchvision's. The arithmetic is that of
the first generation, also for uint8, where torchvision's second one rounds in other places; they
print like the first generation, too. There are no boxes, masks or videos: ``ToImage`` gives a plain
tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import evergrad as eg
from evergrad.core.tensor import Tensor
from evergrad.datasets.image import is_image
from evergrad.nn import Module
from evergrad.transforms import chance, fixed, jitter
from evergrad.transforms.draws import below
from evergrad.transforms.functional import InterpolationMode
from evergrad.transforms.v2 import functional

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "Identity",
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
    "ToDtype",
    "ToImage",
    "ToPILImage",
    "ToPureTensor",
    "ToTensor",
    "functional",
]


# -- samples --------------------------------------------------------------------------------------


def _leaves(sample: object) -> Iterator[object]:
    if isinstance(sample, tuple | list | dict):
        for part in sample.values() if isinstance(sample, dict) else sample:
            yield from _leaves(part)
    else:
        yield sample


def _replaced(sample: object, old: object, new: object) -> object:
    """The sample with one of its leaves exchanged."""
    if isinstance(sample, dict):
        return {key: _replaced(part, old, new) for key, part in sample.items()}
    if isinstance(sample, tuple | list):
        return type(sample)(_replaced(part, old, new) for part in sample)
    return new if sample is old else sample


def _transformed(transform: Callable[[object], object], inputs: tuple[object, ...]) -> object:
    """The inputs (or the one input) with their image transformed."""
    sample = inputs if len(inputs) > 1 else inputs[0]
    leaves = list(_leaves(sample))
    images = [leaf for leaf in leaves if is_image(leaf)]
    images = images or [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not images:
        return _replaced(sample, sample, transform(sample)) if len(leaves) == 1 else sample
    return _replaced(sample, images[0], transform(images[0]))


class _OfSamples:
    """Comes before a transform of images, and lets it take samples."""

    def __call__(self, *inputs: object) -> Any:
        return _transformed(super().__call__, inputs)  # type: ignore[misc]


# -- fixed ----------------------------------------------------------------------------------------


class Compose(fixed.Compose):
    """One transform after the other, each given what the one before gave."""

    def __call__(self, *inputs: object) -> Any:
        for transform in self.transforms:
            outputs = transform(*inputs)
            inputs = outputs if len(inputs) > 1 else (outputs,)
        return inputs if len(inputs) > 1 else inputs[0]


class RandomApply(fixed.RandomApply):
    """All of the transforms with probability ``p``, else none."""

    def forward(self, *inputs: Any) -> Any:
        if eg.rand(1).item() >= self.p:
            return inputs if len(inputs) > 1 else inputs[0]
        return Compose(self.transforms)(*inputs)


class RandomChoice(fixed.RandomChoice):
    """One of the transforms, chosen with the weights ``p`` by the default generator."""

    def __call__(self, *inputs: object) -> Tensor:
        weights = [1.0] * len(self.transforms) if self.p is None else self.p
        chances = eg.tensor([weight / sum(weights) for weight in weights])
        result: Tensor = self.transforms[int(eg.multinomial(chances, 1).item())](*inputs)
        return result


class RandomOrder(fixed.RandomOrder):
    """All transforms, in an order that the default generator chooses."""

    def __call__(self, *inputs: object) -> Any:
        order = eg.randperm(len(self.transforms)).tolist()
        return Compose([self.transforms[index] for index in order])(*inputs)


class Identity(Module):
    """Nothing."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, *inputs: Any) -> Any:
        return inputs if len(inputs) > 1 else inputs[0]


class ToPureTensor(Identity):
    """Nothing: images that are tensors are plain ones here."""


class Lambda(_OfSamples, fixed.Lambda):
    """A function of one's own."""


class ToImage(_OfSamples, Module):
    """An image or array as a uint8 tensor (C, H, W); a tensor stays as it is."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, image: Any) -> Tensor:
        return functional.to_image(image)


class ToDtype(_OfSamples, Module):
    """Tensors of another element type, scaled to its range if asked."""

    def __init__(self, dtype: eg.dtype, scale: bool = False) -> None:
        super().__init__()
        if not isinstance(dtype, eg.dtype):
            raise ValueError(f"dtype must be a dtype such as evergrad.float32, got {type(dtype)}")
        self.dtype = dtype
        self.scale = scale

    def forward(self, image: Any) -> Any:
        if not isinstance(image, Tensor):
            return image
        return functional.to_dtype(image, self.dtype, self.scale)

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


class ToTensor(_OfSamples, fixed.ToTensor):
    """The first generation's ``ToTensor``, which warns that there is a newer way."""

    def __init__(self) -> None:
        warnings.warn(
            "The transform `ToTensor()` is deprecated and will be removed in a future release. "
            "Instead, please use `v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, "
            "scale=True)])`.",
            UserWarning,
            stacklevel=2,
        )


class PILToTensor(_OfSamples, fixed.PILToTensor):
    """An image as a tensor (C, H, W), its pixels unchanged."""


class ToPILImage(_OfSamples, fixed.ToPILImage):
    """A tensor (C, H, W) or array (H, W, C) as an image."""


class ConvertImageDtype(_OfSamples, fixed.ConvertImageDtype):
    """Pixels as another element type, scaled to its range."""


class Normalize(_OfSamples, fixed.Normalize):
    """Each channel less its mean, divided by its standard deviation."""


class Resize(_OfSamples, fixed.Resize):
    """Images of a size (height, width), or with a shorter edge of that length."""


class CenterCrop(_OfSamples, fixed.CenterCrop):
    """The middle of the image."""


class FiveCrop(_OfSamples, fixed.FiveCrop):
    """The corners and the middle of the image."""


class TenCrop(_OfSamples, fixed.TenCrop):
    """The corners and the middle of the image and of its mirror image."""


class Pad(_OfSamples, fixed.Pad):
    """Edges around the image."""


class Grayscale(_OfSamples, fixed.Grayscale):
    """Grey values, in one or three channels."""

    def forward(self, img: Any) -> Any:
        grey = super().forward(img)
        if isinstance(grey, Tensor):  # one channel becomes as many as requested
            return grey.expand(*grey.shape[:-3], self.num_output_channels, *grey.shape[-2:])
        return grey


# -- random ---------------------------------------------------------------------------------------


class RandomHorizontalFlip(_OfSamples, chance.RandomHorizontalFlip):
    """Left and right exchanged with probability ``p``."""


class RandomVerticalFlip(_OfSamples, chance.RandomVerticalFlip):
    """Top and bottom exchanged with probability ``p``."""


class RandomGrayscale(_OfSamples, jitter.RandomGrayscale):
    """Grey values, in as many channels as before, with probability ``p``."""


class RandomCrop(_OfSamples, chance.RandomCrop):
    """A part of the image; a number is drawn only for a direction that leaves a choice."""

    @staticmethod
    def get_params(img: object, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Top, left, height and width of the part."""
        rows, columns = chance.size_to_crop(img, output_size)
        height, width = output_size
        top = below(rows - height + 1) if rows > height else 0
        left = below(columns - width + 1) if columns > width else 0
        return top, left, height, width


class RandomResizedCrop(_OfSamples, chance.RandomResizedCrop):
    """A part of random area and aspect ratio, resized."""


class RandomRotation(_OfSamples, chance.RandomRotation):
    """The image turned by an angle of a range, in degrees."""


class RandomAffine(_OfSamples, chance.RandomAffine):
    """The image turned, moved, scaled and sheared at random."""


class ColorJitter(_OfSamples, jitter.ColorJitter):
    """Brightness, contrast, saturation and hue changed by random factors, in random order."""


class GaussianBlur(_OfSamples, jitter.GaussianBlur):
    """The image under a Gaussian whose standard deviation is drawn from a range."""


class RandomErasing(_OfSamples, jitter.RandomErasing):
    """A rectangle of a tensor image replaced by a number, numbers per channel, or noise."""
