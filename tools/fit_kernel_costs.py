"""Fit the cost models of kernels to this machine.

    python tools/fit_kernel_costs.py [--only gemm|small|conv] [--rounds N]

Measures products and convolutions by all kernels and tilings that can compute them, on one thread,
and fits the constants of the cost models that choose between these. Prints each constant of each
module with its present and its fitted value, and the error of both models. Takes about two minutes
and changes nothing: enter what you want to keep by hand, and run ``make bench`` before and after.
Processor time is measured, which a busy machine disturbs least; its caches are still shared.

All models are linear in their constants (or the reciprocals of bandwidths). The fit minimizes
relative errors, and is drawn a little towards the present values: what the measurements do not
determine stays as it is.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import evergrad as eg
from evergrad.compiler import program_cache
from evergrad.compiler.codegen.ir_builder import vector_for
from evergrad.compiler.kernels.conv import select as conv
from evergrad.compiler.kernels.gemm import small, tiling, tiling_costs
from evergrad.compiler.kernels.gemm.blocked import blocked_kernel, packing_kernel
from evergrad.compiler.kernels.gemm.microkernel import tile_for
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.native import jit
from evergrad.compiler.native.target import machine
from evergrad.core import dtypes
from evergrad.nn import functional as F

Array = np.ndarray[Any, Any]
# How strongly the fit is drawn to the present values: a constant that doubles has to reduce all
# relative errors by so much.
_TOWARDS_PRESENT = 0.05


# -- fitting ------------------------------------------------------------------------------------


class Constant(NamedTuple):
    """A constant of a module; ``inverse`` if it divides."""

    module: Any
    name: str
    inverse: bool = False

    @property
    def value(self) -> float:
        return float(getattr(self.module, self.name))

    @property
    def coefficient(self) -> float:
        return 1 / self.value if self.inverse else self.value

    def put(self, coefficient: float) -> None:
        value = coefficient
        if self.inverse:
            value = 1 / coefficient if coefficient else float("inf")
        setattr(self.module, self.name, value)


class Sample(NamedTuple):
    """A measured time, and its estimate with the present constants, both in the model's unit."""

    measured: float
    estimate: Callable[[], float]


def constants(module: Any, names: str) -> list[Constant]:
    return [Constant(module, n.removeprefix("1/"), n.startswith("1/")) for n in names.split()]


def fit(title: str, given: list[Constant], samples: list[Sample]) -> dict[str, float]:
    """Print and return the fitted constants."""
    present = [c.coefficient for c in given]
    before = [s.estimate() for s in samples]
    for constant in given:
        constant.put(0.0)
    base = np.array([s.estimate() for s in samples])
    features = np.zeros((len(samples), len(given)))
    for n, constant in enumerate(given):
        constant.put(1.0)
        features[:, n] = [s.estimate() for s in samples] - base
        constant.put(0.0)
    for constant, coefficient in zip(given, present, strict=True):
        constant.put(coefficient)
    measured = np.array([s.measured for s in samples])
    scale, pull = np.array(present), _TOWARDS_PRESENT * len(samples) ** 0.5
    found = scale * _nonnegative(
        np.vstack([features * scale / measured[:, None], np.eye(len(given)) * pull]),
        np.concatenate([1 - base / measured, np.full(len(given), pull)]),
    )
    after = base + features @ found
    errors = [f"{_error(estimated, measured):.0%}" for estimated in (before, after)]
    print(f"\n{title}: {len(samples)} measurements, typical error {errors[0]}, fitted {errors[1]}")
    seen = (np.abs(features) > 0).any(axis=0)
    result = {}
    for n, constant in enumerate(given):
        new = 1 / max(found[n], 1e-9) if constant.inverse else found[n]
        where = f"{constant.module.__name__.removeprefix('evergrad.compiler.kernels.')}"
        note = f"{new:>10.3g}{new / constant.value:>8.2f}" if seen[n] else "  not measured"
        print(f"  {where:<32}{constant.name:<18}{constant.value:>10.3g}{note}")
        result[constant.name] = float(new)
    return result


def _nonnegative(a: Array, b: Array) -> Array:
    """Least squares with coefficients that are not negative, by coordinate descent."""
    x, norms = np.ones(a.shape[1]), (a * a).sum(axis=0)
    rest = b - a @ x
    for _ in range(3000):
        for n, norm in enumerate(norms):
            new = max(0.0, x[n] + a[:, n] @ rest / norm)
            rest -= a[:, n] * (new - x[n])
            x[n] = new
    return x


def _error(estimated: Any, measured: Array) -> float:
    """The median relative error."""
    return float(np.median(np.abs(np.array(estimated) / measured - 1)))


# -- measuring ----------------------------------------------------------------------------------


def nanoseconds(call: Callable[[], Any], rounds: int) -> float:
    """The least processor time of a call."""
    call()
    start = time.thread_time_ns()
    call()
    count = max(1, int(1e6 / max(time.thread_time_ns() - start, 1)))
    found = []
    for _ in range(rounds):
        start = time.thread_time_ns()
        for _ in range(count):
            call()
        found.append((time.thread_time_ns() - start) / count)
    return min(found)


