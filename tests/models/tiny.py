"""The smallest of each model, with a batch and the loss it is trained with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import evergrad as eg
from evergrad.models import (
    DDPM,
    GPT,
    MLP,
    DiT,
    DiTConfig,
    Flow,
    GPTConfig,
    LeNet5,
    LeNetConfig,
    LSTMConfig,
    LSTMLanguageModel,
    MLPConfig,
    ResNet,
    ResNetConfig,
    ViT,
    ViTConfig,
)
from evergrad.nn import functional as F

GPT_SIZES: dict[str, Any] = {"vocabulary": 11, "context": 6, "layers": 2, "heads": 4, "width": 16}
MODERN: dict[str, Any] = {
    "positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "kv_heads": 2, "bias": False,
    "tie": False,
}  # fmt: skip
GPTS = {
    "gpt2": GPTConfig(**GPT_SIZES),
    "modern": GPTConfig(**GPT_SIZES, **MODERN),
    "rotary": GPTConfig(**GPT_SIZES, positions="rotary"),
    "one kv head": GPTConfig(**GPT_SIZES, kv_heads=1),
}
DIT = DiTConfig(size=4, patch=2, layers=2, heads=2, width=16, classes=3)


class Tiny(NamedTuple):
    """How a model is made, what it is given and what is asked of it."""

    make: Callable[[], Any]
    batch: Callable[[], tuple[Any, ...]]
    loss: Callable[..., Any]


def tokens() -> tuple[Any, ...]:
    text = eg.randint(0, 11, (3, 7))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def pictures(channels: int, size: int, count: int = 4) -> Callable[[], tuple[Any, ...]]:
    return lambda: (eg.randn(count, channels, size, size), eg.randint(0, 3, (count,)))


def language(model: Any, x: Any, y: Any) -> Any:
    return model.loss(x, y)


def classes(model: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(model(x), y)


VIT = ViTConfig(classes=3, size=4, patch=2, layers=2, heads=2, width=16, dropout=0.1)
LSTM = LSTMConfig(vocabulary=11, context=6, layers=2, width=8, dropout=0.1)
MODELS = {
    "gpt": Tiny(lambda: GPT(GPTS["gpt2"]), tokens, language),
    "gpt, modern": Tiny(lambda: GPT(GPTS["modern"]), tokens, language),
    "gpt, dropout": Tiny(lambda: GPT(GPTConfig(**GPT_SIZES, dropout=0.2)), tokens, language),
    "lstm": Tiny(lambda: LSTMLanguageModel(LSTM), tokens, language),
    "mlp": Tiny(lambda: MLP(MLPConfig(16, 3, 2, 8, 0.1)), pictures(1, 4), classes),
    "lenet": Tiny(lambda: LeNet5(LeNetConfig(3, size=12)), pictures(1, 12), classes),
    "resnet18": Tiny(lambda: ResNet(ResNetConfig(18, 3, width=4)), pictures(3, 8), classes),
    "resnet50": Tiny(
        lambda: ResNet(ResNetConfig(50, 3, 1, 2, small=False)), pictures(1, 16), classes
    ),
    "vit": Tiny(lambda: ViT(VIT), pictures(3, 4), classes),
    "dit, flow": Tiny(lambda: DiT(DIT), pictures(3, 4), Flow().loss),
    "dit, ddpm": Tiny(lambda: DiT(DIT), pictures(3, 4), DDPM().loss),
}
