"""Transforms that do the same to every image, and those that put others together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import evergrad as eg
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.datasets.image import ImageT
from evergrad.nn import Module
from evergrad.transforms import functional as F
from evergrad.transforms.functional import InterpolationMode
from evergrad.transforms.geometry import check_padding_mode, four_edges, pair_of
from evergrad.transforms.sampling import interpolation_mode

if TYPE_CHECKING:
    from evergrad.datasets.image import Image


Transform = Callable[[Any], Any]


class Compose:
    """One transform after the other.

    >>> normalize = eg.transforms.Normalize([0.5], [0.5])
    >>> both = eg.transforms.Compose([eg.transforms.ToTensor(), normalize])
    >>> both(np.array([[0, 255]], np.uint8))
    tensor([[[-1.,  1.]]])
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = transforms

    def __call__(self, img: object) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_lines(self.transforms)}\n)"


def _lines(transforms: Iterable[Transform]) -> str:
    return "".join(f"\n    {transform}" for transform in transforms)


class _RandomTransforms(Compose):
    """Transforms from which some are chosen."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        super().__init__(transforms)


class RandomOrder(_RandomTransforms):
    """All transforms, in an order that Python's ``random`` chooses.

    >>> double = eg.transforms.Lambda(lambda x: x * 2)
    >>> eg.transforms.RandomOrder([double, double])(eg.ones(1))
    tensor([4.])
    """

    def __call__(self, img: object) -> Any:
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for index in order:
            img = self.transforms[index](img)
        return img


class RandomChoice(_RandomTransforms):
    """One of the transforms, chosen by Python's ``random`` with the weights ``p``.

    >>> double = eg.transforms.Lambda(lambda x: x * 2)
    >>> eg.transforms.RandomChoice([double, double])(eg.ones(1))
    tensor([2.])
    """

    def __init__(self, transforms: Sequence[Transform], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def __call__(self, *args: object) -> Any:
        result: Image | Tensor = random.choices(self.transforms, weights=self.p)[0](*args)
        return result

    def __repr__(self) -> str:
        return f"{super().__repr__()}(p={self.p})"


class RandomApply(Module):
    """All of the transforms with probability ``p``, else none.

    >>> eg.transforms.RandomApply([eg.transforms.Lambda(lambda x: x * 2)], p=1.0)(eg.ones(1))
    tensor([2.])
    """

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, img: ImageT) -> ImageT:
        if self.p < eg.rand(1).item():
            return img
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    p={self.p}{_lines(self.transforms)}\n)"


class Lambda:
    """A function of one's own.

    >>> eg.transforms.Lambda(lambda x: x * 2)(eg.ones(1))
    tensor([2.])
    """

    def __init__(self, lambd: Transform) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: object) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToTensor:
    """An image or array (H, W[, C]) as a tensor (C, H, W); uint8 becomes floats from 0 to 1.

    >>> eg.transforms.ToTensor()(np.array([[0, 255]], np.uint8))
    tensor([[[0., 1.]]])
    """

    def __call__(self, pic: Array) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """An image as a tensor (C, H, W), its pixels unchanged.

    >>> image = eg.datasets.Image(np.array([[0, 255]], np.uint8))
    >>> eg.transforms.PILToTensor()(image)
    tensor([[[  0, 255]]], dtype=evergrad.uint8)
    """

    def __call__(self, pic: object) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToPILImage:
    """A tensor (C, H, W) or array (H, W, C) as an image.

    >>> eg.transforms.ToPILImage()(eg.ones(3, 4, 6)).size
    (6, 4)
    """

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: object) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(Module):
    """Pixels as another element type, scaled to its range.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.ConvertImageDtype(eg.float32)(image).dtype
    evergrad.float32
    """

    def __init__(self, dtype: eg.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Module):
    """Each channel less its mean, divided by its standard deviation.

    >>> eg.transforms.Normalize([0.5], [0.5])(eg.tensor([[[0.0, 1.0]]]))
    tensor([[[-1.,  1.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mean={self.mean}, std={self.std})"


class Resize(Module):
    """Images of a size (height, width), or with a shorter edge of that length.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.Resize((2, 2))(image).shape
    evergrad.Size([3, 2, 2])
    """

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: object = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        if size is not None and not isinstance(size, int | Sequence):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size = size
        self.interpolation: InterpolationMode = interpolation_mode(interpolation)
        self.max_size = max_size
        self.antialias = antialias

    def forward(self, img: ImageT) -> ImageT:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(size={self.size}, interpolation={self.interpolation.value}, "
            f"max_size={self.max_size}, antialias={self.antialias})"
        )


class _OfSize(Module):
    """A transform whose argument is (height, width)."""

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__()
        self.size = pair_of(size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


class CenterCrop(_OfSize):
    """The middle of the image.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.CenterCrop(2)(image).shape
    evergrad.Size([3, 2, 2])
    """

    def forward(self, img: ImageT) -> ImageT:
        return F.center_crop(img, self.size)


class FiveCrop(_OfSize):
    """The corners and the middle of the image.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> [part.shape for part in eg.transforms.FiveCrop(2)(image)][0]
    evergrad.Size([3, 2, 2])
    """

    def forward(self, img: ImageT) -> tuple[ImageT, ...]:
        return F.five_crop(img, self.size)


class TenCrop(_OfSize):
    """The corners and the middle of the image and of its mirror image.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> len(eg.transforms.TenCrop(2)(image))
    10
    """

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = vertical_flip

    def forward(self, img: ImageT) -> tuple[ImageT, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, vertical_flip={self.vertical_flip})"


class Pad(Module):
    """Edges around the image.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.Pad(1)(image).shape
    evergrad.Size([3, 6, 6])
    """

    def __init__(
        self, padding: int | Sequence[int], fill: object = 0, padding_mode: str = "constant"
    ) -> None:
        super().__init__()
        four_edges(padding)
        check_padding_mode(padding_mode)
        if not isinstance(fill, int | float | tuple | list):
            raise TypeError("Got inappropriate fill arg")
        self.padding = padding
        self.fill: float | Sequence[float] = fill
        self.padding_mode = padding_mode

    def forward(self, img: ImageT) -> ImageT:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(padding={self.padding}, fill={self.fill}, "
            f"padding_mode={self.padding_mode})"
        )


class Grayscale(Module):
    """Grey values, in one or three channels.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.Grayscale()(image).shape
    evergrad.Size([1, 4, 4])
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: ImageT) -> ImageT:
        return F.rgb_to_grayscale(img, self.num_output_channels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_output_channels={self.num_output_channels})"