def runner(calls: list[tuple[Any, list[Array]]]) -> Callable[[], None]:
    """Kernels with the arrays they work on, one after the other, chunk by chunk."""
    tasks = []
    kept: list[Array] = []
    for kernel, arrays in calls:
        signature = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        function = jit.function_of(jit.addresses([kernel])[kernel.name], *signature)
        block = np.array([*(a.ctypes.data for a in arrays), *kernel.numbers], np.int64)
        scratch = np.zeros(kernel.scratch + 64, np.uint8)
        kept += [block, scratch, *arrays]
        for chunk in range(kernel.chunks):
            tasks.append((function, block.ctypes.data, chunk, scratch.ctypes.data))

    def run() -> None:
        assert kept  # the arrays live as long as the tasks
        for function, block, chunk, scratch in tasks:
            function(block, chunk, scratch)

    return run


def matrix(rows: int, columns: int, transposed: bool, batch: int = 0) -> Array:
    lead = (batch,) if batch else ()
    shape = (*lead, columns, rows) if transposed else (*lead, rows, columns)
    made = np.ones(shape, np.float32)
    return made.swapaxes(-1, -2) if transposed else made


# -- products -----------------------------------------------------------------------------------

PRODUCTS = [
    (64, 64, 4096), (256, 256, 256), (512, 512, 512), (128, 1024, 512), (1024, 128, 768),
    (2048, 96, 64), (768, 768, 768), (96, 2304, 768), (2048, 256, 1024), (1000, 1000, 100),
    (300, 3000, 300), (512, 64, 2048), (512, 256, 4096), (1024, 240, 3000),
]  # fmt: skip
SMALL = [
    (128, 16, 128), (4, 16, 16), (8, 32, 32), (3, 5, 40), (24, 20, 10), (16, 64, 8), (2, 100, 30),
    (8, 128, 20), (32, 32, 6),
]  # fmt: skip
BLOCKED = (
    "_MULTIPLY _COPY _TRANSPOSE _PACK_TILES _STORE _FETCH _UNPREFETCHED _READ_B _READ_B_FAR "
    "_WRITE_C _WRITE_C_FAR"
)


def blocked_samples(rounds: int) -> Iterator[Sample]:
    """Products in all orders, with the best tiling and some others."""
    source = random.Random(0)
    tile = tile_for(vector_for(dtypes.float32))
    for m, n, k in PRODUCTS:
        for turned in ((False, False), (False, True), (True, False)):
            a, b, c = matrix(m, k, turned[0]), matrix(k, n, turned[1]), matrix(m, n, False)
            product = Product(a, b, ())
            operands = tiling._operands(product, tile, False)
            best = tiling.tiling_of(product, tile, n, may_prepack=True)
            others = list(tiling._all_parts(operands, may_prepack=True))
            sampled = source.sample(others, min(2, len(others)))
            chosen = [tiling._cheapest(operands, parts[None])[1] for parts in sampled]
            chosen = [one._replace(c_row=n) for one in chosen]
            for one in (best, *chosen):
                of = tiling._operands(product, tile, bool(one.transposed))
                call = runner(_blocked_calls(product, one, of.tile, [a, b, c]))
                yield Sample(
                    nanoseconds(call, rounds),
                    lambda one=one, of=of: tiling_costs.costs_of(one, of.tile).item(),
                )


def _blocked_calls(product: Product, one: Any, tile: Any, given: list[Array]) -> list[Any]:
    plain = tile_for(tile.vector)
    calls = []
    for side in one.prepacked:
        number = one.operand_of(side)
        packed = np.zeros(one.packed_elements(side), np.float32)
        calls.append((packing_kernel(product, plain, one, side), [given[number], packed]))
        given = [packed if n == number else array for n, array in enumerate(given)]
    return [*calls, (blocked_kernel(product, plain, one), given)]


def fit_blocked(rounds: int) -> dict[str, float]:
    tiling_costs._THREADS = {1: 1}
    samples = list(blocked_samples(rounds))
    return fit("blocked products (ns)", constants(tiling_costs, BLOCKED), samples)


def fit_small(rounds: int) -> None:
    """Products of a batch, straight and transposed, in all orders. Iterations are almost all of the
    first one: its time tells how long one takes."""
    vector = vector_for(dtypes.float32)
    batch, measured, estimates = 64, [], []
    for m, n, k in SMALL:
        for turned in ((False, False), (False, True), (True, False), (True, True)):
            a, b = matrix(m, k, turned[0], batch), matrix(k, n, turned[1], batch)
            c = matrix(m, n, False, batch)
            product = Product(a, b, (batch,))
            for one in small.candidates(product, vector, n):
                call = runner([(small.kernel_of(one, product, vector), [a, b, c])])
                measured.append(nanoseconds(call, rounds) / batch)
                estimates.append(lambda one=one: one.cost(vector.lanes))
    unit = measured[0] / estimates[0]()
    samples = [Sample(t / unit, e) for t, e in zip(measured, estimates, strict=True)]
    fit(
        "small products (iterations)", constants(small, "_COPY _TRANSPOSE _STORE _SCATTER"), samples
    )


