"""What the engine costs on top of the arithmetic, beside PyTorch in one run.

    python bench/overhead.py [--rounds N] [--json FILE]

Prints, for evergrad and PyTorch: ``smallop`` (1,000 ops in a row on 4 elements, forward and
backward), single small ops forward and forward+backward, the import time, and the bytes a small
tensor takes. Measurements alternate between the two libraries, one thread each, and count processor
time, which a busy machine disturbs least; medians of rounds are compared.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evergrad

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")


def smallop(lib: Any) -> Callable[[], None]:
    x = lib.ones(4, requires_grad=True)

    def step() -> None:
        y = x
        for _ in range(500):
            y = (y * x) + x
        y.sum().backward()
        x.grad = None

    return step


def forward(make: Callable[[Any], Callable[[], Any]]) -> Callable[[Any], Callable[[], None]]:
    def build(lib: Any) -> Callable[[], None]:
        call = make(lib)

        def step() -> None:
            for _ in range(200):
                call()

        return step

    return build


def both_ways(make: Callable[[Any], Callable[[], Any]]) -> Callable[[Any], Callable[[], None]]:
    def build(lib: Any) -> Callable[[], None]:
        call = make(lib)

        def step() -> None:
            for _ in range(200):
                call().sum().backward()

        return step

    return build


def _on(shape: tuple[int, ...], apply: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def make(lib: Any) -> Callable[[], Any]:
        x = lib.ones(*shape, requires_grad=True)
        return lambda: apply(lib, x)

    return make


SINGLE: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "x + x": _on((4,), lambda lib, x: x + x),
    "x * 2.0": _on((4,), lambda lib, x: x * 2.0),
    "exp(x)": _on((4,), lambda lib, x: lib.exp(x)),
    "x.sum()": _on((4,), lambda lib, x: x.sum()),
    "x.mean(dim=1)": _on((4, 4), lambda lib, x: x.mean(dim=1)),
    "x @ x": _on((4, 4), lambda lib, x: x @ x),
    "x.view(16)": _on((4, 4), lambda lib, x: x.view(16)),
    "x.t()": _on((4, 4), lambda lib, x: x.t()),
    "x[0]": _on((4, 4), lambda lib, x: x[0]),
    "x[:, 1:3]": _on((4, 4), lambda lib, x: x[:, 1:3]),
    "cat([x, x])": _on((4, 4), lambda lib, x: lib.cat([x, x])),
    "where(x > 0, x, 0)": _on((4,), lambda lib, x: lib.where(x > 0, x, 0.0)),
    "softmax(x, 1)": _on((4, 4), lambda lib, x: lib.softmax(x, 1)),
}


def timed(step: Callable[[], None]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def compare(build: Callable[[Any], Callable[[], None]], rounds: int) -> tuple[float, float]:
    """Median seconds for (evergrad, PyTorch), measured in turns."""
    steps = [build(evergrad), build(torch)]
    times: list[list[float]] = [[], []]
    for step in steps:
        step()
    for _ in range(rounds):
        for mine, step in zip(times, steps, strict=True):
            mine.append(timed(step))
    return statistics.median(times[0]), statistics.median(times[1])


def import_seconds(name: str, rounds: int) -> float:
    code = f"import time; t = time.process_time(); import {name}; print(time.process_time() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(rounds)
    ]
    return statistics.median(runs)


def bytes_per_tensor(name: str) -> float:
    """Resident bytes for each of 200,000 live tensors of 4 floats, in a process of its own."""
    code = f"""
import resource, {name} as lib
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()
keep = [lib.ones(4) for _ in range(1000)]
before = resident()
keep += [lib.ones(4) for _ in range(200_000)]
print((resident() - before) / 200_000)
"""
    return float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results/overhead.json"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    gc.collect()
    rows: list[tuple[str, float, float, str]] = []

    mine, theirs = compare(smallop, options.rounds)
    rows.append(("smallop, 1000 ops forward+backward", mine * 1e3, theirs * 1e3, "ms"))
    for name, make in SINGLE.items():
        mine, theirs = compare(forward(make), options.rounds)
        rows.append((f"{name} forward", mine / 200 * 1e6, theirs / 200 * 1e6, "us"))
    for name, make in SINGLE.items():
        mine, theirs = compare(both_ways(make), options.rounds)
        rows.append((f"{name} .sum().backward()", mine / 200 * 1e6, theirs / 200 * 1e6, "us"))
    imports = [import_seconds(name, 7) for name in ("evergrad", "torch")]
    rows.append(("import", imports[0], imports[1], "s"))
    rows.append(
        ("bytes per tensor of 4 floats", *map(bytes_per_tensor, ("evergrad", "torch")), "B")
    )

    print(f"{'':42}{'evergrad':>12}{'PyTorch':>12}{'ratio':>9}")
    for label, mine, theirs, unit in rows:
        print(f"{label:42}{mine:12.3f}{theirs:12.3f}{mine / theirs:9.2f}  {unit}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    entries = [dict(zip(("what", "evergrad", "torch", "unit"), row, strict=True)) for row in rows]
    options.json.write_text(json.dumps({"torch": torch.__version__, "rows": entries}, indent=1))


if __name__ == "__main__":
    main()
