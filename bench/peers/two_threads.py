"""Two Python threads, each training a model of its own: how much more is done than by one.

    python -m bench.peers.two_threads        # writes two_threads.json

Each model's step runs on one thread. The figure is the steps of both together over the steps of one
alone in the same time; turns alternate, and medians are compared. Steps of small models are called
one by one, and also many at a time (``loop``), without Python in between.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.peers.contenders import LOOPED, LOOPED_STEPS, PEERS, REFERENCE, SUBJECT, Given, Step
from bench.peers.processes import ROOT, PeerError, environment, run_python
from bench.peers.report import table, write_json

SMALL = ("tiny_mlp", "mlp:width=64", "mlp:width=128", "mlp:width=256")
WORKLOADS = ("gpt_tiny", "lenet64", *SMALL)
LOOP = "evergrad loop"


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


def worker(peer: str, workload: str, rounds: str, seconds: str) -> None:
    """Prints the rates of one thread and of two, in a process of its own."""
    contender, steps_a_call = (LOOPED, LOOPED_STEPS) if peer == LOOP else (PEERS[peer], 1)
    steps = [contender.make_step(Given(workload, 1, "")) for _ in range(2)]
    for step in steps:
        for _ in range(5):
            step()
    one, two = [], []
    for _ in range(int(rounds)):
        one.append(rate(steps[:1], float(seconds)))
        two.append(rate(steps, float(seconds)))
    print(json.dumps([statistics.median(rates) * steps_a_call for rates in (one, two)]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="the length of a turn")
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
                    row += ["-", "-", "-"]
                    continue
                try:
                    told = run_python(
                        code, 600, peer, workload, str(options.rounds), str(options.seconds),
                        env=environment(1, Path(caches)),
                    )  # fmt: skip
                except PeerError as error:
                    row += [error.status, "-", "-"]
                    continue
                one, two = json.loads(told)
                found.setdefault(workload, {})[peer] = {"one": one, "two": two}
                row += [f"{one:,.1f}/s", f"{two:,.1f}/s", f"{two / one:.2f}"]
            rows.append(row)
    print(table(["workload", *(f"{p}{w}" for p in peers for w in ("", " two", " x"))], rows))
    write_json(options.output / "two_threads.json", found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
