"""How far a step is from what the machine could do at best.

    python -m bench.peers.limits gpt_tiny 2     # prints JSON

A step needs at least the time of its products at the machine's best rate, and that of reading what
it reads and writing what it writes once: parameters, optimizer state, data and results. Products
are counted as the step is written (a causal attention as a whole square), nothing else is. The
rates are measured here: a large product and a long sum of two arrays, by compiled programs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.peers.processes import PeerError, environment, run_python

_SIDE = 2048
_LENGTH = 1 << 24
_REPEATS = 7


@dataclass(frozen=True)
class Limit:
    """The work of a step and the rates of the machine with some number of threads."""

    flops: int
    nbytes: int
    flops_per_second: float
    bytes_per_second: float

    @property
    def seconds(self) -> float:
        """No step can be faster."""
        return max(self.flops / self.flops_per_second, self.nbytes / self.bytes_per_second)

    @property
    def bound(self) -> str:
        """What it would wait for."""
        products = self.flops / self.flops_per_second
        return "products" if products > self.nbytes / self.bytes_per_second else "memory"


def at_best_rates(limits: Iterable[Limit | None]) -> Callable[[Limit], Limit]:
    """Sets the rates of the best moment: what disturbed a measurement is no limit of a machine."""
    known = [limit for limit in limits if limit is not None]
    products = max((limit.flops_per_second for limit in known), default=0.0)
    moves = max((limit.bytes_per_second for limit in known), default=0.0)
    return lambda limit: replace(limit, flops_per_second=products, bytes_per_second=moves)


def limit_of(workload: str, threads: int, caches: Any, timeout: float) -> Limit | None:
    """Measured in a process of its own; None if evergrad cannot tell."""
    code = "import sys; from bench.peers.limits import main; main(*sys.argv[1:])"
    try:
        told = run_python(code, timeout, workload, str(threads), env=environment(threads, caches))
    except PeerError as error:
        print(f"  the limit of {workload} is not known: {error.reason}", flush=True)
        return None
    return Limit(**json.loads(told))


def main(workload: str, threads: str) -> None:
    from bench.peers import machine

    import evergrad

    machine.pin_to(int(threads))
    evergrad.set_num_threads(int(threads))
    print(json.dumps(asdict(Limit(*_work(evergrad, workload), *_rates(evergrad)))))


def _work(evergrad: Any, workload: str) -> tuple[int, int]:
    """The operations of the products in a step, and the bytes that have to be moved."""
    from bench.peers.contenders import step_of
    from bench.peers.workloads import build

    from evergrad.compiler.explain.timing import flops_of

    task = build(workload, evergrad)
    step = evergrad.compile(step_of(evergrad, task, task.function))
    step(*task.data)  # optimizers make their state in the first one
    captured = step.compiled_for(task.data, {})[0].captured
    graph = captured.graph.inlined()
    given = [var.type.nbytes for var in graph.inputs]
    made = [var.type.nbytes for var in graph.outputs if hasattr(var, "type")]
    return sum(map(flops_of, graph.equations)), sum(given) + sum(made)


def _rates(evergrad: Any) -> tuple[float, float]:
    """Operations in products and bytes, both per second."""
    multiply = evergrad.compile(lambda a, b: a @ b)
    add = evergrad.compile(lambda a, b: a + b)
    square = evergrad.rand(_SIDE, _SIDE)
    long = evergrad.rand(_LENGTH)
    product = _best(lambda: multiply(square, square))
    return 2 * _SIDE**3 / product, 3 * long.nbytes / _best(lambda: add(long, long))


def _best(run: Callable[[], Any]) -> float:
    """The least time, since whatever disturbs makes it longer."""
    best = float("inf")
    run()
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main(*sys.argv[1:])
