"""Factorizations and what is computed by them: evergrad's time over PyTorch's, in one run.

    python bench/linalg.py [--only WORD] [--sizes N,N] [--threads N] [--rounds N] [--write]

Each cell is a ratio, below 1 where evergrad is faster, forward and (after the slash) forward with
backward. Calls alternate. On one thread the medians of processor time are compared, which a busy
machine disturbs least; on several the least wall time. ``--write`` keeps the tables for one thread
and for all in results/linalg.txt.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from timing import medians

import evergrad
from evergrad.train.directory import write_text

try:
    import torch
except ImportError:
    sys.exit("PyTorch 2.13.0 is needed for the comparison: pip install torch==2.13.0")

Array = np.ndarray[Any, Any]
RESULTS = Path(__file__).parent / "results" / "linalg.txt"
DTYPES = ("float32", "float64", "complex64", "complex128")
# At these sizes a round of all element types takes too long.
LARGE, LARGE_DTYPES = 600, ("float32", "float64")


class Case(NamedTuple):
    """A call on matrices: ``any`` ones, or positive-definite ones (``definite``)."""

    name: str
    call: Callable[..., Any]
    inputs: str = "any"
    backward: bool = True


CASES = [
    Case("lu_factor", lambda ns, a: ns.linalg.lu_factor(a)[0]),
    Case("lu", lambda ns, a: ns.linalg.lu(a)[2]),
    Case("solve", lambda ns, a, b: ns.linalg.solve(a, b), "any any"),
    Case("solve, a vector", lambda ns, a, b: ns.linalg.solve(a, b), "any vector"),
    Case("lu_solve", lambda ns, lu, p, b: ns.linalg.lu_solve(lu, p, b), "lu any"),
    Case("solve_triangular", lambda ns, a, b: ns.linalg.solve_triangular(a, b, upper=True),
         "definite any"),
    Case("inv", lambda ns, a: ns.linalg.inv(a)),
    Case("det", lambda ns, a: ns.linalg.det(a), "scaled"),
    Case("slogdet", lambda ns, a: ns.linalg.slogdet(a)[1]),
    Case("cholesky", lambda ns, a: ns.linalg.cholesky(a), "definite"),
    Case("cholesky_solve", lambda ns, a, b: ns.cholesky_solve(b, a), "lower any"),
    Case("cholesky_inverse", lambda ns, a: ns.cholesky_inverse(a), "lower"),
    Case("ldl_factor", lambda ns, a: ns.linalg.ldl_factor(a)[0], "definite", False),
    Case("ldl_solve", lambda ns, ld, p, b: ns.linalg.ldl_solve(ld, p, b), "ldl any", False),
    Case("qr", lambda ns, a: ns.linalg.qr(a)[0]),
    Case("geqrf", lambda ns, a: ns.geqrf(a)[0], "any", False),
    Case("householder_product", lambda ns, a, t: ns.linalg.householder_product(a, t), "reflections",
         False),
    Case("ormqr", lambda ns, a, t, c: ns.ormqr(a, t, c), "reflections any", False),
    Case("lstsq", lambda ns, a, b: ns.linalg.lstsq(a, b)[0], "any any"),
    Case("pinv", lambda ns, a: ns.linalg.pinv(a)),
    Case("eigvalsh", lambda ns, a: ns.linalg.eigvalsh(a), "definite"),
    Case("eigh", lambda ns, a: ns.linalg.eigh(a)[1].abs(), "definite"),
    Case("svdvals", lambda ns, a: ns.linalg.svdvals(a)),
    Case("svd", lambda ns, a: ns.linalg.svd(a, False)[0].abs()),
    Case("eigvals", lambda ns, a: ns.linalg.eigvals(a).abs()),
    Case("eig", lambda ns, a: ns.linalg.eig(a)[1].abs()),
]  # fmt: skip


# -- matrices -----------------------------------------------------------------------------------


def _normal(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    found: Any = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        found = found + 1j * generator.standard_normal(shape)
    return np.asarray(found).astype(dtype)


def _matrices(kind: str, shape: tuple[int, ...], dtype: str, seed: int) -> list[Array]:
    a, order = _normal(shape, dtype, seed), shape[-1]
    definite = (a @ np.conj(np.swapaxes(a, -2, -1)) / order + np.eye(order)).astype(dtype)
    lower = np.linalg.cholesky(definite).astype(dtype)
    if kind == "lu":
        return [x.numpy() for x in torch.linalg.lu_factor(torch.from_numpy(a))]
    if kind == "ldl":
        return [x.numpy() for x in torch.linalg.ldl_factor(torch.from_numpy(definite))]
    if kind == "reflections":
        return [x.numpy() for x in torch.geqrf(torch.from_numpy(a))]
    scaled = (a / np.sqrt(order)).astype(dtype)
    found = {"any": a, "scaled": scaled, "definite": definite, "lower": lower, "vector": a[..., 0]}
    return [np.ascontiguousarray(found[kind])]


def _calls(
    case: Case, shape: tuple[int, ...], dtype: str, backward: bool
) -> list[Callable[[], Any]]:
    """The same call in evergrad and in PyTorch."""
    kinds = case.inputs.split()
    arrays = [x for i, kind in enumerate(kinds) for x in _matrices(kind, shape, dtype, i)]

    def of(ns: Any) -> Callable[[], Any]:
        given = [ns.tensor(x) for x in arrays]
        if not backward:
            return lambda: case.call(ns, *given)
        moving = [x.requires_grad_() for x in given if x.is_floating_point() or x.is_complex()]

        def run() -> None:
            for x in moving:
                x.grad = None
            out = case.call(ns, *given)
            (out.real if out.is_complex() else out).sum().backward()

        return run

    return [of(evergrad), of(torch)]


# -- times --------------------------------------------------------------------------------------


def _least(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The least wall time of each, in alternating rounds."""
    found = [float("inf")] * len(calls)
    for _ in range(rounds * 4):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            found[i] = min(found[i], time.perf_counter() - start)
    return found


