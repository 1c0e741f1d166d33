"""Values of different lengths beside padding them in PyTorch, in one run.

    python bench/ragged.py [--rounds N]

Both libraries get one thread; what is compared is processor time, in alternating rounds. PyTorch
pads every value to the longest (``pad_sequence``, once, outside of what is measured) and adds or
convolves the padded batch; the ragged batch computes on the elements there are. A table shows that
five values cost by their elements, not as five of the longest; the last one has both ways of one
convolution, which the cost model chooses between.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from timing import medians

import evergrad as eg
from evergrad import ragged
from evergrad.ops.rows import convolve as rows

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

LENGTHS = {
    "two short, two long": [2, 3, 1000, 5, 2000],
    "64 of 16..512": list(np.random.default_rng(0).integers(16, 512, 64)),
    "256 powers": list((4000 / np.arange(1, 257)).astype(int) + 1),
}


def padded(values: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(v) for v in values], batch_first=True)


def torch_convolve(a: Any, b: Any) -> Any:
    """Each row of one batch with that of the other: grouped convolution of padded rows."""
    count, n = b.shape
    return torch.nn.functional.conv1d(a[None], b.flip(1)[:, None], groups=count, padding=n - 1)[0]


def training(call: Callable[..., Any], *operands: Any) -> Callable[[], Any]:
    """The operation and the gradients of both operands."""

    def step() -> None:
        out = call(*operands)
        out = out.elements if isinstance(out, ragged.Batch) else out
        (out * out).sum().backward()
        for operand in operands:
            operand.grad = None

    return step


def compare(name: str, lengths: list[int], rounds: int) -> None:
    rng = np.random.default_rng(1)
    first = [rng.standard_normal(n).astype(np.float32) for n in lengths]
    second = [rng.standard_normal(max(1, n // 4)).astype(np.float32) for n in reversed(lengths)]
    a, b = (ragged.batch(v, requires_grad=True) for v in (first, second))
    x, y = (padded(v).requires_grad_() for v in (first, second))
    wide = torch.nn.functional.pad(y.detach(), (0, x.shape[1] - y.shape[1])).requires_grad_()
    cases = {
        "add": (training(ragged.add, a, b), training(torch.add, x, wide)),
        "convolve": (training(ragged.convolve, a, b), training(torch_convolve, x, y)),
    }
    for operation, (ours, theirs) in cases.items():
        mine, other = medians([ours, theirs], rounds)
        print(f"{name:22} {operation:9} {mine * 1e6:9.0f} us  PyTorch padded {other * 1e6:9.0f} us"
              f"  {other / mine:6.2f} x")  # fmt: skip


def by_elements(rounds: int) -> None:
    print("\nvalues of [2, 3, 1000, 5, 2000] times a scale, beside five of the longest: 0.30 of it")
    for scale in (1, 10, 100):
        lengths = [n * scale for n in LENGTHS["two short, two long"]]
        for name, call in (("add", ragged.add), ("convolve", ragged.convolve)):
            steps = []
            for given in (lengths, [max(lengths)] * len(lengths)):
                rng = np.random.default_rng(1)
                pair = [
                    ragged.batch(
                        [rng.standard_normal(n).astype(np.float32) for n in given],
                        requires_grad=True,
                    )
                    for _ in range(2)
                ]
                steps.append(training(call, *pair))
            own, longest = medians(steps, rounds)
            print(f"x {scale:<4} {name:9} {own * 1e6:9.0f} us of {longest * 1e6:9.0f} us"
                  f"  {own / longest:5.2f}")  # fmt: skip


def ways(rounds: int) -> None:
    print("\none convolution      direct us   transform us   chosen")
    for n, m in [(64, 64), (512, 512), (4096, 64), (4096, 4096), (65536, 64), (65536, 4096)]:
        a, b = (np.random.default_rng(2).standard_normal((1, k)) for k in (n, m))
        size = n + m - 1
        direct, transform, chosen = medians(
            [
                partial(rows._by_dots, a, b, 0, size),
                partial(rows._by_transforms, a, b, (0,), (size,)),
                partial(rows.convolved, a, b, (0,), (size,)),
            ],
            rounds,
        )
        print(f"{n:7} x {m:<7} {direct * 1e6:12.0f} {transform * 1e6:14.0f} {chosen * 1e6:8.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    eg.set_num_threads(1)
    for name, lengths in LENGTHS.items():
        compare(name, [int(n) for n in lengths], rounds)
    by_elements(rounds)
    ways(rounds)


if __name__ == "__main__":
    main()
