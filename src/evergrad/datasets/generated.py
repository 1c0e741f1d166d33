"""Data sets that are computed, for work without files: points, images, series, sequences.

Each draws once, from ``generator`` or the default one, when it is made; the same seed gives the
same examples. ``data`` and ``targets`` hold all of them as tensors.
"""

from __future__ import annotations

import math
from typing import ClassVar

import evergrad as eg
from evergrad.core.rng.default_generator import Generator
from evergrad.core.tensor import Tensor
from evergrad.utils.data.dataset import Dataset


class GeneratedDataset(Dataset[tuple[Tensor, Tensor]]):
    """Examples and their targets, two tensors of the same length.

    Args:
        data: the examples (N, *)
        targets: (N, *)

    >>> data = eg.datasets.GeneratedDataset(eg.zeros(3, 2), eg.arange(3))
    >>> data[1]
    (tensor([0., 0.]), tensor(1))
    """

    def __init__(self, data: Tensor, targets: Tensor) -> None:
        self.data = data
        self.targets = targets

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.data[index], self.targets[index]

    def __len__(self) -> int:
        return len(self.data)


def _check_size(size: int, least: int = 1) -> None:
    if size < least:
        raise ValueError(f"at least {least} example(s) are needed, got size={size}")


# -- points ---------------------------------------------------------------------------------------


class TwoMoons(GeneratedDataset):
    """Two half circles that reach into each other: points (N, 2) and their class, 0 or 1.

    >>> data = eg.datasets.TwoMoons(size=10)
    >>> len(data), data[0][0].shape
    (10, evergrad.Size([2]))
    """

    def __init__(
        self, size: int = 1000, noise: float = 0.1, generator: Generator | None = None
    ) -> None:
        _check_size(size, 2)
        targets = eg.arange(size) % 2
        angle = eg.rand(size, generator=generator) * math.pi
        upper = eg.stack([angle.cos(), angle.sin()], 1)
        lower = eg.stack([1 - angle.cos(), 0.5 - angle.sin()], 1)
        points = eg.where(targets.unsqueeze(1) == 0, upper, lower)
        super().__init__(points + noise * eg.randn(size, 2, generator=generator), targets)


class Spirals(GeneratedDataset):
    """Arms that wind around each other: points (N, 2) and the number of their arm.

    >>> data = eg.datasets.Spirals(size=10, arms=3)
    >>> len(data), data[0][0].shape
    (10, evergrad.Size([2]))
    """

    def __init__(
        self,
        size: int = 1000,
        arms: int = 2,
        turns: float = 1.5,
        noise: float = 0.02,
        generator: Generator | None = None,
    ) -> None:
        _check_size(size, arms)
        targets = eg.arange(size) % arms
        radius = eg.rand(size, generator=generator).sqrt()  # as many points on every length
        angle = 2 * math.pi * (turns * radius + targets / arms)
        points = radius.unsqueeze(1) * eg.stack([angle.cos(), angle.sin()], 1)
        super().__init__(points + noise * eg.randn(size, 2, generator=generator), targets)


# -- images ---------------------------------------------------------------------------------------


class Shapes(GeneratedDataset):
    """Small images of a circle, a square or a triangle: (N, 1, S, S) from -1 to 1.

    Place, extent and brightness vary; edges are smooth over one pixel, as in a drawn image.

    >>> data = eg.datasets.Shapes(size=10, image_size=8)
    >>> len(data), data[0][0].shape
    (10, evergrad.Size([1, 8, 8]))
    """

    classes: ClassVar[list[str]] = ["circle", "square", "triangle"]

    def __init__(
        self, size: int = 1000, image_size: int = 16, generator: Generator | None = None
    ) -> None:
        _check_size(size)
        targets = eg.randint(0, len(self.classes), (size,), generator=generator)
        draws = eg.rand(4, size, 1, 1, generator=generator)
        extent = 0.35 + 0.25 * draws[0]  # half of the width, where the image goes from -1 to 1
        x, y = (2 * draws[1:3] - 1) * (0.9 - extent)
        brightness = 0.6 + 0.4 * draws[3]
        pixel = 2.0 / image_size
        line = (eg.arange(image_size) + 0.5) * pixel - 1
        distances = self._distances(line - x, line.unsqueeze(1) - y, extent)  # (3, N, S, S)
        chosen = distances.gather(0, targets.reshape(1, size, 1, 1).expand(1, *distances.shape[1:]))
        coverage = (0.5 - chosen.squeeze(0) / pixel).clamp(0, 1)
        super().__init__((2 * brightness * coverage - 1).unsqueeze(1), targets)

    @staticmethod
    def _distances(x: Tensor, y: Tensor, extent: Tensor) -> Tensor:
        """The signed distance of each pixel to each of the shapes; negative inside."""
        x, y = eg.broadcast_tensors(x, y)
        circle = (x * x + y * y).sqrt() - extent
        square = eg.maximum(x.abs(), y.abs()) - 0.85 * extent
        slope = math.sqrt(3) / 2
        triangle = eg.maximum(slope * x.abs() - 0.5 * y, y) - 0.5 * extent
        return eg.stack([circle, square, triangle])


# -- series and sequences -------------------------------------------------------------------------


class SineSeries(GeneratedDataset):
    """Sums of two sine waves with noise: ``length`` values, (N, length, 1), and the next one.

    Periods are between 8 and 32 steps.

    >>> data = eg.datasets.SineSeries(size=10, length=16)
    >>> len(data), data[0][0].shape
    (10, evergrad.Size([16, 1]))
    """

    def __init__(
        self,
        size: int = 1000,
        length: int = 64,
        noise: float = 0.02,
        generator: Generator | None = None,
    ) -> None:
        _check_size(size)
        period = 8 * 4 ** eg.rand(size, 2, 1, generator=generator)
        phase = 2 * math.pi * eg.rand(size, 2, 1, generator=generator)
        height = 0.2 + 0.8 * eg.rand(size, 2, 1, generator=generator)
        steps = eg.arange(length + 1)
        waves = height * (2 * math.pi * steps / period + phase).sin()  # (N, 2, length + 1)
        series = waves.sum(1) + noise * eg.randn(size, length + 1, generator=generator)
        super().__init__(series[:, :-1].unsqueeze(2), series[:, -1:])


class CopySequences(GeneratedDataset):
    """Sequences to repeat: (N, length) symbols from 1 to ``symbols``, and the same again.

    The number 0 is left free, for padding or as the symbol a decoder starts with.

    >>> data = eg.datasets.CopySequences(size=10, length=4)
    >>> len(data), data[0][0].shape
    (10, evergrad.Size([4]))
    """

    def __init__(
        self,
        size: int = 1000,
        length: int = 10,
        symbols: int = 8,
        generator: Generator | None = None,
    ) -> None:
        _check_size(size)
        data = eg.randint(1, symbols + 1, (size, length), generator=generator)
        super().__init__(data, self._answer(data))

    def _answer(self, data: Tensor) -> Tensor:
        return data.clone()


class ReverseSequences(CopySequences):
    """Sequences to repeat backwards.

    >>> data = eg.datasets.ReverseSequences(size=10, length=4)
    >>> len(data), data[0][0].shape
    (10, evergrad.Size([4]))
    """

    def _answer(self, data: Tensor) -> Tensor:
        return data.flip(1)
