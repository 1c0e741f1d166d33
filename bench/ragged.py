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


# An operation, and whether the second operand has the lengths in the other order, so that every
# pair is extended to a common length; ``None`` for operations of one operand.
OPERATIONS = [
    *((name, reverse) for name in ("add", "sub", "mul", "inner", "convolve", "correlate")
      for reverse in (False, True)),
    ("norm", None), ("sum", None), ("neg", None),
]  # fmt: skip
WAYS = ("forward", "backward", "compiled", "compiled backward")


def by_elements(rounds: int) -> None:
    """Each operation alone and with the gradients of all operands, eager and compiled. Every
    batch has a compiled function of its own: one function would look for its program first."""
    print("\n[2, 3, 1000, 5, 2000] times a scale beside five of the longest, microseconds")
    print(f"{'':22}" + "".join(f"{way:>25}" for way in WAYS))
    for scale in (1, 10, 100):
        lengths = [n * scale for n in LENGTHS["two short, two long"]]
        longest = [max(lengths)] * len(lengths)
        for name, reverse in OPERATIONS:
            call = getattr(ragged, name)
            second = [] if reverse is None else [lengths[::-1] if reverse else lengths]
            own = [random_batch(n) for n in (lengths, *second)]
            steps = [step for pair in zip(
                ways_of(call, own), ways_of(call, [random_batch(longest) for _ in own]), strict=True
            ) for step in pair]  # fmt: skip
            for step in steps * (20 if scale == 1 else 5):  # first calls are traced and compared
                step()
            found = medians(steps, rounds)
            label = f"x {scale:<4}{name}{' reversed' if reverse else ''}"
            print(f"{label:22}" + "".join(
                f"{1e6 * a:8.1f} of{1e6 * b:8.1f} {a / b:5.2f}"
                for a, b in zip(found[::2], found[1::2], strict=True)
            ), flush=True)  # fmt: skip


def ways_of(call: Callable[..., Any], operands: list[Any]) -> list[Callable[[], Any]]:
    detached = [operand.detach() for operand in operands]
    return [
        partial(call, *detached), training(call, *operands),
        partial(eg.compile(partial(applied, call)), *detached),
        partial(eg.compile(partial(gradients, call)), *operands),
    ]  # fmt: skip


def applied(call: Callable[..., Any], *operands: Any) -> Any:
    return call(*operands)


def beside_dense(rounds: int) -> None:
    """One eager addition, recorded for backward, beside a dense one of as many elements."""
    lengths = LENGTHS["two short, two long"]
    a, b = random_batch(lengths), random_batch(lengths)
    x, y = a.elements, b.elements
    own, dense = medians([lambda: ragged.add(a, b), lambda: x + y], rounds)
    print(f"\none eager addition {own * 1e6:.1f} us, of dense tensors with as many elements "
          f"{dense * 1e6:.1f} us")  # fmt: skip


def in_a_program(rounds: int) -> None:
    """What an addition costs in a compiled program, without the call: a chain of 129 less one of 1,
    divided by 128; the least of many rounds."""
    print("\nan addition in a compiled program, in nanoseconds, beside five of the longest")
    for name, order in (("add", 1), ("add reversed", -1)):
        found = []
        for lengths in (LENGTHS["two short, two long"], [2000] * 5):
            a, b = (random_batch(n).detach() for n in (lengths, lengths[::order]))
            calls = [partial(eg.compile(partial(repeated, count)), a, b) for count in (129, 1)]
            many, single = (min(medians([c], 1)[0] for _ in range(4 * rounds)) for c in calls)
            found.append((many - single) / 128)
        own, longest = (1e9 * seconds for seconds in found)
        print(f"{name:13} {own:6.0f} of {longest:6.0f}  {own / longest:5.2f}")


def repeated(count: int, a: Any, b: Any) -> Any:
    for _ in range(count):
        a = ragged.add(a, b)
    return a


def random_batch(lengths: list[int]) -> Any:
    rng = np.random.default_rng(1)
    return ragged.batch(
        [rng.standard_normal(n).astype(np.float32) for n in lengths], requires_grad=True
    )


def gradients(call: Callable[..., Any], *operands: Any) -> Any:
    out = call(*operands)
    out = out.elements if isinstance(out, ragged.Batch) else out
    return eg.autograd.grad((out * out).sum(), [operand.elements for operand in operands])


def ways(rounds: int) -> None:
    print("\none convolution      direct us   transform us   chosen")
    for n, m in [(64, 64), (512, 512), (4096, 64), (4096, 4096), (65536, 64), (65536, 4096)]:
        a, b = (np.random.default_rng(2).standard_normal((1, k)) for k in (n, m))
        size = n + m - 1
        shapes = {"a_shapes": ((n,),), "b_shapes": ((m,),), "out_shapes": ((size,),)}
        direct, transform, chosen = medians(
            [
                partial(rows._by_dots, a, b, (0,), (size,)),
                partial(rows._by_transforms, [(a, b)], (rows._transform_length(size),)),
                partial(rows._evaluate, a, b, correlate=False, **shapes),
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
    beside_dense(rounds)
    in_a_program(rounds)
    ways(rounds)


if __name__ == "__main__":
    main()
