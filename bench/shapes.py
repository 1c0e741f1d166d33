"""What a new shape costs a compiled training step: time, kernels and memory.

    python bench/shapes.py [--shapes N] [--only NAME] [--json FILE]

For an MLP 256-2048-2048-1, a small CNN, an LSTM and a GPT: N shapes (batch sizes, context lengths)
one after the other. Prints, from the tenth shape on, the time to build a program (tracing, passes,
planning) and to bind it, as wall-clock and processor time; the kernels compiled; and resident
memory beside that of the largest shape alone, measured in another process. Programs on disk are not
used: each run begins with an empty folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Step = Callable[..., Any]
Make = Callable[[int], tuple[Any, ...]]


def training(model: Any, optimizer: Any, loss_of: Callable[..., Any]) -> Step:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def mlp() -> tuple[Step, Make]:
    import evergrad as eg
    from evergrad import nn

    layers = nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1)
    model = nn.Sequential(*layers)
    optimizer = eg.optim.Adam(model.parameters(), lr=1e-3)
    step = training(model, optimizer, nn.functional.mse_loss)
    return step, lambda n: (eg.randn(n, 256), eg.randn(n, 1))


def cnn() -> tuple[Step, Make]:
    import evergrad as eg
    from evergrad import nn

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 49, 10),
    )  # fmt: skip
    optimizer = eg.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    step = training(model, optimizer, nn.functional.cross_entropy)
    return step, lambda n: (eg.randn(n, 1, 28, 28), eg.randint(0, 10, (n,)))


def lstm() -> tuple[Step, Make]:
    import evergrad as eg
    from evergrad import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(16, 32, batch_first=True)
            self.head = nn.Linear(32, 1)

        def forward(self, x: Any) -> Any:
            return self.head(self.layer(x)[0][:, -1])

    model = Model()
    optimizer = eg.optim.Adam(model.parameters(), lr=1e-3)
    step = training(model, optimizer, nn.functional.mse_loss)
    return step, lambda n: (eg.randn(8, n, 16), eg.randn(8, 1))


def gpt() -> tuple[Step, Make]:
    import evergrad as eg
    from evergrad.models.gpt import GPT, GPTConfig

    model = GPT(GPTConfig(vocabulary=96, context=512, layers=2, heads=4, width=64))
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(logits: Any, y: Any) -> Any:
        return eg.nn.functional.cross_entropy(logits.reshape(-1, 96), y.reshape(-1))

    step = training(model, optimizer, loss_of)
    return step, lambda n: (eg.randint(0, 96, (4, n)), eg.randint(0, 96, (4, n)))


NETS: dict[str, Callable[[], tuple[Step, Make]]] = {
    "mlp": mlp, "cnn": cnn, "lstm": lstm, "gpt": gpt,
}  # fmt: skip


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def largest_alone(name: str, shapes: int) -> dict[str, float]:
    """Resident memory after steps of the largest shape."""
    import evergrad as eg

    step, make = NETS[name]()
    compiled, given = eg.compile(step), make(shapes)
    for _ in range(3):
        compiled(*given)
    return {"resident": resident_mb()}


def all_shapes(name: str, shapes: int) -> dict[str, float]:
    """Seconds, kernels and memory over all shapes."""
    import evergrad as eg
    from evergrad.compiler.native import jit

    step, make = NETS[name]()
    compiled = eg.compile(step)
    wall: list[float] = []
    processor: list[float] = []
    kernels = most = 0.0
    for n in range(1, shapes + 1):
        given = make(n)
        start, cpu = time.perf_counter(), time.thread_time()
        compiled.plan(*given)
        planned, used = time.perf_counter() - start, time.thread_time() - cpu
        first, first_cpu = _timed(compiled, given)
        again, again_cpu = min(_timed(compiled, given) for _ in range(2))
        wall.append(planned + max(first - again, 0))
        processor.append(used + max(first_cpu - again_cpu, 0))
        if n == 10:
            kernels = len(jit._addresses)
        most = max(most, resident_mb())
    return {
        "first": wall[0],
        "wall": statistics.median(wall[10:]),
        "worst": sorted(wall[10:])[int(0.95 * len(wall[10:]))],
        "processor": statistics.median(processor[10:]),
        "kernels": len(jit._addresses) - kernels,
        "resident": most,
    }


def _timed(compiled: Step, given: tuple[Any, ...]) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.thread_time()
    compiled(*given)
    return time.perf_counter() - start, time.thread_time() - cpu


def in_process(kind: str, name: str, shapes: int) -> dict[str, float]:
    """Run a measurement in a process of its own, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "EVERGRAD_KERNEL_CACHE": folder}
        command = [sys.executable, "-W", "ignore", __file__, kind, name, str(shapes)]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=100)
    parser.add_argument("--only", choices=NETS)
    parser.add_argument("--json")
    options = parser.parse_args()
    found = {}
    print(f"{options.shapes} shapes; ms per new shape from the tenth on, MB resident")
    print(
        f"{'':6}{'first':>8}{'median':>8}{'95 %':>8}{'cpu':>8}{'kernels':>9}{'MB':>8}{'alone':>8}"
    )
    for name in [options.only] if options.only else NETS:
        each = in_process("all_shapes", name, options.shapes)
        alone = in_process("largest_alone", name, options.shapes)["resident"]
        found[name] = {**each, "alone": alone}
        times = [1e3 * each[key] for key in ("first", "wall", "worst", "processor")]
        print(
            f"{name:6}{times[0]:8.0f}{times[1]:8.1f}{times[2]:8.1f}{times[3]:8.1f}"
            f"{each['kernels']:9.0f}{each['resident']:8.0f}{alone:8.0f}",
            flush=True,
        )
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] in ("all_shapes", "largest_alone"):
        print(json.dumps(globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
    else:
        main()
