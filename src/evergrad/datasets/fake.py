"""Random images in place of a data set that is not at hand."""

from __future__ import annotations

from typing import Any

import evergrad as eg
from evergrad.datasets.image import from_pixels
from evergrad.datasets.vision import Transform, VisionDataset


class FakeData(VisionDataset):
    """Noise with random labels; image ``index`` is always the same, and that of torchvision.

    >>> image, label = eg.datasets.FakeData(size=2, image_size=(3, 8, 6))[0]
    >>> image.size
    (6, 8)
    """

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(transform=transform, target_transform=target_transform)
        self.size = size
        self.num_classes = num_classes
        self.image_size = image_size
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        # A generator of its own leaves the default one alone.
        generator = eg.Generator().manual_seed(index + self.random_offset)
        image = eg.randn(*self.image_size, generator=generator)
        target = int(eg.randint(0, self.num_classes, size=(1,), generator=generator).item())
        pixels = image.mul(255).to(eg.uint8).array()
        pixels = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0).copy()
        return self.transformed(from_pixels(pixels), target)

    def __len__(self) -> int:
        return self.size
