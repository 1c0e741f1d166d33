"""Convolutions and their gradients on one thread: compiled programs and PyTorch, in one run.

    python bench/conv.py [--only WORD] [--rounds N] [--write]

The convolutions are those of the workloads, of ResNets at 32x32 and 224x224 and of networks with
groups. What is compared is processor time, which a busy machine disturbs least; rounds alternate,
medians are compared. Prints GFLOP/s of the result, the gradient of the input and that of the
weight, and the ratio of ours to PyTorch's. ``--write`` keeps the table in results/conv.txt.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from timing import medians

import evergrad
from evergrad.nn import functional
from evergrad.train.directory import write_text

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

RESULTS = Path(__file__).parent / "results" / "conv.txt"
PARTS = ("result", "input", "weight")


class Case(NamedTuple):
    """A convolution of square images with square kernels, padded by half of these."""

    what: str
    batch: int
    channels: int
    outputs: int
    size: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1

    @property
    def label(self) -> str:
        image = f"{self.batch}x{self.channels}x{self.size}"
        form = f"{image} to {self.outputs}, {self.kernel}x{self.kernel}"
        stride = f" /{self.stride}" if self.stride > 1 else ""
        groups = f" in {self.groups}" if self.groups > 1 else ""
        return f"{self.what:<16} {form}{stride}{groups}"

    @property
    def options(self) -> dict[str, int]:
        return {"stride": self.stride, "padding": self.kernel // 2, "groups": self.groups}


CASES = [
    Case("resblock", 8, 64, 64, 56),
    Case("lenet64", 64, 1, 6, 28, 5),
    Case("lenet64", 64, 6, 16, 14, 5),
    Case("lenet1", 1, 1, 6, 28, 5),
    Case("lenet1", 1, 6, 16, 14, 5),
    Case("resnet18 at 32", 8, 3, 64, 32),
    Case("resnet18 at 32", 8, 64, 128, 32, 3, 2),
    Case("resnet18 at 32", 8, 128, 128, 16),
    Case("resnet18 at 32", 8, 256, 256, 8),
    Case("resnet18 at 32", 8, 512, 512, 4),
    Case("resnet50 at 224", 2, 3, 64, 224, 7, 2),
    Case("resnet50 at 224", 2, 64, 256, 56, 1),
    Case("resnet50 at 224", 2, 256, 64, 56, 1),
    Case("resnet50 at 224", 2, 256, 512, 56, 1, 2),
    Case("resnet50 at 224", 2, 128, 128, 56, 3, 2),
    Case("resnet50 at 224", 2, 256, 256, 14),
    Case("resnet50 at 224", 2, 1024, 256, 14, 1),
    Case("resnet50 at 224", 2, 512, 2048, 7, 1),
    Case("depthwise", 4, 64, 64, 56, 3, 1, 64),
    Case("depthwise", 4, 64, 64, 56, 3, 2, 64),
    Case("depthwise", 4, 64, 64, 28, 7, 1, 64),
    Case("groups", 4, 128, 128, 28, 3, 1, 32),
    Case("groups", 4, 128, 128, 28, 3, 1, 4),
]


def arrays(case: Case) -> list[Any]:
    """An image, a weight and a gradient of the result."""
    source = np.random.default_rng(0)
    out = (case.size + 2 * (case.kernel // 2) - case.kernel) // case.stride + 1
    shapes = (
        (case.batch, case.channels, case.size, case.size),
        (case.outputs, case.channels // case.groups, case.kernel, case.kernel),
        (case.batch, case.outputs, out, out),
    )
    return [source.standard_normal(shape, np.float32) for shape in shapes]


def ours(case: Case, part: str) -> Callable[..., Any]:
    """A compiled part of a convolution."""

    def compute(x: Any, weight: Any, gradient: Any) -> Any:
        if part == "result":
            return functional.conv2d(x, weight, **case.options)
        wanted = (x if part == "input" else weight).requires_grad_()
        out = functional.conv2d(x, weight, **case.options)
        return evergrad.autograd.grad(out, wanted, gradient)[0]

    return evergrad.compile(compute)


def theirs(case: Case, part: str) -> Callable[..., Any]:
    """The same part as PyTorch computes it, without its graph."""
    sides = [[n] * 2 for n in (case.stride, case.kernel // 2, 1)]
    mask = [part == "input", part == "weight", False]

    def compute(x: Any, weight: Any, gradient: Any) -> Any:
        if part == "result":
            return torch.nn.functional.conv2d(x, weight, **case.options)
        found = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, *sides, False, [0, 0], case.groups, mask
        )
        return found[0 if part == "input" else 1]

    return compute


def row(case: Case, rounds: int) -> tuple[str, list[float]]:
    """A line of the table, and the ratios to PyTorch."""
    given = arrays(case)
    mine = [evergrad.tensor(a) for a in given]
    peer = [torch.from_numpy(a) for a in given]
    work = 2e-9 * given[2].size * given[1][0].size
    speeds, ratios = "", []
    for part in PARTS:
        calls = [partial(ours(case, part), *mine), partial(theirs(case, part), *peer)]
        own, other = medians(calls, rounds)
        speeds += f"{work / own:>9.1f}{work / other:>9.1f}{other / own:>7.2f}"
        ratios.append(other / own)
    return f"{case.label:<46}{speeds}", ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="convolutions whose label contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help=f"keep the table in {RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    evergrad.set_num_threads(1)
    lines = [
        "GFLOP/s on one thread (processor time): ours, PyTorch's and their ratio",
        " " * 46 + "".join(f"{part:>9}{'PyTorch':>9}{'ratio':>7}" for part in PARTS),
    ]
    print(*lines, sep="\n")
    ratios: list[float] = []
    for case in CASES:
        if options.only in case.label:
            line, found = row(case, options.rounds)
            ratios += found
            lines.append(line)
            print(line, flush=True)
    if ratios:
        mean = statistics.geometric_mean(ratios)
        lines.append(f"geometric mean of the ratio to PyTorch: {mean:.2f}")
        print(lines[-1])
    if options.write:
        write_text(RESULTS, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
