"""A training step of a GPT in float32 and in mixed precision, in one run:

    python bench/mixed.py [--rounds N] [--steps N]

Compiled and eager evergrad, and PyTorch (eager, fused attention) under its autocast; the least
processor time of each in alternating rounds on one thread. Then the loss after as many steps on a
text that repeats itself, and the bytes that the memory plan of a compiled step has.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import evergrad as eg
from evergrad.models.gpt import GPT, GPTConfig

try:
    import torch
    from nested import TorchGPT
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

CONFIG = GPTConfig(vocabulary=256, context=128, layers=4, heads=4, width=256)
SEQUENCES = 8
PRECISIONS = ("float32", "bfloat16", "float16")


def ours(precision: str) -> Callable[..., Any]:
    eg.manual_seed(0)
    model = GPT(CONFIG)
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-3)
    narrow = precision != "float32"
    kind = getattr(eg, precision if narrow else "bfloat16")

    def step(x: Any, y: Any) -> Any:
        with eg.autocast("cpu", kind, enabled=narrow):
            loss = model.loss(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def theirs(precision: str) -> Callable[..., Any]:
    torch.manual_seed(0)
    model = TorchGPT(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    narrow = precision != "float32"
    kind = getattr(torch, precision if narrow else "bfloat16")

    def step(x: Any, y: Any) -> Any:
        with torch.autocast("cpu", kind, enabled=narrow):
            scores = model(x).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(scores, y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def times(steps: dict[str, tuple[Callable[..., Any], Any]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(steps, float("inf"))
    for number in range(rounds + 2):
        for name, (step, given) in steps.items():
            start = time.process_time()
            step(*given).item()
            if number >= 2:
                best[name] = min(best[name], time.process_time() - start)
    return best


def batch(number: int, text: Any) -> Any:
    starts = np.random.default_rng(number).integers(0, len(text) - CONFIG.context - 1, SEQUENCES)
    return np.stack([text[s : s + CONFIG.context + 1] for s in starts])


def final_loss(precision: str, steps: int) -> tuple[float, int]:
    """The mean loss of the last ten steps, and the bytes of the plan."""
    text = np.tile(np.random.default_rng(0).integers(0, 256, 4096), 4)
    step = eg.compile(ours(precision))
    losses = []
    for number in range(steps):
        rows = eg.tensor(batch(number, text))
        losses.append(float(step(rows[:, :-1], rows[:, 1:]).item()))
    return float(np.mean(losses[-10:])), int(step.plan(rows[:, :-1], rows[:, 1:]).peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    torch.set_num_threads(1)
    eg.set_num_threads(1)
    rows = batch(0, np.random.default_rng(1).integers(0, 256, 4096))
    x, y = rows[:, :-1].copy(), rows[:, 1:].copy()
    mine, other = [(ns.tensor(x), ns.tensor(y)) for ns in (eg, torch)]
    steps: dict[str, tuple[Callable[..., Any], Any]] = {}
    for precision in PRECISIONS:
        steps[f"compiled {precision}"] = eg.compile(ours(precision)), mine
        steps[f"eager {precision}"] = ours(precision), mine
        steps[f"PyTorch {precision}"] = theirs(precision), other
    best = times(steps, options.rounds)
    for name, seconds in best.items():
        kind = name.split()[0]
        share = seconds / best[f"{kind} float32"]
        print(f"{name:18} {seconds * 1e3:8.1f} ms   {share:.2f} of float32")
    for precision in PRECISIONS[:2]:
        loss, peak = final_loss(precision, options.steps)
        print(
            f"{precision:9} loss after {options.steps} steps {loss:.4f}, plan {peak / 1e6:.1f} MB"
        )


if __name__ == "__main__":
    main()