def _ratio(case: Case, shape: tuple[int, ...], dtype: str, rounds: int, threads: int) -> str:
    cells = []
    for backward in (False, True)[: 1 + case.backward]:
        calls = _calls(case, shape, dtype, backward)
        own, theirs = (medians if threads == 1 else _least)(calls, rounds)
        cells.append(f"{own / theirs:.2f}")
    return " / ".join(cells)


def table(only: str, shapes: list[tuple[int, ...]], threads: int, rounds: int) -> Iterator[str]:
    """The lines of a table, as they are measured."""
    evergrad.set_num_threads(threads)
    torch.set_num_threads(threads)
    plural = "s" if threads > 1 else ""
    yield f"evergrad / PyTorch, {threads} thread{plural}: forward / with backward"
    yield f"{'':<24}{'':<12}" + "".join(f"{name:>16}" for name in DTYPES)
    for case in CASES:
        for shape in shapes if only in case.name else ():
            dtypes = LARGE_DTYPES if shape[-1] > LARGE else DTYPES
            cells = [_ratio(case, shape, dtype, rounds, threads) for dtype in dtypes]
            label = "x".join(map(str, shape))
            yield f"{case.name:<24}{label:<12}" + "".join(f"{cell:>16}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--sizes", default="32,300,1000")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    batch = (given.batch,) if given.batch else ()
    shapes = [(*batch, int(n), int(n)) for n in given.sizes.split(",")]
    counts = [given.threads] if given.threads else [1, evergrad.get_num_threads()]
    lines: list[str] = []
    for threads in counts:
        for line in table(given.only, shapes, threads, given.rounds):
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    if given.write:
        write_text(RESULTS, "\n".join(lines))


if __name__ == "__main__":
    main()
