"""FLUX: a rectified-flow transformer over packed latents and text.

Double-stream blocks have weights of their own for text and picture and one attention over both;
single-stream blocks treat both as one sequence, attention and feed-forward part side by side. Time,
guidance and the pooled text set the norms and gates of every block. Positions are rotary, with one
part of a head for each axis. Weights have the names and layout of the package ``diffusers``.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import evergrad as eg
from evergrad import config as limits
from evergrad import nn
from evergrad.io.safetensors import load_file, save_file
from evergrad.models.model import Model, require, require_positive
from evergrad.nn import functional as F
from evergrad.utils.atomic_file import replacing
from evergrad.utils.bounded_read import read_json

if TYPE_CHECKING:
    from evergrad.core.types import Kwargs

_TIME_WIDTH = 256
_EPS = 1e-6
_WEIGHTS = "diffusion_pytorch_model.safetensors"
_CLASS = "FluxTransformer2DModel"

Rotation = tuple[eg.Tensor, eg.Tensor]


@dataclass(frozen=True)
class FluxConfig:
    """The sizes of the transformer, under the names that ``diffusers`` gives them.

    >>> eg.models.FluxConfig().num_layers
    19
    """

    in_channels: int = 64  # of one packed latent
    num_layers: int = 19  # double-stream blocks
    num_single_layers: int = 38
    attention_head_dim: int = 128
    num_attention_heads: int = 24
    joint_attention_dim: int = 4096  # width of the text's features
    pooled_projection_dim: int = 768
    guidance_embeds: bool = False
    axes_dims_rope: tuple[int, int, int] = (16, 56, 56)

    def __post_init__(self) -> None:
        require_positive(
            self, "in_channels", "attention_head_dim", "num_attention_heads",
            "joint_attention_dim", "pooled_projection_dim",
        )  # fmt: skip
        total = sum(self.axes_dims_rope)
        require(
            total == self.attention_head_dim and all(n % 2 == 0 for n in self.axes_dims_rope),
            f"axes_dims_rope is {self.axes_dims_rope} for heads of {self.attention_head_dim}",
            "choose even numbers that add up to attention_head_dim",
        )

    @property
    def width(self) -> int:
        """The features: heads times their size."""
        return self.num_attention_heads * self.attention_head_dim


def rotation(ids: eg.Tensor, axes: tuple[int, ...]) -> Rotation:  # (T, axes) -> (T, 1, hs / 2)
    """Cosines and sines of the angles of all pairs, computed in float64."""
    parts = []
    for axis, size in enumerate(axes):
        rates = 10_000.0 ** (-eg.arange(0, size, 2, dtype=eg.float64) / size)
        parts.append(ids[:, axis, None].double() * rates)
    angles = eg.cat(parts, 1)[:, None]
    return angles.cos().float(), angles.sin().float()


def rotated(x: eg.Tensor, by: Rotation) -> eg.Tensor:  # (B, T, nh, hs)
    """Neighbouring numbers are a pair."""
    cos, sin = by
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)  # (B, T, nh, hs / 2)
    return eg.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def attend(q: eg.Tensor, k: eg.Tensor, v: eg.Tensor) -> eg.Tensor:  # (B, T, nh, hs)
    y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    return y.transpose(1, 2).flatten(2)  # (B, T, C)


def waves(x: eg.Tensor) -> eg.Tensor:  # (N) -> (N, _TIME_WIDTH)
    """Numbers as cosines and sines. Angles reach thousands of radians, so that the last bit of a
    rate shows: exponents are rounded to float32 as those of ``diffusers`` are, and their
    exponential, computed in float64, is rounded once."""
    half = _TIME_WIDTH // 2
    exponents = -math.log(10_000) * eg.arange(half, dtype=eg.float32) / half
    rates = eg.exp(exponents.double()).float()
    angles = x[:, None] * rates
    return eg.cat([angles.cos(), angles.sin()], 1)


class Embedder(nn.Module):
    """Two linear layers with SiLU between them."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear_1: nn.Linear = nn.Linear(before, after)
        self.linear_2: nn.Linear = nn.Linear(after, after)

    def forward(self, x: eg.Tensor) -> eg.Tensor:
        return self.linear_2(F.silu(self.linear_1(x)))


class Condition(nn.Module):
    """Time, guidance and the pooled text as one vector."""

    def __init__(self, config: FluxConfig) -> None:
        super().__init__()
        self.timestep_embedder: Embedder = Embedder(_TIME_WIDTH, config.width)
        if config.guidance_embeds:
            self.guidance_embedder: Embedder = Embedder(_TIME_WIDTH, config.width)
        self.text_embedder: Embedder = Embedder(config.pooled_projection_dim, config.width)

    def forward(
        self, time: eg.Tensor, guidance: eg.Tensor | None, pooled: eg.Tensor
    ) -> eg.Tensor:  # (B), (B), (B, pooled) -> (B, C)
        found = self.timestep_embedder(waves(1000 * time))
        if guidance is not None:
            found = found + self.guidance_embedder(waves(1000 * guidance))
        return found + self.text_embedder(pooled)


