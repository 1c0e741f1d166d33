"""ViT: a transformer that reads a picture as a sequence of patches."""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import evergrad as eg
from evergrad import nn
from evergrad.models.attention import FeedForward, SelfAttention
from evergrad.models.model import Model, require_divides, require_positive, require_probability


@dataclass(frozen=True)
class ViTConfig:
    """The sizes of a ViT and the pictures it sorts.

    >>> eg.models.ViTConfig(patch=8).layers
    4
    """

    classes: int = 10
    size: int = 32  # height and width of a picture
    channels: int = 3
    patch: int = 4  # height and width of a patch
    layers: int = 4
    heads: int = 4
    width: int = 128
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require_positive(self, "classes", "size", "channels", "patch", "layers", "heads", "width")
        require_divides(self, "patch", "size")
        require_divides(self, "heads", "width")
        require_probability(self, "dropout")

    @property
    def patches(self) -> int:
        """The number of patches."""
        return (self.size // self.patch) ** 2


class Block(nn.Module):
    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1: nn.LayerNorm = nn.LayerNorm(config.width)
        self.attention: SelfAttention = SelfAttention(config.width, config.heads)
        self.norm2: nn.LayerNorm = nn.LayerNorm(config.width)
        self.feed_forward: FeedForward = FeedForward(config.width)
        self.drop: nn.Dropout = nn.Dropout(config.dropout)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, T, C)
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.feed_forward(self.norm2(x)))


class ViT(Model):
    """Patches and one place more, whose last features are scored.

    >>> model = eg.models.ViT(eg.models.ViTConfig(size=8, layers=1, width=16))
    >>> model(eg.ones(2, 3, 8, 8)).shape
    evergrad.Size([2, 10])
    """

    config_type = ViTConfig
    config: ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        C, P = config.width, config.patch
        self.embed: nn.Conv2d = nn.Conv2d(config.channels, C, P, stride=P)
        self.summary: nn.Parameter = nn.Parameter(eg.empty(1, 1, C))
        self.positions: nn.Parameter = nn.Parameter(eg.empty(1, config.patches + 1, C))
        self.drop: nn.Dropout = nn.Dropout(config.dropout)
        self.blocks: nn.Sequential = nn.Sequential(*[Block(config) for _ in range(config.layers)])
        self.norm: nn.LayerNorm = nn.LayerNorm(C)
        self.head: nn.Linear = nn.Linear(C, config.classes)
        self.initialise()

    def initialise(self) -> None:
        """Draw the weights."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim > 1:
                nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, channels, size, size)
        x = self.embed(x).flatten(2).transpose(1, 2)  # (B, patches, C)
        x = eg.cat([self.summary.expand(len(x), -1, -1), x], dim=1)  # (B, T, C)
        x = self.blocks(self.drop(x + self.positions))
        return self.head(self.norm(x[:, 0]))  # (B, classes)
