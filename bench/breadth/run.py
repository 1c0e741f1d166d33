"""Many kinds of workloads beside PyTorch: see README.md.

python -m bench.breadth.run [--quick] [--only WORD] [--contenders torch,evergrad]
                            [--threads 2] [--clock wall] [--rounds 5] [--seconds 0.2]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.breadth import report
from bench.breadth.catalogue import WORKLOADS
from bench.breadth.contenders import CONTENDERS
from bench.peers.frameworks import describe_machine
from bench.peers.processes import ROOT, exit_on_sigterm

from evergrad.train.directory import write_text

_QUICK = [name for name in CONTENDERS if name != "torch.compile"]


def in_processes(names: list[str], request: dict[str, Any], timeout: float) -> Iterator[Any]:
    """What workers found, one entry for each workload; a worker that dies or hangs costs one
    workload, and the next worker takes the rest."""
    remaining = list(names)
    while remaining:
        for entry in _one_process(remaining, request, timeout):
            remaining.remove(entry["workload"])
            yield entry
        if remaining:
            name = remaining.pop(0)
            died = {"status": "died", "reason": f"the process ended or took {timeout:g} s"}
            results = dict.fromkeys(request["contenders"], died)
            yield {"workload": name, "family": WORKLOADS[name].family, "results": results}


def _one_process(names: list[str], request: dict[str, Any], timeout: float) -> Iterator[Any]:
    command = [sys.executable, "-m", "bench.breadth.worker"]
    command.append(json.dumps({"workloads": names, **request}))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    alarm = threading.Timer(timeout, process.kill)
    alarm.start()
    try:
        for line in process.stdout:
            alarm.cancel()
            yield json.loads(line)
            alarm = threading.Timer(timeout, process.kill)
            alarm.start()
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="workloads or families with one of these words")
    parser.add_argument("--contenders", help="of " + ", ".join(CONTENDERS))
    parser.add_argument("--quick", action="store_true", help="short turns, no torch.compile")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one turn")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--folder", type=Path, help="for the results")
    options = parser.parse_args(arguments)
    quick = options.quick
    options.contenders = (options.contenders or ",".join(_QUICK if quick else CONTENDERS)).split(
        ","
    )
    options.rounds = options.rounds or (3 if quick else 7)
    options.seconds = options.seconds or (0.02 if quick else 0.2)
    options.folder = options.folder or ROOT / ("build/bench" if quick else "bench/results")
    return options


def chosen(words: str) -> list[str]:
    """The names of workloads that have one of the words in their name or family."""
    parts = words.split(",")
    return [
        name
        for name, workload in WORKLOADS.items()
        if any(part in name or part == workload.family for part in parts)
    ]


def main() -> None:
    options = parse()
    request = {
        "contenders": options.contenders, "threads": options.threads, "rounds": options.rounds,
        "seconds": options.seconds, "clock": options.clock,
    }  # fmt: skip
    entries: list[dict[str, Any]] = []
    for entry in in_processes(chosen(options.only), request, options.timeout):
        entries.append(entry)
        print(report.table([entry], options.contenders).splitlines()[-1], flush=True)
    text = f"{report.table(entries, options.contenders)}\n\n{report.summary(entries)}\n"
    print(f"\n{text}")
    options.folder.mkdir(parents=True, exist_ok=True)
    found = {"machine": describe_machine(), **request, "workloads": entries}
    write_text(options.folder / "breadth.json", json.dumps(found, indent=1))
    write_text(options.folder / "breadth.txt", text)
    report.plot(entries, options.folder / "breadth.png")


if __name__ == "__main__":
    exit_on_sigterm()
    main()
