"""Two Python threads, each training a model of its own: how much more is done than by one.

    python -m bench.peers.two_threads        # writes two_threads.json

Each model's step runs on one thread. The figure is the steps of both together over the steps of one
alone in the same time, the median of many short turns that follow each other. What the machine
itself gives for two is measured beside it: the same two models in two processes, which share
nothing. Steps of small models are called one by one, and also many at a time (``loop``), without
Python in between.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    turns = []
    with beside(peer, workload, steps[0]) as processes:
        for _ in range(int(rounds)):
            turns.append((rate(steps[:1], length), rate(steps, length), processes(length)))
    print(json.dumps(turns))


def figures(turns: list[list[float]], steps_a_call: int) -> dict[str, float]:
    """The steps of a second, and how much more two do than one."""
    one, two, processes = zip(*turns, strict=True)
    return {
        "one": statistics.median(one) * steps_a_call,
        "two": statistics.median(two) * steps_a_call,
        "times": statistics.median(b / a for a, b in zip(one, two, strict=True)),
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
