"""Random crops, mirror images and turns. All random transforms draw from the default generator, as
many numbers and in the same order as torchvision's, so that a seed gives the same augmentation
there and here.

Each has ``get_params``, which draws, beside ``forward``, which applies what was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from evergrad.core.tensor import Tensor
from evergrad.datasets.image import ImageT
from evergrad.nn import Module
from evergrad.transforms import functional as F
from evergrad.transforms.conversion import Fill
from evergrad.transforms.draws import ATTEMPTS, below, happens, sides, uniform
from evergrad.transforms.functional import InterpolationMode
from evergrad.transforms.geometry import pair_of
from evergrad.transforms.sampling import interpolation_mode


class WithProbability(Module):
    """A transform that takes place or does not."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomHorizontalFlip(WithProbability):
    """Left and right exchanged with probability ``p``.

    >>> eg.transforms.RandomHorizontalFlip(p=1.0)(eg.tensor([[[1, 2]]]))
    tensor([[[2, 1]]])
    """

    def forward(self, img: ImageT) -> ImageT:
        return F.hflip(img) if happens(self.p) else img


class RandomVerticalFlip(WithProbability):
    """Top and bottom exchanged with probability ``p``.

    >>> eg.transforms.RandomVerticalFlip(p=1.0)(eg.tensor([[[1], [2]]]))
    tensor([[[2],
             [1]]])
    """

    def forward(self, img: ImageT) -> ImageT:
        return F.vflip(img) if happens(self.p) else img


class RandomCrop(Module):
    """A part of the image, after edges were added around it.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.RandomCrop(2)(image).shape
    evergrad.Size([3, 2, 2])
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__()
        self.size: tuple[int, int] = pair_of(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def get_params(img: object, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Top, left, height and width of the part."""
        rows, columns = size_to_crop(img, output_size)
        height, width = output_size
        if (rows, columns) == (height, width):
            return 0, 0, rows, columns
        top = below(rows - height + 1)
        return top, below(columns - width + 1), height, width

    def forward(self, img: ImageT) -> ImageT:
        if self.padding is not None:
            img = self._padded(img, self.padding)
        if self.pad_if_needed:
            _, _, columns = F.get_dimensions(img)
            if columns < self.size[1]:
                img = self._padded(img, [self.size[1] - columns, 0])
            _, rows, _ = F.get_dimensions(img)
            if rows < self.size[0]:
                img = self._padded(img, [0, self.size[0] - rows])
        return F.crop(img, *self.get_params(img, self.size))

    def _padded(self, img: ImageT, padding: int | Sequence[int]) -> ImageT:
        return F.pad(img, padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, padding={self.padding})"


