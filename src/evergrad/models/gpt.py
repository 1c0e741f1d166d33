"""GPT: a decoder-only transformer that predicts the next token.

Positions are learned or rotary, norms LayerNorm or RMSNorm, the feed-forward part GELU or SwiGLU;
several query heads may share one head of keys and values.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import evergrad as eg
from evergrad import nn
from evergrad.models.cache import Cache, LayerCache
from evergrad.models.model import (
    Model,
    require,
    require_choice,
    require_divides,
    require_positive,
    require_probability,
)
from evergrad.nn import functional as F


@dataclass(frozen=True)
class GPTConfig:
    """The sizes and the variant of a GPT."""

    vocabulary: int = 256
    context: int = 64  # the longest sequence it can look at
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None  # heads of keys and values; None: as many as heads
    width: int = 128
    dropout: float = 0.0
    positions: Literal["learned", "rotary"] = "learned"
    norm: Literal["layer", "rms"] = "layer"
    feed_forward: Literal["gelu", "swiglu"] = "gelu"
    bias: bool = True
    tie: bool = True  # tokens are scored with the weights that embed them

    def __post_init__(self) -> None:
        require_positive(self, "vocabulary", "context", "layers", "heads", "width")
        require_divides(self, "heads", "width")
        require(
            self.shared_heads >= 1 and self.heads % self.shared_heads == 0,
            f"kv_heads ({self.kv_heads}) does not divide heads ({self.heads})",
            f"choose kv_heads among the divisors of {self.heads}, or leave it out",
        )
        require_probability(self, "dropout")
        require_choice(self, "positions", ("learned", "rotary"))
        require_choice(self, "norm", ("layer", "rms"))
        require_choice(self, "feed_forward", ("gelu", "swiglu"))
        require(
            self.positions == "learned" or self.head_size % 2 == 0,
            f"rotary positions turn pairs, but a head has {self.head_size} numbers",
            "choose width and heads so that width / heads is even",
        )

    @property
    def shared_heads(self) -> int:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def hidden(self) -> int:
        """The inner width of the feed-forward part: SwiGLU has three matrices instead of two, and
        two thirds of the width for as many parameters, here to the next multiple of 8."""
        return 4 * self.width if self.feed_forward == "gelu" else -(-self.width // 3) * 8


def make_norm(config: GPTConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.width, eps=1e-5)
    return nn.LayerNorm(config.width, bias=config.bias)


class Rotary(nn.Module):
    """Turns pairs of a head's numbers by angles that grow with the position."""

    def __init__(self, config: GPTConfig, base: float = 10_000.0) -> None:
        super().__init__()
        half = config.head_size // 2
        rates = base ** (-eg.arange(half) / half)  # (hs / 2)
        angles = eg.arange(config.context)[:, None] * rates  # (context, hs / 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: eg.Tensor, positions: eg.Tensor) -> eg.Tensor:  # (B, nh, T, hs), (T)
        cos, sin = self.cos[positions], self.sin[positions]  # (T, hs / 2)
        a, b = x.chunk(2, dim=-1)  # (B, nh, T, hs / 2)
        return eg.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    """Every token looks at itself and at those before it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        joint = (config.heads + 2 * config.shared_heads) * config.head_size
        self.qkv = nn.Linear(config.width, joint, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)
        self.drop = nn.Dropout(config.dropout)
        self.rotary = Rotary(config) if config.positions == "rotary" else None

    def forward(
        self, x: eg.Tensor, positions: eg.Tensor, cache: LayerCache | None
    ) -> eg.Tensor:  # (B, T, C), (T)
        B, T, _ = x.shape
        c = self.config
        heads = self.qkv(x).view(B, T, -1, c.head_size).transpose(1, 2)  # (B, nh + 2 nkv, T, hs)
        q, k, v = heads.split([c.heads, c.shared_heads, c.shared_heads], dim=1)
        if self.rotary is not None:
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        y = self.attend(q, k, v, positions, cache)  # (B, nh, T, hs)
        return self.drop(self.out(y.transpose(1, 2).flatten(2)))  # (B, T, C)

    def attend(
        self, q: eg.Tensor, k: eg.Tensor, v: eg.Tensor, positions: eg.Tensor,
        cache: LayerCache | None,
    ) -> eg.Tensor:  # (B, nh, T, hs), twice (B, nkv, T, hs), (T)  # fmt: skip
        if cache is not None and q.shape[2] == 1:
            cache.append(k, v, positions)
            return cache.attend(q, positions)
        if cache is not None:
            cache.begin(k, v)
        dropped = self.config.dropout if self.training else 0.0
        shared = self.config.shared_heads < self.config.heads
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=dropped, enable_gqa=shared
        )


class FeedForward(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.width, config.hidden, bias=config.bias)
        gated = config.feed_forward == "swiglu"
        self.gate = nn.Linear(config.width, config.hidden, bias=config.bias) if gated else None
        self.out = nn.Linear(config.hidden, config.width, bias=config.bias)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, T, C)
        h = self.widen(x)  # (B, T, hidden)
        h = F.gelu(h) if self.gate is None else h * F.silu(self.gate(x))
        return self.drop(self.out(h))  # (B, T, C)


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1 = make_norm(config)
        self.attention = Attention(config)
        self.norm2 = make_norm(config)
        self.feed_forward = FeedForward(config)

    def forward(
        self, x: eg.Tensor, positions: eg.Tensor, cache: LayerCache | None
    ) -> eg.Tensor:  # (B, T, C), (T)
        x = x + self.attention(self.norm1(x), positions, cache)
        return x + self.feed_forward(self.norm2(x))


class GPT(Model):
    """Token embedding, blocks, norm, scores of the next token."""

    config_type = GPTConfig
    config: GPTConfig

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        learned = config.positions == "learned"
        self.positions = nn.Embedding(config.context, config.width) if learned else None
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = make_norm(config)
        self.head = None if config.tie else nn.Linear(config.width, config.vocabulary, bias=False)
        self.initialise()

    def initialise(self) -> None:
        """GPT-2's: small normal weights, smaller still where 2 x layers branches add up."""
        residual = 0.02 / math.sqrt(2 * self.config.layers)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=residual if name.endswith("out.weight") else 0.02)

    def forward(
        self, tokens: eg.Tensor, cache: Cache | None = None
    ) -> eg.Tensor:  # (B, T) -> (B, T, vocabulary)
        """Scores of the token after each. With a cache: after those it has seen, too."""
        length = tokens.shape[1]
        require(
            length <= self.config.context,
            f"{length} tokens are given to a model with a context of {self.config.context}",
            "give the last of them, or make the model with a larger context",
        )
        positions = eg.arange(length) if cache is None else cache.positions(length)
        x = self.tokens(tokens)  # (B, T, C)
        if self.positions is not None:
            x = x + self.positions(positions)
        x = self.drop(x)
        for number, block in enumerate(self.blocks):
            x = block(x, positions, None if cache is None else cache.layers[number])
        if cache is not None:
            cache.advance(length)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return F.linear(self.norm(x), weight)

    def new_cache(self) -> Cache:
        """Room for one sequence of the context's length."""
        c = self.config
        dtype = self.tokens.weight.dtype
        return Cache(c.layers, c.shared_heads, c.context, c.head_size, dtype)

    def loss(self, tokens: eg.Tensor, following: eg.Tensor) -> eg.Tensor:
        """The mean cross-entropy, in nats, of the tokens that follow: both (B, T)."""
        return F.cross_entropy(self(tokens).flatten(0, 1), following.flatten())
