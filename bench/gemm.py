"""Matrix products on one thread: our own kernels, OpenBLAS and PyTorch, in one run.

    python bench/gemm.py [--only WORD] [--rounds N] [--write]

The products are those of the workloads' training steps, and squares. What is compared is processor
time, which a busy machine disturbs least; rounds alternate, medians are compared. Prints GFLOP/s,
and the ratio of our kernels to the others. ``--write`` keeps the table in results/gemm.txt.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from timing import medians

from evergrad.compiler.codegen.ir_builder import vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.blocked import blocked_kernel, packing_kernel
from evergrad.compiler.kernels.gemm.microkernel import tile_for
from evergrad.compiler.kernels.gemm.openblas import blas_kernel
from evergrad.compiler.kernels.gemm.select import Product
from evergrad.compiler.kernels.gemm.skinny import skinny_kernel
from evergrad.compiler.kernels.gemm.tiling import tiling_of
from evergrad.compiler.native import jit
from evergrad.compiler.runtime.thread_pool import Run
from evergrad.compiler.schedule.buffers import address_of
from evergrad.core import dtypes
from evergrad.train.directory import write_text

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

Array = np.ndarray[Any, Any]
RESULTS = Path(__file__).parent / "results" / "gemm.txt"


class Case(NamedTuple):
    """A product, or a batch of them; ``t`` in ``form`` says which factors lie transposed."""

    what: str
    m: int
    n: int
    k: int
    form: str = "nn"
    batch: int = 1

    @property
    def label(self) -> str:
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{self.what:<22} {batch}{self.m}x{self.n}x{self.k} {self.form}"


CASES = [
    Case("gpt_small up", 2048, 768, 192, "nt"),
    Case("gpt_small up, dx", 2048, 192, 768, "nn"),
    Case("gpt_small up, dw", 768, 192, 2048, "tn"),
    Case("gpt_small down", 2048, 192, 768, "nt"),
    Case("gpt_small down, dx", 2048, 768, 192, "nn"),
    Case("gpt_small down, dw", 192, 768, 2048, "tn"),
    Case("gpt_small qkv", 2048, 576, 192, "nt"),
    Case("gpt_small head", 2048, 65, 192, "nt"),
    Case("gpt_small scores", 128, 128, 32, "nt", 96),
    Case("gpt_small values", 128, 32, 128, "nn", 96),
    Case("gpt_small dv", 128, 32, 128, "tn", 96),
    Case("gpt_tiny up", 1024, 256, 64, "nt"),
    Case("gpt_tiny up, dx", 1024, 64, 256, "nn"),
    Case("gpt_tiny up, dw", 256, 64, 1024, "tn"),
    Case("gpt_tiny down, dw", 64, 256, 1024, "tn"),
    Case("gpt_tiny qkv, dw", 192, 64, 1024, "tn"),
    Case("gpt_tiny out, dw", 64, 64, 1024, "tn"),
    Case("gpt_tiny scores", 64, 64, 32, "nt", 32),
    Case("gpt_tiny values", 64, 32, 64, "nn", 32),
    Case("gpt_med up", 2048, 1536, 384, "nt"),
    Case("gpt_med up, dx", 2048, 384, 1536, "nn"),
    Case("gpt_med up, dw", 1536, 384, 2048, "tn"),
    Case("dit up", 1024, 1024, 256, "nt"),
    Case("dit up, dx", 1024, 256, 1024, "nn"),
    Case("dit up, dw", 1024, 256, 1024, "tn"),
    Case("dit down, dw", 256, 1024, 1024, "tn"),
    Case("mlp10m", 128, 2048, 2048, "nt"),
    Case("mlp10m, dx", 128, 2048, 2048, "nn"),
    Case("mlp10m, dw", 2048, 2048, 128, "tn"),
    Case("mlp10m first", 128, 2048, 784, "nt"),
    Case("mlp10m last", 128, 10, 2048, "nt"),
    Case("mlp10m last, dx", 128, 2048, 10, "nn"),
    Case("mlp10m last, dw", 10, 2048, 128, "tn"),
    Case("lenet64", 64, 120, 400, "nt"),
    Case("lenet64 last", 64, 10, 84, "nt"),
    Case("lenet1", 1, 120, 400, "nt"),
    Case("lenet1, dx", 1, 400, 120, "nn"),
    Case("lenet1, dw", 120, 400, 1, "tn"),
    Case("tiny_mlp", 32, 16, 16, "nt"),
    Case("tiny_mlp last", 32, 1, 16, "nt"),
    Case("lstm", 32, 512, 128, "nt"),
    Case("few rows", 4, 1024, 1024, "nn"),
    Case("few rows", 4, 1024, 1024, "nt"),
    Case("few rows", 8, 768, 192, "nt"),
    Case("few rows, dx", 8, 192, 768, "nn"),
    Case("few rows, dw", 768, 192, 8, "tn"),
    Case("few rows", 16, 2048, 2048, "nt"),
    Case("few rows, dx", 16, 2048, 2048, "nn"),
    Case("few rows, dw", 2048, 2048, 16, "tn"),
    Case("few columns", 1024, 4, 1024, "nn"),
    Case("one column", 1024, 1, 1024, "nn"),
    Case("one row", 1, 1024, 1024, "nn"),
    Case("square", 128, 128, 128),
    Case("square", 512, 512, 512),
    Case("square", 1024, 1024, 1024),
    Case("square, dx", 1024, 1024, 1024, "nt"),
    Case("square, dw", 1024, 1024, 1024, "tn"),
    Case("square, both", 512, 512, 512, "tt"),
]


def aligned(shape: tuple[int, ...]) -> Array:
    """Normal numbers at the beginning of a cache line."""
    count = int(np.prod(shape))
    memory = np.empty(count + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    found = memory[start : start + count].reshape(shape)
    found[...] = np.random.default_rng(0).standard_normal(shape)
    return found


def factors(case: Case) -> tuple[Array, Array]:
    found = []
    for (rows, columns), letter in zip(
        ((case.m, case.k), (case.k, case.n)), case.form, strict=True
    ):
        shape = (columns, rows) if letter == "t" else (rows, columns)
        array = aligned((case.batch, *shape) if case.batch > 1 else shape)
        found.append(array.swapaxes(-1, -2) if letter == "t" else array)
    return found[0], found[1]


def program(*calls: tuple[Kernel, list[Array]]) -> Callable[[], None]:
    """Kernels with their arrays, one after the other."""
    tasks: list[tuple[int, int, int]] = []
    ends = []
    kept: list[Any] = []
    for kernel, arrays in calls:
        block = np.array([*map(address_of, arrays), *kernel.numbers], np.int64)
        kept += [block, *arrays]
        code = jit.addresses([kernel])[kernel.name]
        tasks += [(code, address_of(block), chunk) for chunk in range(kernel.chunks)]
        ends.append(len(tasks))
    scratch = max(kernel.scratch for kernel, _ in calls)
    run = Run(tasks, ends, scratch, np.zeros(8, np.int64))

    def call() -> None:
        assert kept  # the arrays live as long as the program
        run.run(1)

    return call


def own_calls(product: Product, given: list[Array]) -> list[tuple[Kernel, list[Array]]]:
    """Our kernels of a product with the arrays they work on."""
    vector = vector_for(dtypes.float32)
    few = skinny_kernel(product, vector, product.n)
    if few is not None:
        return [(few, given)]
    tile = tile_for(vector)
    tiling = tiling_of(product, tile, product.n, may_prepack=True)
    calls = []
    for side in tiling.prepacked:
        number = tiling.operand_of(side)
        packed = aligned((tiling.packed_elements(side),))
        calls.append((packing_kernel(product, tile, tiling, side), [given[number], packed]))
        given = [packed if n == number else array for n, array in enumerate(given)]
    return [*calls, (blocked_kernel(product, tile, tiling), given)]


def implementations(case: Case) -> list[Callable[[], Any]]:
    """Ours, OpenBLAS, PyTorch."""
    a, b = factors(case)
    batch = (case.batch,) if case.batch > 1 else ()
    product = Product(a, b, batch)
    c = aligned((*batch, case.m, case.n))
    ours = program(*own_calls(product, [a, b, c]))
    blas = program((blas_kernel(product, dtypes.float32, case.n), [a, b, c]))
    left, right_, out = (torch.from_numpy(x) for x in (a, b, np.empty_like(c)))
    return [ours, blas, lambda: torch.matmul(left, right_, out=out)]


def row(case: Case, rounds: int) -> tuple[str, float]:
    """A line of the table, and the ratio to PyTorch."""
    ours, blas, peer = medians(implementations(case), rounds)
    work = 2e-9 * case.batch * case.m * case.n * case.k
    speeds = "".join(f"{work / t:>10.1f}" for t in (ours, blas, peer))
    return f"{case.label:<46}{speeds}{blas / ours:>12.2f}{peer / ours:>10.2f}", peer / ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="products whose label contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help=f"keep the table in {RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "GFLOP/s on one thread (processor time)",
        f"{'':<46}{'own':>10}{'OpenBLAS':>10}{'PyTorch':>10}{'/OpenBLAS':>12}{'/PyTorch':>10}",
    ]
    print(*lines, sep="\n")
    ratios = []
    for case in CASES:
        if options.only in case.label:
            line, ratio = row(case, options.rounds)
            ratios.append(ratio)
            lines.append(line)
            print(line, flush=True)
    if ratios:
        lines.append(
            f"geometric mean of the ratio to PyTorch: {statistics.geometric_mean(ratios):.2f}"
        )
        print(lines[-1])
    if options.write:
        write_text(RESULTS, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
