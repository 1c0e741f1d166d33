"""Two Python threads, each training a model of its own: how much more is done than by one.

    python -m bench.peers.two_threads        # writes two_threads.json

Each model's step runs on one thread. The figure is the steps of both together over the steps of one
alone in the same time, the median of many short turns that follow each other. What the machine
itself gives for two is measured beside it: the same two models in two processes, which share
nothing. Steps of small models are called one by one, and also many at a time (``loop``), without
Python in between.

Beside each turn stands how long a cache line takes from one core to the other. A virtual machine's
cores move about: where they are far from each other (300 to 600 ns instead of 30 to 150) whatever
two threads of one interpreter share, reference counts and the GIL above all, takes longer than a
small step, in every library.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bench.peers.contenders import LOOPED, LOOPED_STEPS, PEERS, REFERENCE, SUBJECT, Given, Step
from bench.peers.processes import ROOT, PeerError, environment, exit_on_sigterm, run_python
from bench.peers.report import table, write_json

SMALL = ("tiny_mlp", "mlp:width=64", "mlp:width=128", "mlp:width=256")
WORKLOADS = ("gpt_tiny", "lenet64", *SMALL)
LOOP = "evergrad loop"
SHOWN = ("", " x", " (processes)")


def _rate_of(step: Step, seconds: float, start: threading.Barrier) -> float:
    start.wait()
    began = now = time.perf_counter()
    count = 0
    while now < began + seconds:
        step()
        count += 1
        now = time.perf_counter()
    return count / (now - began)


def rate(steps: list[Step], seconds: float) -> float:
    """The calls per second of some threads, one for each step."""
    start = threading.Barrier(len(steps))
    rates = [0.0] * len(steps)

    def work(number: int) -> None:
        rates[number] = _rate_of(steps[number], seconds, start)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


# Two threads raise a number in turns: one where it is even, the other where it is odd.
_PING_PONG = """
define void @take_turns(ptr %cell, i64 %number, i64 %stop) {
entry:
  br label %wait
wait:
  %mine = phi i64 [%number, %entry], [%mine, %wait], [%later, %go]
  %now = load atomic i64, ptr %cell acquire, align 8
  %is_mine = icmp eq i64 %now, %mine
  br i1 %is_mine, label %go, label %wait
go:
  %next = add i64 %mine, 1
  store atomic i64 %next, ptr %cell release, align 8
  %later = add i64 %mine, 2
  %more = icmp ult i64 %later, %stop
  br i1 %more, label %wait, label %end
end:
  ret void
}
"""
_PINGS = 20_000
# Nanoseconds from which on cores count as far from each other.
FAR = 250


@cache
def _take_turns() -> Callable[..., None]:
    from evergrad.compiler.native import jit

    words = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    return jit.function_of(jit.addresses_in(_PING_PONG, ("take_turns",))["take_turns"], *words)


def latency() -> float:
    """Nanoseconds that a cache line takes from one core to the other."""
    cell, run = (ctypes.c_int64 * 16)(), _take_turns()
    other = threading.Thread(target=run, args=(ctypes.addressof(cell), 1, _PINGS + 1))
    other.start()
    began = time.perf_counter()
    run(ctypes.addressof(cell), 0, _PINGS)
    other.join()
    return (time.perf_counter() - began) / _PINGS * 1e9


def made(peer: str, workload: str, count: int) -> list[Step]:
    """Steps of so many models, each run a few times."""
    contender = LOOPED if peer == LOOP else PEERS[peer]
    steps = [contender.make_step(Given(workload, 1, "")) for _ in range(count)]
    for step in steps:
        for _ in range(5):
            step()
    return steps


def other(peer: str, workload: str) -> None:
    """The process beside: for each line with a number of seconds it tells its rate."""
    (step,) = made(peer, workload, 1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(rate([step], float(line)), flush=True)


@contextmanager
def beside(peer: str, workload: str, step: Step) -> Iterator[Callable[[float], float]]:
    """Gives the rate of a step here and of another in a process beside, together."""
    code = "import sys; from bench.peers.two_threads import other; other(*sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, peer, workload], text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        asked, told = process.stdin, process.stdout
        told.readline()

        def both(seconds: float) -> float:
            asked.write(f"{seconds}\n")
            return rate([step], seconds) + float(told.readline())

        yield both


def worker(peer: str, workload: str, rounds: str, seconds: str) -> None:
    """Prints the rates of one thread, two and two processes, in a process of its own."""
    steps = made(peer, workload, 2)
    length = float(seconds)
    # The native code for it is evergrad's, which other peers do not import.
    measured = latency if peer in (SUBJECT, LOOP) else float
    turns = []
    with beside(peer, workload, steps[0]) as processes:
        for _ in range(int(rounds)):
            one, before, two = rate(steps[:1], length), measured(), rate(steps, length)
            turns.append((one, two, processes(length), max(before, measured())))
    print(json.dumps(turns))


def figures(turns: list[list[float]], steps_a_call: int) -> dict[str, float]:
    """The steps of a second, and how much more two do than one."""
    one, two, processes, latencies = zip(*turns, strict=True)
    near = [b / a for a, b, _, nanoseconds in turns if nanoseconds < FAR]
    return {
        "one": statistics.median(one) * steps_a_call,
        "two": statistics.median(two) * steps_a_call,
        "times": statistics.median(b / a for a, b in zip(one, two, strict=True)),
        "least": min(b / a for a, b in zip(one, two, strict=True)),
        "turns with near cores": len(near),
        "times with near cores": statistics.median(near) if near else 0.0,
        "nanoseconds between cores": statistics.median(latencies),
        "times by processes": statistics.median(b / a for a, b in zip(one, processes, strict=True)),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="the length of a turn")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results")
    options = parser.parse_args(arguments)
    code = "import sys; from bench.peers.two_threads import worker; worker(*sys.argv[1:])"
    peers = (SUBJECT, LOOP, REFERENCE)
    rows, found = [], {}
    with tempfile.TemporaryDirectory(prefix="evergrad-bench-") as caches:
        for workload in options.workloads.split(","):
            print(f"{workload} ...", file=sys.stderr, flush=True)
            row = [workload]
            for peer in peers:
                if peer == LOOP and workload not in SMALL:
                    row += ["-"] * len(SHOWN)
                    continue
                try:
                    told = run_python(
                        code, 600, peer, workload, str(options.rounds), str(options.seconds),
                        env=environment(1, Path(caches)),
                    )  # fmt: skip
                except PeerError as error:
                    row += [error.status, *["-"] * (len(SHOWN) - 1)]
                    continue
                steps_a_call = LOOPED_STEPS if peer == LOOP else 1
                figure = figures(json.loads(told), steps_a_call)
                found.setdefault(workload, {})[peer] = figure
                row += [f"{figure['one']:,.1f}/s"]
                row += [f"{figure[name]:.2f}" for name in ("times", "times by processes")]
            rows.append(row)
    print(table(["workload", *(f"{p}{w}" for p in peers for w in SHOWN)], rows))
    write_json(options.output / "two_threads.json", found)
    return 0


if __name__ == "__main__":
    exit_on_sigterm()
    raise SystemExit(main())