# -- convolutions -------------------------------------------------------------------------------

# Samples, channels, outputs, size of the image, size of the kernel.
CONVOLUTIONS = [
    (64, 1, 6, 28, 5), (64, 6, 16, 14, 5), (8, 64, 64, 28, 3), (8, 128, 128, 14, 3),
    (64, 32, 32, 8, 3), (4, 256, 256, 8, 3), (4, 3, 32, 64, 3), (32, 16, 32, 16, 3),
]  # fmt: skip
COSTS = {
    "select": "1/_BYTES_A_CYCLE",
    "direct": "_COPYING",
    "output_lanes": "_COPYING _SLOWER",
    "winograd": "_TRANSFORMING _WRITING _WEIGHING _SLOWER 1/_FROM_NEAR 1/_FROM_FAR",
    "batch_lanes": "_KEEPING",
    "pack_batch_lanes": "_TURNING _TURNING_SHARED _TURNING_FAR",
    "dot_weight_grad": "_KEEPING",
    "im2col_weight_grad": "_LAYING",
    "winograd_weight_grad": "_TRANSFORMING _SLOWER 1/_BYTES_A_CYCLE",
    "batch_lanes_weight_grad": "_KEEPING _ADDING",
}
FORWARD = ("direct", "output_lanes", "batch_lanes", "winograd")
GRADIENT = ("dot", "im2col", "batch_lanes", "winograd")


def conv_samples(rounds: int, cycle: float) -> Iterator[Sample]:
    """Convolutions and gradients of their weights, by each kernel that can compute them."""
    chosen: list[Any] = []
    eg.set_num_threads(1)
    program_cache.fingerprint_of = lambda *_: None  # none of these programs may be kept
    for samples, channels, outputs, size, kernel in CONVOLUTIONS:
        x, w = eg.ones(samples, channels, size, size), eg.ones(outputs, channels, kernel, kernel)
        pad = kernel // 2
        g = eg.ones(samples, outputs, size, size)
        pixels = samples * size * size
        for way in FORWARD:
            conv._cheapest = lambda vector, part, ways, way=way: _take(chosen, way, ways, part)
            found = eg.compile(lambda x, w, pad=pad: F.conv2d(x, w, padding=pad))
            yield from _measured(found, (x, w), chosen, rounds, cycle, conv._cycles, samples)
        for way in GRADIENT:
            conv._cheapest_weight_grad = lambda vector, dots, runs, ways, way=way: _take(
                chosen, way, ways, dots, runs
            )

            def gradient(x: Any, w: Any, g: Any, pad: int = pad) -> Any:
                return eg.autograd.grad(F.conv2d(x, w, padding=pad), w, g)

            found = eg.compile(gradient)
            given = (x, w.detach().requires_grad_(), g)
            yield from _measured(
                found, given, chosen, rounds, cycle, conv._weight_grad_cycles, pixels
            )


def _take(chosen: list[Any], way: str, ways: Any, *problem: Any) -> str:
    """Choose a kernel, if it can compute the problem, and note that."""
    if way in ways:
        chosen.append((problem, way))
    return way if way in ways else str(ways[0])


def _measured(
    call: Any, given: Any, chosen: list[Any], rounds: int, cycle: float, cycles: Any, count: int
) -> Iterator[Sample]:
    """The sample of a compiled convolution, unless another kernel computed it."""
    chosen.clear()
    call(*given)
    if len(chosen) == 1:
        ((problem, way),) = chosen
        vector = vector_for(dtypes.float32)
        estimate = lambda: count * cycles(vector, *problem, way)
        if estimate() < float("inf"):
            yield Sample(nanoseconds(lambda: call(*given), rounds) / cycle, estimate)


def fit_conv(rounds: int, cycle: float) -> None:
    """``cycle``: the nanoseconds in which as many vectors are multiplied as there are ports."""
    modules = {name: import_module(f"evergrad.compiler.kernels.conv.{name}") for name in COSTS}
    for module in modules.values():  # tilings stay as they are while constants are varied
        for found in vars(module).values():
            is_own = isinstance(found, type) and found.__module__ == module.__name__
            if is_own and "choose" in vars(found):
                found.choose = cache(found.choose)
    given = [c for name, names in COSTS.items() for c in constants(modules[name], names)]
    fit("convolutions (cycles)", given, list(conv_samples(rounds, cycle)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("gemm", "small", "conv"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    multiply = tiling._MULTIPLY
    if options.only in (None, "gemm"):
        multiply = fit_blocked(options.rounds)["_MULTIPLY"]
    if options.only in (None, "small"):
        fit_small(options.rounds)
    if options.only in (None, "conv"):
        fit_conv(options.rounds, machine().fma_ports * multiply)


if __name__ == "__main__":
    main()
