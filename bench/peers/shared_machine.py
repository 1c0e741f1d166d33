"""How much slower a step gets when another process wants a processor, beside PyTorch.

    python -m bench.peers.shared_machine     # writes shared_machine.json

The other process computes without end at nice 10. Turns with and without it alternate; the figure
is the median step with it over the median step without.

Both belong to one session. Linux shares processors between sessions first, whatever their processes
are worth (autogroup): in a session of its own (``--equal``) the other process has one processor of
two for itself, whatever its niceness.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.contenders import REFERENCE, SUBJECT
from bench.peers.machine import Turn, processors
from bench.peers.processes import (
    ROOT,
    PeerError,
    PeerProcess,
    environment,
    exit_on_sigterm,
)
from bench.peers.report import table, time_text, write_json
from bench.peers.workloads import WORKLOADS

PEERS = (SUBJECT, REFERENCE)


@contextmanager
def competitor(is_equal: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is always busy, and gives way, or takes its share where it ``is_equal``."""
    code = "import os; os.nice(10)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=is_equal)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def nice_of(process: int) -> int:
    """How much a process gives way to others."""
    return os.getpriority(os.PRIO_PROCESS, process)


def slowdown(
    peer: str, workload: str, threads: int, rounds: int, seconds: float, is_equal: bool = False
) -> tuple[float, float]:
    """The seconds of a step alone and beside the competitor."""
    with ExitStack() as stack:
        caches = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evergrad-bench-")))
        request = {"peer": peer, "workload": workload, "threads": threads, "arrays": ""}
        process = PeerProcess(request, environment(threads, caches), timeout=600)
        stack.callback(process.end)
        process.answer()
        process.answer()
        process.ask(seconds=seconds)
        alone, beside = [], []
        for _ in range(rounds):
            alone.append(_step_time(process, seconds))
            with competitor(is_equal):
                beside.append(_step_time(process, seconds))
        return statistics.median(alone), statistics.median(beside)


def _step_time(process: PeerProcess, seconds: float) -> float:
    turn = Turn(**process.ask(seconds=seconds)["turn"])
    return turn.wall / turn.steps


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--peers", default=",".join(PEERS), help="separated by commas")
    parser.add_argument("--threads", type=int, default=min(2, processors()))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="the length of a turn")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--equal", action="store_true", help="the other has a session of its own")
    options = parser.parse_args(arguments)
    name = "shared_machine_equal.json" if options.equal else "shared_machine.json"
    peers = options.peers.split(",")
    rows, found = [], {}
    for workload in options.workloads.split(","):
        print(f"{workload} ...", file=sys.stderr, flush=True)
        row = [workload]
        for peer in peers:
            try:
                alone, beside = slowdown(
                    peer, workload, options.threads, options.rounds, options.seconds, options.equal
                )
            except PeerError as error:
                row += [error.status, "-", "-"]
                continue
            found.setdefault(workload, {})[peer] = {"alone": alone, "beside": beside}
            row += [time_text(alone), time_text(beside), f"{beside / alone:.2f}"]
        rows.append(row)
        write_json(options.output / name, {"threads": options.threads, "steps": found})
    head = ["workload", *(f"{peer}{what}" for peer in peers for what in ("", " beside", " x"))]
    print(table(head, rows))
    return 0


if __name__ == "__main__":
    exit_on_sigterm()
    raise SystemExit(main())
