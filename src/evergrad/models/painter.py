"""Pictures from captions: an autoencoder, a text encoder and FLUX's transformer, trained together.

The autoencoder halves a picture twice in each direction by the time it is packed: once by itself,
once by packing 2 by 2 latents into one. The transformer learns the straight line from latents (time
0) to noise (time 1); a caption that is left out at times makes guidance possible.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import evergrad as eg
from evergrad import nn
from evergrad.models.attention import FeedForward, SelfAttention
from evergrad.models.flux import Flux, FluxConfig, picture_places
from evergrad.models.model import Model, evaluating, require, require_divides, require_positive
from evergrad.nn import functional as F

if TYPE_CHECKING:
    from evergrad.core.rng.default_generator import Generator


@dataclass(frozen=True)
class PainterConfig:
    """The sizes of all three parts.

    >>> eg.models.PainterConfig(size=32).channels
    32
    """

    size: int = 16  # height and width of a picture
    latents: int = 4  # channels
    channels: int = 32  # of the autoencoder
    words: int = 64  # the vocabulary of captions; the first is no word
    length: int = 12  # words of a caption
    double: int = 2  # blocks
    single: int = 4
    heads: int = 3
    width: int = 96

    def __post_init__(self) -> None:
        require_positive(self, "size", "latents", "channels", "words", "length", "heads", "width")
        require_divides(self, "heads", "width")
        require(self.size % 4 == 0, f"size is {self.size}", "choose a multiple of 4")
        head = self.width // self.heads
        require(head % 8 == 0, f"a head has {head} numbers", "choose a multiple of 8")
        require(self.channels % 8 == 0, f"channels is {self.channels}", "choose a multiple of 8")

    def flux(self) -> FluxConfig:
        """The configuration of the transformer."""
        head = self.width // self.heads
        side = 3 * head // 8 // 2 * 2
        return FluxConfig(
            in_channels=4 * self.latents, num_layers=self.double, num_single_layers=self.single,
            attention_head_dim=head, num_attention_heads=self.heads,
            joint_attention_dim=self.width, pooled_projection_dim=self.width,
            guidance_embeds=True, axes_dims_rope=(head - 2 * side, side, side),
        )  # fmt: skip


class Residual(nn.Module):
    """Two convolutions with GroupNorm and SiLU, added to their input."""

    conv2: nn.Conv2d
    conv1: nn.Conv2d
    norm2: nn.GroupNorm
    norm1: nn.GroupNorm

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.GroupNorm(8, channels) for _ in range(2))
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, channels, H, W)
        y = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(y)))


class AutoEncoder(nn.Module):
    """Pictures as latents of half the size, with mean 0 and variance 1, and back."""

    def __init__(self, config: PainterConfig) -> None:
        super().__init__()
        C, Z = config.channels, config.latents
        self.encoder: nn.Sequential = nn.Sequential(
            nn.Conv2d(3, C, 3, padding=1), Residual(C), nn.Conv2d(C, C, 3, stride=2, padding=1),
            Residual(C), nn.GroupNorm(8, C), nn.SiLU(), nn.Conv2d(C, Z, 3, padding=1),
            nn.GroupNorm(1, Z, affine=False),
        )  # fmt: skip
        self.decoder: nn.Sequential = nn.Sequential(
            nn.Conv2d(Z, C, 3, padding=1), Residual(C), nn.Upsample(scale_factor=2),
            nn.Conv2d(C, C, 3, padding=1), Residual(C), nn.GroupNorm(8, C), nn.SiLU(),
            nn.Conv2d(C, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: eg.Tensor) -> eg.Tensor:
        return self.decoder(self.encoder(x))


class TextEncoder(nn.Module):
    """Words that look at each other, and their mean."""

    norm: nn.LayerNorm
    norm2: nn.LayerNorm
    norm1: nn.LayerNorm

    def __init__(self, config: PainterConfig) -> None:
        super().__init__()
        C = config.width
        self.words: nn.Embedding = nn.Embedding(config.words, C)
        self.places: nn.Parameter = nn.Parameter(eg.empty(config.length, C))
        self.norm1, self.norm2, self.norm = (nn.LayerNorm(C) for _ in range(3))
        self.attention: SelfAttention = SelfAttention(C, config.heads)
        self.feed_forward: FeedForward = FeedForward(C)
        nn.init.normal_(self.words.weight, std=0.5)
        nn.init.normal_(self.places, std=0.1)

    def forward(self, words: eg.Tensor) -> tuple[eg.Tensor, eg.Tensor]:  # (B, L)
        x = self.words(words) + self.places
        x = x + self.attention(self.norm1(x))
        x = self.norm(x + self.feed_forward(self.norm2(x)))
        return x, x.mean(1)  # (B, L, C), (B, C)


class Painter(Model):
    """All three parts, their loss, and how a picture is drawn.

    >>> model = eg.models.Painter(eg.models.PainterConfig())
    >>> sum(p.numel() for p in model.parameters()) > 0
    True
    """

    config_type = PainterConfig
    config: PainterConfig

    def __init__(self, config: PainterConfig) -> None:
        super().__init__(config)
        self.autoencoder: AutoEncoder = AutoEncoder(config)
        self.text: TextEncoder = TextEncoder(config)
        self.transformer: Flux = Flux(config.flux())

    def pack(self, z: eg.Tensor) -> eg.Tensor:  # (B, Z, h, w) -> (B, h w / 4, 4 Z)
        """Latents as a sequence of patches."""
        return F.pixel_unshuffle(z, 2).flatten(2).transpose(1, 2)

    def unpack(self, x: eg.Tensor) -> eg.Tensor:
        """A sequence of patches as latents."""
        side = self.config.size // 4
        return F.pixel_shuffle(x.transpose(1, 2).unflatten(2, (side, side)), 2)

    def velocity(
        self, x: eg.Tensor, words: eg.Tensor, time: eg.Tensor, guidance: eg.Tensor
    ) -> eg.Tensor:  # (B, T, 4 Z), (B, L), (B), (B)
        """The predicted velocity of latents at a time."""
        features, pooled = self.text(words)
        side = self.config.size // 4
        text_ids = eg.zeros(words.shape[1], 3)
        places = picture_places(side, side)
        return self.transformer(x, features, pooled, time, places, text_ids, guidance)

    def losses(
        self,
        pictures: eg.Tensor,
        words: eg.Tensor,
        generator: Generator | None = None,
        unlabelled: float = 0.1,
    ) -> tuple[eg.Tensor, eg.Tensor]:  # (B, 3, size, size) from -1 to 1, (B, L)
        """The errors of reconstructed pictures, and of velocities at random times."""
        z = self.autoencoder.encoder(pictures)
        rebuilt = F.mse_loss(self.autoencoder.decoder(z), pictures)
        x = self.pack(z.detach())
        B = len(pictures)
        noise = eg.randn(x.shape, generator=generator)
        time = eg.sigmoid(eg.randn(B, generator=generator))
        hidden = eg.rand(B, 1, generator=generator) < unlabelled
        words = eg.where(hidden, 0, words)
        mixed = x + time.view(-1, 1, 1) * (noise - x)
        found = self.velocity(mixed, words, time, eg.ones(B))
        return rebuilt, F.mse_loss(found, noise - x)

    def paint(
        self,
        words: eg.Tensor,
        steps: int = 20,
        guidance: float = 3.0,
        generator: Generator | None = None,
    ) -> eg.Tensor:  # (B, L) -> (B, 3, size, size)
        """Pictures of captions: from noise along the velocities, in equal steps."""
        require(steps >= 1, f"steps is {steps}", "take at least one")
        B, side = len(words), self.config.size // 4
        x = eg.randn(B, side * side, 4 * self.config.latents, generator=generator)
        nothing = eg.zeros_like(words)
        with evaluating(self.modules()):
            for step in range(steps, 0, -1):
                time, scale = eg.full((B,), step / steps), eg.ones(B)
                found = self.velocity(x, words, time, scale)
                if guidance != 1:
                    plain = self.velocity(x, nothing, time, scale)
                    found = plain + guidance * (found - plain)
                x = x - found / steps
            return self.autoencoder.decoder(self.unpack(x)).clamp(-1, 1)
