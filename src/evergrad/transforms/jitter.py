"""Random changes of pixels: colours, blur, erased rectangles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import evergrad as eg
from evergrad.core.tensor import Tensor
from evergrad.datasets.image import ImageT
from evergrad.nn import Module
from evergrad.transforms import functional as F
from evergrad.transforms.chance import WithProbability
from evergrad.transforms.draws import ATTEMPTS, below, happens, sides, uniform
from evergrad.transforms.geometry import pair_of


class RandomGrayscale(WithProbability):
    """Grey values, in as many channels as before, with probability ``p``.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.RandomGrayscale(p=1.0)(image).shape
    evergrad.Size([3, 4, 4])
    """

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def forward(self, img: ImageT) -> ImageT:
        channels, _, _ = F.get_dimensions(img)
        return F.rgb_to_grayscale(img, channels) if happens(self.p) else img


class ColorJitter(Module):
    """Brightness, contrast, saturation and hue changed by random factors, in random order.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.ColorJitter(brightness=0.5)(image).shape
    evergrad.Size([3, 4, 4])
    """

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
    ) -> None:
        super().__init__()
        self.brightness: tuple[float, float] | None = _factor_range(brightness, "brightness")
        self.contrast: tuple[float, float] | None = _factor_range(contrast, "contrast")
        self.saturation: tuple[float, float] | None = _factor_range(saturation, "saturation")
        self.hue: tuple[float, float] | None = _factor_range(hue, "hue", 0.0, (-0.5, 0.5))

    @staticmethod
    def get_params(
        brightness: Sequence[float] | None,
        contrast: Sequence[float] | None,
        saturation: Sequence[float] | None,
        hue: Sequence[float] | None,
    ) -> tuple[Tensor, float | None, float | None, float | None, float | None]:
        """The order, and the four factors; ``None`` for what stays as it is."""
        order = eg.randperm(4)
        ranges = (brightness, contrast, saturation, hue)
        first, second, third, fourth = (
            None if limits is None else uniform(limits[0], limits[1]) for limits in ranges
        )
        return order, first, second, third, fourth

    def forward(self, img: ImageT) -> ImageT:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        adjust = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for index in order.tolist():
            if factors[index] is not None:
                img = adjust[index](img, factors[index])
        return img

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(brightness={self.brightness}, contrast={self.contrast}, "
            f"saturation={self.saturation}, hue={self.hue})"
        )


def _factor_range(
    value: object, name: str, center: float = 1.0, bound: tuple[float, float] = (0.0, math.inf)
) -> tuple[float, float] | None:
    """The limits of a factor around the centre; ``None`` if they leave no choice."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        limits = (center - float(value), center + float(value))
        if name != "hue":
            limits = (max(limits[0], 0.0), limits[1])
    elif isinstance(value, tuple | list) and len(value) == 2:
        limits = (float(value[0]), float(value[1]))
    else:
        raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
    if not bound[0] <= limits[0] <= limits[1] <= bound[1]:
        raise ValueError(f"{name} values should be between {bound}, but got {list(limits)}.")
    return None if limits == (center, center) else limits


class GaussianBlur(Module):
    """The image under a Gaussian whose standard deviation is drawn from a range.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.GaussianBlur(3)(image).shape
    evergrad.Size([3, 4, 4])
    """

    def __init__(
        self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)
    ) -> None:
        super().__init__()
        self.kernel_size: tuple[int, int] = pair_of(kernel_size)
        if any(size <= 0 or size % 2 == 0 for size in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        limits = (sigma, sigma) if isinstance(sigma, int | float) else tuple(sigma)
        if len(limits) != 2 or not 0.0 < limits[0] <= limits[1]:
            raise ValueError(
                f"sigma values should be positive and of the form (min, max). Got {limits}"
            )
        self.sigma = limits

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """The standard deviation."""
        return uniform(sigma_min, sigma_max)

    def forward(self, img: ImageT) -> ImageT:
        sigma = self.get_params(self.sigma[0], self.sigma[1])
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(kernel_size={self.kernel_size}, sigma={self.sigma})"


class RandomErasing(Module):
    """A rectangle of a tensor image replaced by a number, numbers per channel, or noise.

    >>> x = eg.transforms.RandomErasing(p=1.0)(eg.ones(3, 8, 8))
    >>> bool((x == 0).any())
    True
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: object = 0,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(value, int | float | str | tuple | list):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError("Scale should be between 0 and 1")
        if not 0 <= p <= 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    @staticmethod
    def get_params(
        img: Tensor,
        scale: Sequence[float],
        ratio: Sequence[float],
        value: list[float] | None = None,
    ) -> tuple[int, int, int, int, Tensor]:
        """Top, left, height, width and contents; the whole image, if ten attempts do not fit."""
        channels, rows, columns = img.shape[-3:]
        for _ in range(ATTEMPTS):
            height, width = sides(rows * columns, scale, ratio)
            if height >= rows or width >= columns:
                continue
            contents = (
                eg.empty(channels, height, width).normal_()
                if value is None
                else eg.tensor(value)[:, None, None]
            )
            top = below(rows - height + 1)
            return top, below(columns - width + 1), height, width, contents
        return 0, 0, rows, columns, img

    def forward(self, img: Tensor) -> Tensor:
        if not happens(self.p):
            return img
        channels, _, _ = F.get_dimensions(img)
        values = None if self.value == "random" else self._values()
        if values is not None and len(values) not in (1, channels):
            raise ValueError(
                "If value is a sequence, it should have either a single value or "
                f"{channels} (number of input channels)"
            )
        return F.erase(img, *self.get_params(img, self.scale, self.ratio, values), self.inplace)

    def _values(self) -> list[float]:
        values = [self.value] if isinstance(self.value, int | float) else self.value
        return [float(v) for v in values]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(p={self.p}, scale={self.scale}, ratio={self.ratio}, "
            f"value={self.value}, inplace={self.inplace})"
        )
