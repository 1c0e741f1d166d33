"""Training steps on 1,000 rows of tables of growing size, with row-sparse gradients:

    python bench/sparse_rows.py [--rounds N]

Time (processor, least of the rounds) and peak bytes must follow the rows that are touched, not the
table; PyTorch's time for the same step stands beside it where it is installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import evergrad as eg
from evergrad import memory

try:
    import torch
except ImportError:
    torch = None

TOUCHED, WIDTH = 1000, 64
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda ns, p: ns.optim.SGD(p, lr=0.1),
    "Adagrad": lambda ns, p: ns.optim.Adagrad(p, lr=0.1),
    "SparseAdam": lambda ns, p: ns.optim.SparseAdam(p, lr=0.1),
}


def step_of(ns: Any, name: str, rows: int) -> Callable[[], None]:
    layer = ns.nn.Embedding(rows, WIDTH, sparse=True, _weight=ns.zeros(rows, WIDTH))
    optimizer = OPTIMIZERS[name](ns, list(layer.parameters()))
    index = ns.randint(0, rows, (TOUCHED,))

    def step() -> None:
        optimizer.zero_grad()
        ((layer(index) + 1) ** 2).sum().backward()
        optimizer.step()

    return step


def least(step: Callable[[], None], rounds: int) -> float:
    step()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return min(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    for name in OPTIMIZERS:
        for rows in (10_000, 100_000, 1_000_000):
            step = step_of(eg, name, rows)
            mine = least(step, rounds)
            with memory.track() as tracked:
                step()
            held = (tracked.peak - tracked.live_at_start) / 1e6
            line = f"{name:10} {rows:9} rows {mine:7.2f} ms {held:6.2f} MB"
            if torch is not None:
                line += f"   PyTorch {least(step_of(torch, name, rows), rounds):7.2f} ms"
            print(line)


if __name__ == "__main__":
    main()
