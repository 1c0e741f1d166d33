"""Time whole training steps of evergrad and its peers.

    python -m bench.peers.run --workloads gpt_tiny,lenet64 --threads 2,1 --rounds 7

Prints tables; writes peers.txt, peers.json and peers.png. A peer that fails or is missing gets an
entry that says so; the exit code tells whether evergrad's own steps all ran and agreed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.peers import report
from bench.peers.cells import Cell, Settings, measure
from bench.peers.contenders import PEERS
from bench.peers.frameworks import describe_machine, examine
from bench.peers.machine import processors
from bench.peers.processes import ROOT, exit_on_sigterm
from bench.peers.workloads import SEVERAL, WORKLOADS

from evergrad.train.directory import write_text

# What evergrad may say of a workload: timed, nothing to show, or the machine was never quiet.
_FINE = ("ok", "none", "disturbed")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.run", description=(__doc__ or "").splitlines()[0]
    )
    names = ", ".join([*WORKLOADS, *SEVERAL])
    parser.add_argument(
        "--workloads", type=_listed("workload", [*WORKLOADS, *SEVERAL]), default=list(WORKLOADS),
        help=f"separated by commas: {names}",
    )  # fmt: skip
    parser.add_argument(
        "--peers", type=_listed("peer", PEERS), default=list(PEERS),
        help=f"separated by commas: {', '.join(PEERS)}",
    )  # fmt: skip
    counts = [n for n in (2, 1) if n <= processors()]
    parser.add_argument("--threads", type=_thread_counts, default=counts, help="as in 2,1")
    parser.add_argument(
        "--rounds", type=_at_least_one, help="turns of each peer (7; with --quick 3)"
    )
    parser.add_argument("--timeout", type=_seconds, help="seconds to wait for an answer of a peer")
    parser.add_argument(
        "--quick", action="store_true",
        help="short turns, no warm start, disturbed rounds count: a test of the benchmark itself",
    )  # fmt: skip
    parser.add_argument("--no-warm", action="store_true", help="first steps with cold caches only")
    parser.add_argument("--keep-disturbed", action="store_true", help="show them, marked with ~")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="the time to count"
    )
    parser.add_argument(
        "--add", action="store_true", help="keep what the folder's peers.json has of other rows"
    )
    parser.add_argument("--output", type=Path, help="the folder of peers.json and peers.png")
    return parser.parse_args(arguments)


def _listed(kind: str, known: Iterable[str]) -> Callable[[str], list[str]]:
    def parse_names(text: str) -> list[str]:
        found: list[str] = []
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"no {kind} {name!r}; there are: {', '.join(known)}"
                )
            found += [n for n in SEVERAL.get(name, (name,)) if n not in found]
        return found

    return parse_names


def _thread_counts(text: str) -> list[int]:
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers, as in 2,1") from None
    if not all(1 <= count <= processors() for count in counts):
        raise argparse.ArgumentTypeError(
            f"{text!r}: this machine has {processors()} processor(s) to run threads on"
        )
    return counts


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds, 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def settings_of(options: argparse.Namespace) -> Settings:
    """How to measure, by the options of the command line."""
    quick = options.quick
    return Settings(
        rounds=options.rounds or (3 if quick else 7),
        seconds=0.1 if quick else 0.5,
        timeout=options.timeout or (180.0 if quick else 600.0),
        warm=not (quick or options.no_warm),
        keep_disturbed=options.keep_disturbed or quick,
        clock=options.clock,
    )


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    settings = settings_of(options)
    # Quick results are no results: they stay out of the folder that is kept.
    folder = options.output or ROOT / ("build/bench" if options.quick else "bench/results")
    folder.mkdir(parents=True, exist_ok=True)
    # Results that are kept are written when all are there; --output build/bench --add goes on
    # after an interruption.
    unfinished = ROOT / "build" / "bench"
    unfinished.mkdir(parents=True, exist_ok=True)
    place = describe_machine()
    frameworks = examine(options.peers, 1 if options.quick else 5, settings.timeout)
    wanted = {(name, count) for name in options.workloads for count in options.threads}
    earlier = report.read_cells(folder / "peers.json") if options.add else []
    cells = [cell for cell in earlier if (cell.workload, cell.threads) not in wanted]
    for threads in options.threads:
        for workload in options.workloads:
            print(f"{workload}, threads: {threads} ...", flush=True)
            cells.append(measure(workload, threads, options.peers, settings))
            cells.sort(key=_order)
            content = report.data(cells, frameworks, settings, place)
            report.write_json(unfinished / "peers.json", content)
    report.write_json(folder / "peers.json", report.data(cells, frameworks, settings, place))
    peers = [peer for peer in PEERS if any(peer in cell.results for cell in cells)]
    told = report.text(cells, peers, frameworks, settings)
    write_text(folder / "peers.txt", f"{told}\n")
    print(f"\n{told}\n\nData: {folder / 'peers.json'}")
    print(report.draw(folder / "peers.png", cells))
    return 0 if all(_fine(cell) for cell in cells) else 1


def _order(cell: Cell) -> tuple[int, int]:
    """More threads first, then as the workloads are listed."""
    return -cell.threads, list(WORKLOADS).index(cell.workload)


def _fine(cell: Cell) -> bool:
    """Whether evergrad's own entries ran and agreed."""
    own = [r for r in cell.results.values() if r.peer.startswith("evergrad")]
    return all(r.status in _FINE for r in own)


if __name__ == "__main__":
    exit_on_sigterm()
    raise SystemExit(main())