class Modulation(nn.Module):
    """Shifts, scales and gates that follow from the condition."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.linear: nn.Linear = nn.Linear(width, count * width)

    def forward(self, condition: eg.Tensor) -> tuple[eg.Tensor, ...]:  # (B, C)
        return self.linear(F.silu(condition))[:, None].chunk(self.count, dim=2)  # (B, 1, C) each


def modulated(x: eg.Tensor, shift: eg.Tensor, scale: eg.Tensor) -> eg.Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=_EPS) * (1 + scale) + shift


class Attention(nn.Module):
    """Attention of the picture, and of the text if it has weights of its own."""

    add_v_proj: nn.Linear
    add_k_proj: nn.Linear
    add_q_proj: nn.Linear
    to_v: nn.Linear
    to_k: nn.Linear
    to_q: nn.Linear
    norm_k: nn.RMSNorm
    norm_q: nn.RMSNorm

    def __init__(self, config: FluxConfig, is_joint: bool) -> None:
        super().__init__()
        C, size = config.width, config.attention_head_dim
        self.size = size
        self.norm_q, self.norm_k = nn.RMSNorm(size, eps=_EPS), nn.RMSNorm(size, eps=_EPS)
        self.to_q, self.to_k, self.to_v = (nn.Linear(C, C) for _ in range(3))
        if is_joint:
            self.to_out: nn.ModuleList = nn.ModuleList([nn.Linear(C, C)])
            self.norm_added_q: nn.RMSNorm = nn.RMSNorm(size, eps=_EPS)
            self.norm_added_k: nn.RMSNorm = nn.RMSNorm(size, eps=_EPS)
            self.add_q_proj, self.add_k_proj, self.add_v_proj = (nn.Linear(C, C) for _ in range(3))
            self.to_add_out: nn.Linear = nn.Linear(C, C)

    def picture(self, x: eg.Tensor) -> tuple[eg.Tensor, ...]:  # (B, T, C) -> (B, T, nh, hs)
        q, k, v = (m(x).unflatten(-1, (-1, self.size)) for m in (self.to_q, self.to_k, self.to_v))
        return self.norm_q(q), self.norm_k(k), v

    def text(self, x: eg.Tensor) -> tuple[eg.Tensor, ...]:
        layers = (self.add_q_proj, self.add_k_proj, self.add_v_proj)
        q, k, v = (layer(x).unflatten(-1, (-1, self.size)) for layer in layers)
        return self.norm_added_q(q), self.norm_added_k(k), v

    def joint(self, x: eg.Tensor, text: eg.Tensor, by: Rotation) -> tuple[eg.Tensor, eg.Tensor]:
        parts = zip(self.text(text), self.picture(x), strict=True)
        q, k, v = (eg.cat(pair, 1) for pair in parts)
        y = attend(rotated(q, by), rotated(k, by), v)
        length = text.shape[1]
        return self.to_out[0](y[:, length:]), self.to_add_out(y[:, :length])

    def single(self, x: eg.Tensor, by: Rotation) -> eg.Tensor:
        q, k, v = self.picture(x)
        return attend(rotated(q, by), rotated(k, by), v)


class Widen(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj: nn.Linear = nn.Linear(width, 4 * width)

    def forward(self, x: eg.Tensor) -> eg.Tensor:
        return F.gelu(self.proj(x), approximate="tanh")


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net: nn.Sequential = nn.Sequential(
            Widen(width), nn.Identity(), nn.Linear(4 * width, width)
        )

    def forward(self, x: eg.Tensor) -> eg.Tensor:
        return self.net(x)


class DoubleBlock(nn.Module):
    """Text and picture with weights of their own and one attention."""

    ff_context: FeedForward
    ff: FeedForward
    norm1_context: Modulation
    norm1: Modulation

    def __init__(self, config: FluxConfig) -> None:
        super().__init__()
        C = config.width
        self.norm1, self.norm1_context = Modulation(C, 6), Modulation(C, 6)
        self.attn: Attention = Attention(config, is_joint=True)
        self.ff, self.ff_context = FeedForward(C), FeedForward(C)

    def forward(
        self, x: eg.Tensor, text: eg.Tensor, condition: eg.Tensor, by: Rotation
    ) -> tuple[eg.Tensor, eg.Tensor]:  # (B, T, C), (B, L, C), (B, C)
        shift, scale, gate, shift2, scale2, gate2 = self.norm1(condition)
        tshift, tscale, tgate, tshift2, tscale2, tgate2 = self.norm1_context(condition)
        seen, heard = self.attn.joint(
            modulated(x, shift, scale), modulated(text, tshift, tscale), by
        )
        x = x + gate * seen
        x = x + gate2 * self.ff(modulated(x, shift2, scale2))
        text = text + tgate * heard
        return x, text + tgate2 * self.ff_context(modulated(text, tshift2, tscale2))


class SingleBlock(nn.Module):
    """One sequence of text and picture; attention and feed-forward part side by side."""

    def __init__(self, config: FluxConfig) -> None:
        super().__init__()
        C = config.width
        self.norm: Modulation = Modulation(C, 3)
        self.proj_mlp: nn.Linear = nn.Linear(C, 4 * C)
        self.proj_out: nn.Linear = nn.Linear(5 * C, C)
        self.attn: Attention = Attention(config, is_joint=False)

    def forward(
        self, x: eg.Tensor, condition: eg.Tensor, by: Rotation
    ) -> eg.Tensor:  # (B, L + T, C)
        shift, scale, gate = self.norm(condition)
        h = modulated(x, shift, scale)
        inner = F.gelu(self.proj_mlp(h), approximate="tanh")
        return x + gate * self.proj_out(eg.cat([self.attn.single(h, by), inner], 2))


class Flux(Model):
    """The velocity of packed latents under a text, at a time from 0 (picture) to 1 (noise).

    >>> config = eg.models.FluxConfig(
    ...     in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
    ...     num_attention_heads=2, axes_dims_rope=(4, 6, 6),
    ... )
    >>> type(eg.models.Flux(config)).__name__
    'Flux'
    """

    config_type = FluxConfig
    config: FluxConfig

    def __init__(self, config: FluxConfig) -> None:
        super().__init__(config)
        C = config.width
        self.time_text_embed: Condition = Condition(config)
        self.context_embedder: nn.Linear = nn.Linear(config.joint_attention_dim, C)
        self.x_embedder: nn.Linear = nn.Linear(config.in_channels, C)
        self.transformer_blocks: nn.ModuleList = nn.ModuleList(
            DoubleBlock(config) for _ in range(config.num_layers)
        )
        self.single_transformer_blocks: nn.ModuleList = nn.ModuleList(
            SingleBlock(config) for _ in range(config.num_single_layers)
        )
        self.norm_out: Modulation = Modulation(C, 2)
        self.proj_out: nn.Linear = nn.Linear(C, config.in_channels)
        self.initialise()

    def initialise(self) -> None:
        """Gates are closed at first: each block begins as the identity."""
        for name, parameter in self.named_parameters():
            is_modulation = ".linear." in name
            if name.endswith("bias") or is_modulation or name.startswith("proj_out"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)

    def forward(
        self, x: eg.Tensor, text: eg.Tensor, pooled: eg.Tensor, time: eg.Tensor,
        picture_ids: eg.Tensor, text_ids: eg.Tensor, guidance: eg.Tensor | None = None,
    ) -> eg.Tensor:  # fmt: skip
        """Latents (B, T, in_channels), the text's features (B, L, joint) and their summary
        (B, pooled), times (B), the places of both on three axes (T, 3), (L, 3), guidance (B)."""
        condition = self.time_text_embed(time, guidance, pooled)  # (B, C)
        by = rotation(eg.cat([text_ids, picture_ids]), self.config.axes_dims_rope)
        x, heard = self.x_embedder(x), self.context_embedder(text)
        for block in self.transformer_blocks:
            x, heard = block(x, heard, condition, by)
        length = text.shape[1]
        both = eg.cat([heard, x], 1)
        for block in self.single_transformer_blocks:
            both = block(both, condition, by)
        scale, shift = self.norm_out(condition)
        return self.proj_out(modulated(both[:, length:], shift, scale))


def picture_places(height: int, width: int) -> eg.Tensor:
    """Rows and columns of packed latents on the second and third axis, (height * width, 3)."""
    rows = eg.arange(height)[:, None].expand(height, width).flatten()
    columns = eg.arange(width)[None].expand(height, width).flatten()
    return eg.stack([eg.zeros_like(rows), rows, columns], 1).float()


def load_flux(folder: str | Path) -> Flux:
    """The transformer that ``diffusers`` saved in a folder."""
    place = Path(folder)
    described = read_json(
        place / "config.json", limits.TOKENIZER_BYTES, "set EVERGRAD_TOKENIZER_BYTES"
    )
    require(isinstance(described, dict), f"{place}/config.json is no object", "get the file again")
    require(
        described.get("_class_name") == _CLASS,
        f"{place} holds a {described.get('_class_name')}",
        f"name the folder of a {_CLASS}",
    )
    require(described.get("patch_size", 1) == 1, "patch_size is not 1", "load a model with 1")
    known = [field.name for field in fields(FluxConfig)]
    options: Kwargs = {n: described[n] for n in known if n in described}
    if "axes_dims_rope" in options:
        options["axes_dims_rope"] = tuple(options["axes_dims_rope"])
    model = Flux(FluxConfig(**options))
    model.load_state_dict({n: v.float() for n, v in load_file(place / _WEIGHTS).items()})
    return model.eval()


def save_flux(model: Flux, folder: str | Path) -> None:
    """Write a transformer so that ``diffusers`` loads it."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), place / _WEIGHTS, {"format": "pt"})
    described = {"_class_name": _CLASS, "patch_size": 1, "out_channels": None}
    described |= {field.name: getattr(model.config, field.name) for field in fields(FluxConfig)}
    with replacing(place / "config.json") as file:
        file.write(json.dumps(described, indent=2).encode())