def size_to_crop(img: object, output_size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of an image that a part of ``output_size`` fits into."""
    _, rows, columns = F.get_dimensions(img)
    if rows < output_size[0] or columns < output_size[1]:
        raise ValueError(
            f"Required crop size {output_size} is larger than input image size {(rows, columns)}"
        )
    return rows, columns


class RandomResizedCrop(Module):
    """A part of random area and aspect ratio, resized.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.RandomResizedCrop(2)(image).shape
    evergrad.Size([3, 2, 2])
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: object = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size: tuple[int, int] = pair_of(size)
        if not isinstance(scale, Sequence):
            raise TypeError("Scale should be a sequence")
        if not isinstance(ratio, Sequence):
            raise TypeError("Ratio should be a sequence")
        self.scale = scale
        self.ratio = ratio
        self.interpolation: InterpolationMode = interpolation_mode(interpolation)
        self.antialias = antialias

    @staticmethod
    def get_params(
        img: object, scale: Sequence[float], ratio: Sequence[float]
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width; the middle, if ten attempts do not fit."""
        _, rows, columns = F.get_dimensions(img)
        for _ in range(ATTEMPTS):
            width, height = sides(rows * columns, scale, ratio)
            if 0 < width <= columns and 0 < height <= rows:
                top = below(rows - height + 1)
                return top, below(columns - width + 1), height, width
        return RandomResizedCrop._middle(rows, columns, ratio)

    @staticmethod
    def _middle(rows: int, columns: int, ratio: Sequence[float]) -> tuple[int, int, int, int]:
        height, width = rows, columns
        if columns / rows < min(ratio):
            height = round(columns / min(ratio))
        elif columns / rows > max(ratio):
            width = round(rows * max(ratio))
        return (rows - height) // 2, (columns - width) // 2, height, width

    def forward(self, img: ImageT) -> ImageT:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, self.antialias)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(size={self.size}, "
            f"scale={tuple(round(s, 4) for s in self.scale)}, "
            f"ratio={tuple(round(r, 4) for r in self.ratio)}, "
            f"interpolation={self.interpolation.value}, antialias={self.antialias})"
        )


def angle_range(value: object, name: str, sizes: tuple[int, ...] = (2,)) -> list[float]:
    """From -value to value, or the limits as they were given."""
    if isinstance(value, int | float):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(value), float(value)]
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a number or a sequence of length {sizes[0]}.")
    if len(value) not in sizes:
        lengths = " or ".join(map(str, sizes))
        raise ValueError(f"{name} should be a sequence of length {lengths}.")
    return [float(v) for v in value]


def _fill_for(img: object, fill: Fill) -> Fill:
    """One number for each channel of a tensor."""
    if isinstance(img, Tensor):
        channels, _, _ = F.get_dimensions(img)
        return [float(fill)] * channels if isinstance(fill, int | float) else list(map(float, fill))
    return fill


class RandomRotation(Module):
    """The image turned by an angle of a range, in degrees.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.RandomRotation(30)(image).shape
    evergrad.Size([3, 4, 4])
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: object = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Fill = 0,
    ) -> None:
        super().__init__()
        self.degrees: list[float] = angle_range(degrees, "degrees")
        self.interpolation: InterpolationMode = interpolation_mode(interpolation)
        self.expand = expand
        self.center = center
        self.fill = 0 if fill is None else fill

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        """The angle."""
        return uniform(degrees[0], degrees[1])

    def forward(self, img: ImageT) -> ImageT:
        fill = _fill_for(img, self.fill)
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, fill)

    def __repr__(self) -> str:
        center = "" if self.center is None else f", center={self.center}"
        fill = "" if self.fill is None else f", fill={self.fill}"
        return (
            f"{type(self).__name__}(degrees={self.degrees}, "
            f"interpolation={self.interpolation.value}, expand={self.expand}{center}{fill})"
        )


class RandomAffine(Module):
    """The image turned, moved, scaled and sheared at random.

    >>> image = eg.arange(48).view(3, 4, 4).to(eg.uint8)
    >>> eg.transforms.RandomAffine(30)(image).shape
    evergrad.Size([3, 4, 4])
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: object = InterpolationMode.NEAREST,
        fill: Fill = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        if translate is not None and not all(0.0 <= t <= 1.0 for t in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and any(s <= 0 for s in scale):
            raise ValueError("scale values should be positive")
        self.degrees: list[float] = angle_range(degrees, "degrees")
        self.translate = translate
        self.scale = scale
        self.shear: list[float] | None = (
            None if shear is None else angle_range(shear, "shear", (2, 4))
        )
        self.interpolation: InterpolationMode = interpolation_mode(interpolation)
        self.fill = 0 if fill is None else fill
        self.center = center

    @staticmethod
    def get_params(
        degrees: Sequence[float],
        translate: Sequence[float] | None,
        scale_ranges: Sequence[float] | None,
        shears: Sequence[float] | None,
        img_size: Sequence[int],
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """Angle, translation, scale and shears; ``img_size`` is (width, height)."""
        angle = uniform(degrees[0], degrees[1])
        moves = (0, 0)
        if translate is not None:
            reach = [float(t * size) for t, size in zip(translate, img_size, strict=True)]
            moves = (round(uniform(-reach[0], reach[0])), round(uniform(-reach[1], reach[1])))
        scale = 1.0 if scale_ranges is None else uniform(scale_ranges[0], scale_ranges[1])
        shear_x = shear_y = 0.0
        if shears is not None:
            shear_x = uniform(shears[0], shears[1])
            shear_y = uniform(shears[2], shears[3]) if len(shears) == 4 else 0.0
        return angle, moves, scale, (shear_x, shear_y)

    def forward(self, img: ImageT) -> ImageT:
        drawn = self.get_params(
            self.degrees, self.translate, self.scale, self.shear, F.get_image_size(img)
        )
        return F.affine(img, *drawn, self.interpolation, _fill_for(img, self.fill), self.center)

    def __repr__(self) -> str:
        settings = {
            "translate": self.translate, "scale": self.scale, "shear": self.shear,
            "interpolation": self.interpolation.value, "fill": self.fill, "center": self.center,
        }  # fmt: skip
        plain = (None, 0, InterpolationMode.NEAREST.value)
        shown = [f", {name}={value}" for name, value in settings.items() if value not in plain]
        return f"{type(self).__name__}(degrees={self.degrees}{''.join(shown)})"
