"""GPT: a decoder-only transformer that predicts the next token.

Positions are learned or rotary, norms LayerNorm or RMSNorm, the feed-forward part GELU or SwiGLU;
several query heads may share one head of keys and values. With the right options it is a GPT-2 or a
Llama (:mod:`evergrad.models.hugging_face`). Which keys a query attends to is decided by a *sight*
(:mod:`evergrad.models.cache`): the sequence itself, cached tokens, or packed segments.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import evergrad as eg
from evergrad import nested, nn
from evergrad.models.cache import Cache, LayerSight, Sight
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
    """The sizes and the variant of a GPT.

    >>> eg.models.GPTConfig(width=64, heads=4).context
    64
    """

    vocabulary: int = 256
    context: int = 64  # the longest sequence it can look at
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None  # heads of keys and values; None: as many as heads
    width: int = 128
    dropout: float = 0.0
    positions: Literal["learned", "rotary"] = "learned"
    norm: Literal["layer", "rms"] = "layer"
    feed_forward: Literal["gelu", "gelu_tanh", "swiglu"] = "gelu"
    bias: bool = True
    tie: bool = True  # tokens are scored with the weights that embed them
    head_width: int | None = None  # numbers of a head; None: width / heads
    inner: int | None = None  # width of the feed-forward part; None: as of that many parameters
    qkv_bias: bool | None = None  # of queries, keys and values alone; None: as bias
    eps: float = 1e-5  # of the norms
    rotary_base: float = 10_000.0
    # Llama 3.1's: factor, low and high frequency factor, the context it was first trained with.
    rotary_scaling: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        require_positive(self, "vocabulary", "context", "layers", "heads", "width")
        if self.head_width is None:
            require_divides(self, "heads", "width")
        require(
            self.shared_heads >= 1 and self.heads % self.shared_heads == 0,
            f"kv_heads ({self.kv_heads}) does not divide heads ({self.heads})",
            f"choose kv_heads among the divisors of {self.heads}, or leave it out",
        )
        require_probability(self, "dropout")
        require_choice(self, "positions", ("learned", "rotary"))
        require_choice(self, "norm", ("layer", "rms"))
        require_choice(self, "feed_forward", ("gelu", "gelu_tanh", "swiglu"))
        require(
            self.positions == "learned" or self.head_size % 2 == 0,
            f"rotary positions turn pairs, but a head has {self.head_size} numbers",
            "choose width and heads so that width / heads is even",
        )

    @property
    def shared_heads(self) -> int:
        """The heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def head_size(self) -> int:
        """The features of a head."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def hidden(self) -> int:
        """The inner width of the feed-forward part: SwiGLU has three matrices instead of two, and
        two thirds of the width for as many parameters, here to the next multiple of 8."""
        if self.inner is not None:
            return self.inner
        return -(-self.width // 3) * 8 if self.feed_forward == "swiglu" else 4 * self.width


def make_norm(config: GPTConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.width, eps=config.eps)
    return nn.LayerNorm(config.width, eps=config.eps, bias=config.bias)


def rotary_rates(config: GPTConfig) -> eg.Tensor:
    """Radians per position of each pair, (hs / 2).

    Llama 3.1 slows the waves that are longer than the context it was first trained with by
    ``factor``, keeps the short ones, and interpolates between the two limits.
    """
    half = config.head_size // 2
    rates = config.rotary_base ** (-eg.arange(half) / half)
    if config.rotary_scaling is None:
        return rates
    factor, low, high, context = config.rotary_scaling
    turns = context * rates / (2 * math.pi)  # of each pair within the first context
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return rates * (kept + (1 - kept) / factor)


class Rotary(nn.Module):
    """Turns pairs of a head's numbers by angles that grow with the position."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        angles = eg.arange(config.context)[:, None] * rotary_rates(config)  # (context, hs / 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(
        self, x: eg.Tensor, positions: eg.Tensor
    ) -> eg.Tensor:  # (B, nh, T, hs), (T) or (B, T)
        cos, sin = self.cos[positions], self.sin[positions]  # (T, hs / 2) or (B, T, hs / 2)
        if positions.ndim == 2:
            cos, sin = cos[:, None], sin[:, None]  # (B, 1, T, hs / 2)
        a, b = x.chunk(2, dim=-1)  # (B, nh, T, hs / 2)
        return eg.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    """Every token looks at itself and at those before it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        joint = (config.heads + 2 * config.shared_heads) * config.head_size
        has_bias = config.bias if config.qkv_bias is None else config.qkv_bias
        self.qkv: nn.Linear = nn.Linear(config.width, joint, bias=has_bias)
        self.out: nn.Linear = nn.Linear(
            config.heads * config.head_size, config.width, bias=config.bias
        )
        self.drop: nn.Dropout = nn.Dropout(config.dropout)
        self.rotary: Rotary | None = Rotary(config) if config.positions == "rotary" else None

    def forward(
        self, x: eg.Tensor, positions: eg.Tensor, sight: LayerSight | None
    ) -> eg.Tensor:  # (B, T, C), (T) or (B, T)
        B, T, _ = x.shape
        c = self.config
        heads = self.qkv(x).view(B, T, -1, c.head_size).transpose(1, 2)  # (B, nh + 2 nkv, T, hs)
        q, k, v = heads.split([c.heads, c.shared_heads, c.shared_heads], dim=1)
        if self.rotary is not None:
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        if sight is not None:
            y = sight.attend(q, k, v, positions)  # (B, nh, T, hs)
        else:
            y = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, dropout_p=c.dropout if self.training else 0.0,
                enable_gqa=c.shared_heads < c.heads,
            )  # fmt: skip
        return self.drop(self.out(y.transpose(1, 2).flatten(2)))  # (B, T, C)


class FeedForward(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.widen: nn.Linear = nn.Linear(config.width, config.hidden, bias=config.bias)
        gated = config.feed_forward == "swiglu"
        self.approximate: bool = config.feed_forward == "gelu_tanh"
        self.gate: nn.Linear | None = (
            nn.Linear(config.width, config.hidden, bias=config.bias) if gated else None
        )
        self.out: nn.Linear = nn.Linear(config.hidden, config.width, bias=config.bias)
        self.drop: nn.Dropout = nn.Dropout(config.dropout)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, T, C)
        h = self.widen(x)  # (B, T, hidden)
        if self.gate is not None:
            return self.drop(self.out(h * F.silu(self.gate(x))))  # (B, T, C)
        approximate = "tanh" if self.approximate else "none"
        return self.drop(self.out(F.gelu(h, approximate=approximate)))


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm1: nn.Module = make_norm(config)
        self.attention: Attention = Attention(config)
        self.norm2: nn.Module = make_norm(config)
        self.feed_forward: FeedForward = FeedForward(config)

    def forward(
        self, x: eg.Tensor, positions: eg.Tensor, sight: LayerSight | None
    ) -> eg.Tensor:  # (B, T, C), (T) or (B, T)
        x = x + self.attention(self.norm1(x), positions, sight)
        return x + self.feed_forward(self.norm2(x))


class GPT(Model):
    """Token embedding, blocks, norm, scores of the next token.

    >>> model = eg.models.GPT(eg.models.GPTConfig(vocabulary=10, context=8, layers=1, width=16))
    >>> model(eg.zeros(2, 5, dtype=eg.int64)).shape
    evergrad.Size([2, 5, 10])
    """

    config_type = GPTConfig
    config: GPTConfig

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.tokens: nn.Embedding = nn.Embedding(config.vocabulary, config.width)
        learned = config.positions == "learned"
        self.positions: nn.Embedding | None = (
            nn.Embedding(config.context, config.width) if learned else None
        )
        self.drop: nn.Dropout = nn.Dropout(config.dropout)
        self.blocks: nn.ModuleList = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm: nn.Module = make_norm(config)
        self.head: nn.Linear | None = (
            None if config.tie else nn.Linear(config.width, config.vocabulary, bias=False)
        )
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
        self, tokens: eg.Tensor, sight: Sight | None = None
    ) -> eg.Tensor:  # (B, T) -> (B, T, vocabulary)
        """Scores of the token after each. With a sight: after those it lets a token see, too.
        Sequences of different lengths are a nested tensor; nothing of them is padded."""
        return self.scores(self.features(tokens, sight))

    def features(
        self, tokens: eg.Tensor, sight: Sight | None = None
    ) -> eg.Tensor:  # (B, T) -> (B, T, C)
        """What the blocks make of each token, normed: what :meth:`scores` reads."""
        if tokens.is_nested:
            require(
                sight is None and self.positions is not None,
                "nested sequences were given with a cache, or to a model with rotary positions",
                "give each of tokens.unbind() by itself",
            )
            places = nested.positions(tokens)  # type: ignore[arg-type]
            return self._features(tokens, places, None)  # (B, ragged, C)
        length = tokens.shape[1]
        require(
            length <= self.config.context,
            f"{length} tokens are given to a model with a context of {self.config.context}",
            "give the last of them, or make the model with a larger context",
        )
        positions = eg.arange(length) if sight is None else sight.positions(length)
        x = self._features(tokens, positions, sight)
        if sight is not None:
            sight.advance(length)
        return x

    def _features(
        self, tokens: eg.Tensor, positions: eg.Tensor, sight: Sight | None
    ) -> eg.Tensor:  # (B, T), (T) -> (B, T, C)
        x = self.tokens(tokens)  # (B, T, C)
        if self.positions is not None:
            x = x + self.positions(positions)
        x = self.drop(x)
        for number, block in enumerate(self.blocks):
            x = block(x, positions, None if sight is None else sight.layers[number])
        return self.norm(x)

    def scores(self, features: eg.Tensor) -> eg.Tensor:  # (..., C) -> (..., vocabulary)
        """The scores of the next token, from features."""
        if self.head is not None:
            return self.head(features)
        return F.linear(features, self.tokens.weight)

    def new_cache(self) -> Cache:
        """Room for one sequence of the context's length."""
        c = self.config
        dtype = self.norm.weight.dtype
        return Cache(c.layers, c.shared_heads, c.context, c.head_size, dtype)

    def loss(self, tokens: eg.Tensor, following: eg.Tensor) -> eg.Tensor:
        """The mean cross-entropy, in nats, of the tokens that follow: both (B, T)."""
        if tokens.is_nested:
            return F.cross_entropy(self(tokens), following)
        return F.cross_entropy(self(tokens).flatten(0, 1), following.flatten())
