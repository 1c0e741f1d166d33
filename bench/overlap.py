"""Overlap of communication and backward: the time of a step with it and without.

``python -m bench.overlap [--rate 800mbit] [--rounds 6]`` starts two ranks in two network namespaces
(:mod:`bench.namespaces`), joined by a cable of a limited rate, so that communication is waiting for
the cable. Each rank computes with one thread, on two cores for both. Both variants reduce the same
buckets: one in the background while backward still runs, one with a communication hook that returns
when the reduction is complete. They take turns in one process, eager and compiled, and the median
of each is printed beside that of a step that does not communicate. Needs root.

Not all can be hidden: the last bucket is complete when backward ends, and polls and copies take
time of the cores that compute. Both are printed. Other work on the machine would be measured as
well, so the ranks get the highest priority that Linux gives a session.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from bench.namespaces import missing, pair

import evergrad as eg
import evergrad.distributed as dist
from evergrad import nn, optim
from evergrad.futures import Future
from evergrad.nn.parallel import DistributedDataParallel

WIDTH, DEPTH, ROWS = 512, 16, 1024
LAYER_BYTES = 4 * WIDTH * WIDTH
VARIANTS = ("alone", "overlap", "no overlap")
# Steps of a variant before it is the turn of the next one, and rounds that are not counted:
# compilation, and buckets that are rebuilt.
STEPS, WARM_UP = 2, 2


def reduced_at_once(state: Any, bucket: Any) -> Any:
    """A hook without overlap."""
    flat = bucket.buffer()
    dist.all_reduce(flat, dist.ReduceOp.AVG)
    future = Future()
    future.set_result(flat)
    return future


def make_step(variant: str) -> Any:
    """A step with overlap, without, or of this process alone."""
    layers = [m for _ in range(DEPTH) for m in (nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())]
    net: Any = nn.Sequential(*layers)
    if variant != "alone":
        cap = LAYER_BYTES / (1 << 20)
        net = DistributedDataParallel(net, bucket_cap_mb=cap, gradient_as_bucket_view=True)
    if variant == "no overlap":
        net.register_comm_hook(None, reduced_at_once)
    optimizer = optim.SGD(net.parameters(), lr=1e-6)

    def step(x: Any) -> None:
        net(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def raise_priority() -> None:
    """Let the session of this process come before those of others."""
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("-20")


def one_rank(rounds: int) -> None:
    """What a started process does: measure in turns, and print the times of the first rank."""
    raise_priority()
    dist.init_process_group()
    eg.set_num_threads(1)
    x = eg.rand(ROWS, WIDTH)
    steps = {("eager", v): make_step(v) for v in VARIANTS}
    steps |= {("compiled", v): eg.compile(make_step(v)) for v in VARIANTS}
    times: dict[str, list[tuple[float, float]]] = {" ".join(name): [] for name in steps}
    for number in range(WARM_UP + rounds):
        for name, step in steps.items():
            for _ in range(STEPS):
                dist.barrier()
                start, cpu = time.perf_counter(), time.process_time()
                step(x)
                found = time.perf_counter() - start, time.process_time() - cpu
                if number >= WARM_UP:
                    times[" ".join(name)].append(found)
    if dist.get_rank() == 0:
        print(json.dumps(times), flush=True)
    dist.destroy_process_group()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", default="800mbit", help="of the cable, as `tc` takes it")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.rank:
        one_rank(options.rounds)
        return
    if reason := missing():
        raise SystemExit(reason)
    mpiexec = str(Path(sysconfig.get_path("scripts")) / "mpiexec")
    program = [sys.executable, "-m", "bench.overlap", "--rank", "--rounds", str(options.rounds)]
    with pair(options.rate) as machines:
        command = ["env", *[f"{k}={v}" for k, v in machines.environment().items()]]
        command += machines.mpiexec(mpiexec, 2, *program)
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    report(json.loads(done.stdout), options.rate)


def report(times: dict[str, list[tuple[float, float]]], rate: str) -> None:
    print(
        f"2 ranks in two namespaces, one thread each; {DEPTH} layers of {WIDTH}, {ROWS} rows; "
        f"{DEPTH * LAYER_BYTES / 1e6:.1f} MB each way per step over {rate}, the last bucket "
        f"{LAYER_BYTES / 1e6:.1f} MB"
    )
    for kind in ("eager", "compiled"):
        wall, cpu = (
            {v: 1e3 * median(t[i] for t in times[f"{kind} {v}"]) for v in VARIANTS} for i in (0, 1)
        )
        for v in VARIANTS:
            least = 1e3 * min(t[0] for t in times[f"{kind} {v}"])
            print(
                f"{kind:<8} {v:<10} median {wall[v]:6.1f} ms  least {least:6.1f} ms  of the core "
                f"{cpu[v]:6.1f} ms"
            )
        exposed = wall["no overlap"] - wall["alone"]
        hidden = wall["no overlap"] - wall["overlap"]
        print(
            f"{kind:<8} communication takes {exposed:.0f} ms, {cpu['overlap'] - cpu['alone']:.0f} "
            f"ms of them of the core; overlap hides {hidden:.0f} ms ({hidden / exposed:.0%}): a "
            f"step takes {wall['overlap'] / wall['no overlap']:.2f} of the time"
        )


if __name__ == "__main__":
    main()
