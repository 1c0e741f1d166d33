"""Two Python threads, each training a model of its own: how much more is done than by one.

    python -m bench.peers.two_threads        # writes two_threads.json

Each model's step runs on one thread. The figure is the steps of both together over the steps of one
alone in the same time; turns alternate, and medians are compared.
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

from bench.peers.contenders import PEERS, REFERENCE, SUBJECT, Given, Step
from bench.peers.processes import ROOT, PeerError, environment, run_python
from bench.peers.report import table, write_json

WORKLOADS = ("gpt_tiny", "tiny_mlp", "mlp:width=64", "mlp:width=128", "lenet64")


def _steps_in(step: Step, seconds: float, start: threading.Barrier) -> int:
    start.wait()
    end = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < end:
        step()
        count += 1
    return count


def rate(steps: list[Step], seconds: float) -> float:
    """The steps per second of some threads, one for each step."""
    start = threading.Barrier(len(steps))
    counts = [0] * len(steps)

    def work(number: int) -> None:
        counts[number] = _steps_in(steps[number], seconds, start)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def worker(peer: str, workload: str, rounds: str, seconds: str) -> None:
    """Prints the rates of one thread and of two, in a process of its own."""
    steps = [PEERS[peer].make_step(Given(workload, 1, "")) for _ in range(2)]
    for step in steps:
        for _ in range(5):
            step()
    one, two = [], []
    for _ in range(int(rounds)):
        one.append(rate(steps[:1], float(seconds)))
        two.append(rate(steps, float(seconds)))
    print(json.dumps([statistics.median(one), statistics.median(two)]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="the length of a turn")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results")
    options = parser.parse_args(arguments)
    code = "import sys; from bench.peers.two_threads import worker; worker(*sys.argv[1:])"
    rows, found = [], {}
    with tempfile.TemporaryDirectory(prefix="evergrad-bench-") as caches:
        for workload in options.workloads.split(","):
            print(f"{workload} ...", file=sys.stderr, flush=True)
            row = [workload]
            for peer in (SUBJECT, REFERENCE):
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
    peers = (SUBJECT, REFERENCE)
    print(table(["workload", *(f"{p}{w}" for p in peers for w in ("", " two", " x"))], rows))
    write_json(options.output / "two_threads.json", found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
