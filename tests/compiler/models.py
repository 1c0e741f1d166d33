"""Small models with their training steps: convolutions, attention, diffusion and recurrence."""

from __future__ import annotations

import math
from typing import Any

import evergrad as eg
from evergrad import nn
from evergrad.nn import functional as F

from .steps import Scenario


class LeNet(nn.Module):
    """LeNet-5 for images of 12 by 12."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 5, 3)
        self.layers = nn.Sequential(
            nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)
        )

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return self.layers(x.flatten(1))


class Perceptron(nn.Module):
    """A norm, a hidden layer four times as wide and its curve, beside a residual stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def peak_of_perceptrons(count: int, rows: int, width: int, optimizer: Any) -> float:
    """The arena of a training step through so many, in streams of so many rows."""
    model = nn.Sequential(*[Perceptron(width) for _ in range(count)])
    updates = optimizer(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        updates.step()
        updates.zero_grad()
        return loss.detach()

    peak = eg.compile(step).plan(eg.ones(rows, width)).peak
    return float(peak / (rows * width * 4))


class Block(nn.Module):
    """A block of a transformer; ``causal`` looks at the past only."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def attention(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        x = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(x.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Any, shift: Any = 0.0, scale: Any = 1.0) -> Any:
        x = x + self.attention(self.norm(x) * scale + shift)
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList(Block(8, 2, causal=True) for _ in range(2))
        self.drop, self.norm = nn.Dropout(0.1), nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.letters.weight

    def forward(self, index: Any) -> Any:
        x = self.letters(index) + self.places(eg.arange(index.shape[1]))
        x = self.drop(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class DiT(nn.Module):
    """Patches that are told the time by a shift and a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(4, 8), nn.Linear(8, 4)
        self.time = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 16))
        self.block = Block(8, 2, causal=False)

    def forward(self, x: Any, time: Any) -> Any:
        waves = time[:, None] * eg.exp(-math.log(100.0) * eg.arange(4) / 4)
        told = self.time(eg.cat([waves.sin(), waves.cos()], 1))[:, None]
        shift, scale = told.chunk(2, -1)
        return self.leave(self.block(self.enter(x), shift, 1 + scale))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.cell = nn.Embedding(7, 5), nn.LSTM(5, 6, batch_first=True)
        self.head = nn.Linear(6, 7)

    def forward(self, index: Any) -> Any:
        return self.head(self.cell(self.letters(index))[0])


class Training(Scenario):
    """A model and its optimizer; each round draws a batch of its own."""

    def __init__(self) -> None:
        self.model = self.make()
        self.optimizer = eg.optim.AdamW(self.model.parameters(), lr=1e-2)

    def make(self) -> Any:
        raise NotImplementedError

    def loss(self, *batch: Any) -> Any:
        raise NotImplementedError

    def step(self, *batch: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def watched(self) -> Any:
        return self.model.state_dict()


class LeNetTraining(Training):
    make = LeNet

    def arguments(self, round: int) -> tuple[Any, ...]:
        return eg.randn(4, 1, 12, 12), eg.randint(0, 4, (4,))

    def loss(self, images: Any, kinds: Any) -> Any:  # type: ignore[override]
        return F.cross_entropy(self.model(images), kinds)


class GPTTraining(Training):
    make = GPT

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (eg.randint(0, 11, (3, 6)),)

    def loss(self, index: Any) -> Any:  # type: ignore[override]
        logits = self.model(index)
        return F.cross_entropy(logits[:, :-1].reshape(-1, 11), index[:, 1:].reshape(-1))


class DiTTraining(Training):
    make = DiT

    def arguments(self, round: int) -> tuple[Any, ...]:
        return eg.randn(3, 5, 4), eg.rand(3)

    def loss(self, x: Any, time: Any) -> Any:  # type: ignore[override]
        noise = eg.randn_like(x)
        mixed = x * (1 - time)[:, None, None] + noise * time[:, None, None]
        return F.mse_loss(self.model(mixed, time), noise - x)


class LSTMTraining(Training):
    make = LSTM

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (eg.randint(0, 7, (3, 5)),)

    def loss(self, index: Any) -> Any:  # type: ignore[override]
        return F.cross_entropy(self.model(index).transpose(1, 2), index.roll(1, 1))


MODELS = {
    "LeNet-5": LeNetTraining, "GPT": GPTTraining, "DiT": DiTTraining, "LSTM": LSTMTraining,
}  # fmt: skip
