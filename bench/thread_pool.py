"""The overhead of a run by the thread pool: two waves of tasks that do nothing.

    python bench/thread_pool.py [--threads N] [--rounds N]

Prints microseconds on the clock of a run on the calling thread alone, of a run with the pool right
after another one, and of one after a pause in which the workers have parked: the median, and
the tenth that went best, which a busy machine disturbs least.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import evergrad
from evergrad.compiler.native import jit
from evergrad.compiler.runtime.thread_pool import Run, thread_pool

TEXT = """
define void @nothing(ptr %args, i64 %chunk, ptr %scratch) {
  ret void
}
"""
WAVES = 2
PAUSE = 1e-3


def empty_run(threads: int) -> Run:
    """As many tasks in each wave as there are threads."""
    address = jit.addresses_in(TEXT, ["nothing"])["nothing"]
    tasks = [(address, 0, 0)] * (WAVES * threads)
    ends = [threads * (wave + 1) for wave in range(WAVES)]
    run = Run(tasks, ends, 0, np.zeros(8, np.int64))
    run.reserve_scratch(threads)
    return run


def microseconds(call: Callable[[], object], rounds: int, pause: float = 0.0) -> list[float]:
    found = []
    for _ in range(rounds):
        if pause:
            time.sleep(pause)
        start = time.perf_counter()
        call()
        found.append((time.perf_counter() - start) * 1e6)
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5000)
    options = parser.parse_args()
    evergrad.set_num_threads(options.threads)
    run, pool = empty_run(options.threads), thread_pool()

    def together() -> int:
        return pool.run(run.address)

    found = {
        "serial": microseconds(run.run_serial, options.rounds),
        "thread pool, one after the other": microseconds(together, options.rounds),
        "thread pool, after a pause": microseconds(together, options.rounds // 20, PAUSE),
    }
    print(f"{'':32}{'median':>10}{'best tenth':>12}")
    for name, times in found.items():
        print(f"{name:32}{times[len(times) // 2]:10.2f}{times[len(times) // 10]:12.2f}")


if __name__ == "__main__":
    main()
