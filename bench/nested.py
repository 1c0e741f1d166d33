"""A training step of a GPT on sequences of 16 to 512 tokens, in one run:

    python bench/nested.py [--rounds N] [--sequences N]

nested      evergrad, a nested batch, compiled once for all batches (offsets are run-time inputs)
dense       evergrad, compiled, as many tokens in sequences of one length: nothing to pad
padded      PyTorch, the same sequences padded to the longest, eager, fused attention

Rounds alternate; the least processor time of each is compared, which a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import evergrad as eg
from evergrad import nested
from evergrad.models.gpt import GPT, GPTConfig

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

CONFIG = GPTConfig(vocabulary=512, context=512, layers=4, heads=4, width=256)
MULTIPLE = 256  # values are continued to a multiple of so many tokens


class TorchBlock(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.widen, self.narrow = (
            torch.nn.Linear(width, 4 * width),
            torch.nn.Linear(4 * width, width),
        )

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = (
            self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        y = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(torch.nn.functional.gelu(self.widen(self.norm2(x))))


class TorchGPT(torch.nn.Module):
    def __init__(self, c: GPTConfig) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(c.vocabulary, c.width)
        self.positions = torch.nn.Embedding(c.context, c.width)
        self.blocks = torch.nn.ModuleList(TorchBlock(c.width, c.heads) for _ in range(c.layers))
        self.norm = torch.nn.LayerNorm(c.width)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.linear(self.norm(x), self.tokens.weight)


def nested_step() -> Callable[..., Any]:
    eg.manual_seed(0)
    model = GPT(CONFIG)
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-4)

    @eg.compile
    def step(tokens: eg.Tensor, targets: eg.Tensor, offsets: eg.Tensor) -> eg.Tensor:
        x, y = (nested.nested_tensor_from_jagged(v, offsets) for v in (tokens, targets))
        loss = model.loss(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def dense_step() -> Callable[..., Any]:
    eg.manual_seed(0)
    model = GPT(CONFIG)
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-4)

    @eg.compile
    def step(tokens: eg.Tensor, targets: eg.Tensor) -> eg.Tensor:
        loss = model.loss(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def torch_step() -> Callable[..., Any]:
    model = TorchGPT(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(tokens: Any, targets: Any) -> Any:
        scores = model(tokens).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(scores, targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def batches(rng: np.random.Generator, count: int) -> dict[str, tuple[Any, ...]]:
    """The same sequences for each of the three, of as many tokens."""
    sequences = [rng.integers(0, 512, n + 1) for n in rng.integers(16, 513, count)]
    pairs = [(eg.tensor(s[:-1]), eg.tensor(s[1:])) for s in sequences]
    x, y = nested.collate(pairs, multiple=MULTIPLE, fill=(0, -100))
    total = sum(len(s) - 1 for s in sequences)
    flat = np.concatenate(sequences)[: count * (total // count)].reshape(count, -1)
    pad = torch.nn.utils.rnn.pad_sequence
    columns = [[torch.tensor(s[:-1]) for s in sequences], [torch.tensor(s[1:]) for s in sequences]]
    return {
        "nested": (x.values(), y.values(), x.offsets()),
        "dense": (eg.tensor(flat), eg.tensor(flat)),
        "padded": (pad(columns[0], True), pad(columns[1], True, -100)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=16)
    options = parser.parse_args()
    torch.set_num_threads(1)
    eg.set_num_threads(1)
    given = batches(np.random.default_rng(0), options.sequences)
    steps = {"nested": nested_step(), "dense": dense_step(), "padded": torch_step()}
    best = dict.fromkeys(steps, float("inf"))
    for number in range(options.rounds + 1):
        for name, step in steps.items():
            start = time.process_time()
            step(*given[name]).item()
            if number:
                best[name] = min(best[name], time.process_time() - start)
    for name, seconds in best.items():
        tokens = given[name][0].numel()
        print(
            f"{name:7} {tokens:6} tokens {seconds * 1e3:8.1f} ms   {seconds / best['nested']:.2f}"
        )


if __name__ == "__main__":
    main()
