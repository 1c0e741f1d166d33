"""DiT: a transformer that takes noise out of pictures, told the time and the class.

Time and class set the norms and gates of every block (adaLN-zero): at first all gates are closed,
so that each block begins as the identity.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import evergrad as eg
from evergrad import nn
from evergrad.models.attention import FeedForward, SelfAttention
from evergrad.models.model import Model, require, require_divides, require_positive
from evergrad.nn import functional as F


@dataclass(frozen=True)
class DiTConfig:
    """The sizes of a DiT and the pictures it makes.

    >>> eg.models.DiTConfig(patch=4).size
    16
    """

    size: int = 16  # height and width of a picture
    channels: int = 3
    patch: int = 2  # height and width of a patch
    layers: int = 4
    heads: int = 4
    width: int = 128
    classes: int = 10

    def __post_init__(self) -> None:
        require_positive(self, "size", "channels", "patch", "layers", "heads", "width", "classes")
        require_divides(self, "patch", "size")
        require_divides(self, "heads", "width")
        require(self.width % 4 == 0, f"width is {self.width}", "choose a multiple of 4")


def waves(x: eg.Tensor, width: int, longest: float = 10_000.0) -> eg.Tensor:  # (N)
    """Numbers as cosines and sines of growing wavelength."""
    rates = longest ** (-eg.arange(width // 2) / (width // 2))  # (width / 2)
    angles = x[:, None] * rates
    return eg.cat([angles.cos(), angles.sin()], dim=1)  # (N, width)


def places(side: int, width: int) -> eg.Tensor:
    """Waves of the row and of the column of each patch."""
    line = waves(eg.arange(side), width // 2)  # (side, C / 2)
    rows = line[:, None].expand(-1, side, -1)  # (side, side, C / 2)
    columns = line[None].expand(side, -1, -1)
    return eg.cat([rows, columns], dim=2).flatten(0, 1)  # (side * side, C)


class Modulation(nn.Module):
    """Shifts, scales and gates that follow from the condition; all zero at first."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.linear: nn.Linear = nn.Linear(width, count * width)

    def forward(self, condition: eg.Tensor) -> tuple[eg.Tensor, ...]:  # (B, C)
        parts = self.linear(F.silu(condition))[:, None]  # (B, 1, count * C)
        return parts.chunk(self.count, dim=2)


class Block(nn.Module):
    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.norm1: nn.LayerNorm = nn.LayerNorm(config.width, elementwise_affine=False)
        self.attention: SelfAttention = SelfAttention(config.width, config.heads)
        self.norm2: nn.LayerNorm = nn.LayerNorm(config.width, elementwise_affine=False)
        self.feed_forward: FeedForward = FeedForward(config.width)
        self.modulation: Modulation = Modulation(config.width, 6)

    def forward(self, x: eg.Tensor, condition: eg.Tensor) -> eg.Tensor:  # (B, T, C), (B, C)
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition)  # (B, 1, C)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.feed_forward(self.norm2(x) * (1 + scale2) + shift2)


class DiT(Model):
    """Patches, blocks under a condition, and patches again: noise or velocity of each pixel.

    >>> model = eg.models.DiT(eg.models.DiTConfig(size=8, layers=1, width=16))
    >>> model(eg.ones(2, 3, 8, 8), eg.ones(2), eg.tensor([1, 2])).shape
    evergrad.Size([2, 3, 8, 8])
    """

    config_type = DiTConfig
    config: DiTConfig

    def __init__(self, config: DiTConfig) -> None:
        super().__init__(config)
        C, P = config.width, config.patch
        self.embed: nn.Conv2d = nn.Conv2d(config.channels, C, P, stride=P)
        self.register_buffer("places", places(config.size // P, C), persistent=False)
        self.time: nn.Sequential = nn.Sequential(nn.Linear(C, C), nn.SiLU(), nn.Linear(C, C))
        self.labels: nn.Embedding = nn.Embedding(config.classes + 1, C)  # the last: of no class
        self.blocks: nn.ModuleList = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm: nn.LayerNorm = nn.LayerNorm(C, elementwise_affine=False)
        self.modulation: Modulation = Modulation(C, 2)
        self.head: nn.Linear = nn.Linear(C, P * P * config.channels)
        self.initialise()

    def initialise(self) -> None:
        """Draw the weights."""
        for name, parameter in self.named_parameters():
            is_zero = name.endswith("bias") or "modulation" in name or name.startswith("head")
            if is_zero:
                nn.init.zeros_(parameter)
            elif name.startswith(("time", "labels")):
                nn.init.normal_(parameter, std=0.02)
            else:
                nn.init.xavier_uniform_(parameter)

    @property
    def shape(self) -> tuple[int, int, int]:
        """That of one picture."""
        return self.config.channels, self.config.size, self.config.size

    @property
    def no_class(self) -> int:
        """The label of a picture whose class is not told."""
        return self.config.classes

    def forward(
        self, x: eg.Tensor, time: eg.Tensor, labels: eg.Tensor
    ) -> eg.Tensor:  # (B, channels, size, size), times from 0 to 1: (B), classes: (B)
        condition = self.time(waves(1000 * time, self.config.width)) + self.labels(labels)  # (B, C)
        x = self.embed(x).flatten(2).transpose(1, 2) + self.places  # (B, T, C)
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.modulation(condition)  # (B, 1, C)
        x = self.head(self.norm(x) * (1 + scale) + shift)  # (B, T, P * P * channels)
        return self.unpatchify(x)

    def unpatchify(self, x: eg.Tensor) -> eg.Tensor:  # (B, T, channels * P * P)
        """Patches back to pictures."""
        side = self.config.size // self.config.patch
        x = x.transpose(1, 2).unflatten(2, (side, side))  # (B, channels * P * P, side, side)
        return F.pixel_shuffle(x, self.config.patch)  # (B, channels, size, size)
