"""Checks of whole trainings: compiled as eager, beside other threads as alone, memory flat."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

import evergrad
from evergrad import memory, nn, optim
from evergrad.core.rng.default_generator import manual_seed
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.testing.subject import Array, ensure, ensure_close

_FEATURES, _WIDTH, _CLASSES, _BATCH = 6, 24, 5, 16
# Losses of float64 trainings whose sums are added in another order.
_TOLERANCE = 1e-9
# Gradients and optimizer state are made in the first step, which the second finds there.
_WARM_UP = 2


@dataclass
class Training:
    """A small classifier with something of everything, and one step of AdamW on it."""

    model: nn.Module
    step: Callable[[Tensor, Tensor], Tensor]
    x: Tensor
    y: Tensor

    def run(self, steps: int) -> list[float]:
        """Train; gives the losses."""
        return [self.step(self.x, self.y).item() for _ in range(steps)]

    def parameters(self) -> list[Array]:
        return [np.array(p.detach().array()) for p in self.model.parameters()]


def start_training(seed: int, compiled: bool) -> Training:
    """A new training that depends on its seed alone."""
    manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(_FEATURES, _WIDTH), nn.LayerNorm(_WIDTH), nn.GELU(), nn.Dropout(0.1),
        nn.Linear(_WIDTH, _CLASSES),
    ).double()  # fmt: skip
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found: Tensor = loss.detach()
        return found

    x = evergrad.randn(_BATCH, _FEATURES, dtype=evergrad.float64)
    y = evergrad.randint(0, _CLASSES, (_BATCH,))
    return Training(model, evergrad.compile(step) if compiled else step, x, y)


def check_compiled_training(steps: int = 20) -> None:
    """A compiled training goes the way of the eager one."""
    eager, compiled = (start_and_run(0, steps, compiled) for compiled in (False, True))
    for number, (a, b) in enumerate(zip(compiled, eager, strict=True)):
        what = "the losses" if number == 0 else f"parameter {number - 1}"
        ensure_close(f"{what} after {steps} compiled steps", a, b, _TOLERANCE)


def check_threads(compiled: bool, steps: int = 20, count: int = 2) -> None:
    """Trainings side by side in threads give, to the bit, what each gives alone."""
    alone = [start_and_run(seed, steps, compiled) for seed in range(count)]
    barrier = threading.Barrier(count)

    def train(seed: int) -> list[Array]:
        barrier.wait()
        return start_and_run(seed, steps, compiled)

    with ThreadPoolExecutor(count) as threads:
        beside = list(threads.map(train, range(count)))
    for seed, (found, expected) in enumerate(zip(beside, alone, strict=True)):
        same = all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))
        ensure(same, f"thread {seed}: another result than the same training alone")


def start_and_run(seed: int, steps: int, compiled: bool) -> list[Array]:
    """A whole training: its losses, then its parameters."""
    training = start_training(seed, compiled)
    losses = np.array(training.run(steps))
    return [losses, *training.parameters()]


def check_steady(compiled: bool, steps: int = 50) -> None:
    """Every step ends with the live bytes that the step before it ended with."""
    training = start_training(0, compiled)
    with memory.steady(warmup=_WARM_UP) as steady:
        for _ in range(steps):
            training.run(1)
            steady.step()
