"""Training steps on 1,000 rows of tables of growing size, with row-sparse gradients:

    python bench/sparse_rows.py [--rounds N]

One thread. Time (processor, least of the rounds) and peak bytes must follow the rows that are
touched, not the table; PyTorch's time for the same step stands beside it where it is installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
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


def step_of(
    ns: Any, name: str, rows: int, compiled: bool = False, width: int = WIDTH,
    touched: int = TOUCHED,
) -> Callable[[], None]:  # fmt: skip
    layer = ns.nn.Embedding(rows, width, sparse=True, _weight=ns.zeros(rows, width))
    optimizer = OPTIMIZERS[name](ns, list(layer.parameters()))
    index = ns.randint(0, rows, (touched,))

    def step(index: Any) -> None:
        ((layer(index) + 1) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    run = ns.compile(step) if compiled else step
    for _ in range(10):  # a program is traced again and compared in some of the first calls
        run(index)
    return partial(run, index)


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
    eg.set_num_threads(1)
    if torch is not None:
        torch.set_num_threads(1)
    for name in OPTIMIZERS:
        for rows in (10_000, 100_000, 1_000_000):
            step = step_of(eg, name, rows)
            mine = least(step, rounds)
            with memory.track() as tracked:
                step()
            held = (tracked.peak - tracked.live_at_start) / 1e6
            program = least(step_of(eg, name, rows, compiled=True), rounds)
            line = f"{name:10} {rows:9} rows {mine:7.2f} ms {held:6.2f} MB, compiled {program:.2f}"
            if torch is not None:
                line += f"   PyTorch {least(step_of(torch, name, rows), rounds):7.2f} ms"
            print(line)
    sizes = {"width": 32, "touched": 1024}
    program = least(step_of(eg, "SparseAdam", 500_000, compiled=True, **sizes), rounds)
    line = f"SparseAdam, 1,024 of 500,000 rows of 32: compiled {program:.2f} ms"
    if torch is not None:
        line += f"   PyTorch {least(step_of(torch, 'SparseAdam', 500_000, **sizes), rounds):.2f} ms"
    print(line)


if __name__ == "__main__":
    main()
