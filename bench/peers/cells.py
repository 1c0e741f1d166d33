"""Measuring one workload with some number of threads: all peers side by side.

Peers start one after the other; those whose losses agree take turns, round after round. A round
in which the machine was used by others is thrown away, and another one is run instead.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.contenders import PEERS, REFERENCE, SUBJECT
from bench.peers.limits import Limit, limit_of
from bench.peers.machine import Turn
from bench.peers.processes import PeerError, PeerProcess, environment, run_python

# How far a loss (or a norm of a gradient) may be from the reference's, relatively, after so many
# steps. Single precision and another order of summation explain this much and no more.
TOLERANCE = {1: 1e-4, 5: 1e-3}
# Rounds are repeated until enough were quiet, at most this many times as many.
_PATIENCE = 3


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    rounds: int = 7
    seconds: float = 0.5
    timeout: float = 600.0
    # A second process, with the caches that the first one filled, tells the warm start.
    warm: bool = True
    # Show the time of disturbed rounds where there is no quiet one.
    keep_disturbed: bool = False
    # Which time counts: "wall", or "cpu" where the machine is never quiet.
    clock: str = "wall"


@dataclass
class Result:
    """What one peer did on one workload. ``status`` is "ok" if its time counts."""

    peer: str
    status: str = "ok"
    reason: str = ""
    trace: str = ""
    seconds: float | None = None
    first_cold: float | None = None
    first_warm: float | None = None
    steady_bytes: int | None = None
    peak_bytes: int | None = None
    # All that the process holds, with its framework.
    resident_bytes: int | None = None
    checks: dict[int, list[float]] = field(default_factory=dict)
    quiet_rounds: int = 0
    disturbed_rounds: int = 0

    def refuse(self, error: PeerError) -> None:
        self.status, self.reason = error.status, error.reason
        self.trace = "" if error.status == "none" else error.trace  # nothing went wrong
        self.seconds = None


@dataclass
class Cell:
    """A workload with a number of threads, and what every peer did on it."""

    workload: str
    threads: int
    results: dict[str, Result]
    limit: Limit | None = None

    def quiet(self) -> bool:
        """Whether the times are of rounds that nobody disturbed."""
        return all(r.quiet_rounds for r in self.results.values() if r.seconds is not None)

    def best_peer(self) -> Result | None:
        """The fastest of the other frameworks."""
        others = [r for r in self.results.values() if not r.peer.startswith("evergrad")]
        timed = [r for r in others if r.seconds is not None]
        return min(timed, key=lambda r: r.seconds or math.inf, default=None)

    def ratio(self) -> float | None:
        """The best peer's time over evergrad's: above 1, evergrad is faster."""
        best, own = self.best_peer(), self.results.get(SUBJECT)
        if best is None or own is None or best.seconds is None or own.seconds is None:
            return None
        return best.seconds / own.seconds


def measure(workload: str, threads: int, peers: Sequence[str], settings: Settings) -> Cell:
    """Run all peers on a workload; a peer that cannot do it gets a result that says why."""
    cell = Cell(workload, threads, {name: Result(name) for name in peers})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evergrad-bench-")))
        arrays = str(folder / "start.npz")
        if any(PEERS[name].from_arrays for name in peers):
            _save_start(workload, arrays, settings)
        running: dict[str, PeerProcess] = {}
        for result in cell.results.values():
            request = {
                "peer": result.peer, "workload": workload, "threads": threads, "arrays": arrays,
            }  # fmt: skip
            try:
                running[result.peer] = _start(
                    result, request, folder / result.peer, settings, stack
                )
            except PeerError as error:
                result.refuse(error)
        if SUBJECT in running:
            cell.limit = limit_of(workload, threads, folder / "limits", settings.timeout)
        _compare_losses(cell, running)
        _take_turns(cell, running, settings)
        _finish(cell, running)
    return cell


def _save_start(workload: str, path: str, settings: Settings) -> None:
    """Keep the start of the workload as arrays; a peer that misses them says so."""
    code = "import sys; from bench.peers.contenders import save_start; save_start(*sys.argv[1:])"
    try:
        run_python(code, settings.timeout, workload, path)
    except PeerError as error:
        print(f"  the start of {workload} could not be saved: {error.reason}", flush=True)


def _start(
    result: Result, request: dict[str, Any], caches: Path, settings: Settings, stack: ExitStack
) -> PeerProcess:
    """A peer that has done its first steps; the stack ends it, however far it came."""
    env = environment(request["threads"], caches)

    def launch() -> PeerProcess:
        process = PeerProcess(request, env, settings.timeout)
        stack.callback(process.end)
        return process

    process = launch()
    result.first_cold = _first_step(process, result)
    if settings.warm:
        process.finish()
        process = launch()
        result.first_warm = _first_step(process, result)
    return process


def _first_step(process: PeerProcess, result: Result) -> float:
    """Wait until the first steps are done; gives the seconds of the very first."""
    baseline = process.answer()["baseline_bytes"]
    started = process.answer()
    result.checks = {int(step): values for step, values in started["checks"].items()}
    result.steady_bytes = result.peak_bytes = None if baseline is None else -baseline
    return float(started["first"]["wall"])


# -- agreement -----------------------------------------------------------------------------------


def disagreement(checks: dict[int, list[float]], reference: dict[int, list[float]]) -> str | None:
    """What differs by more than the tolerance, in words, or None."""
    for step, tolerance in TOLERANCE.items():
        for number, (found, wanted) in enumerate(zip(checks[step], reference[step], strict=True)):
            if not math.isclose(found, wanted, rel_tol=tolerance, abs_tol=1e-7):
                what = "loss" if number == 0 else f"norm of gradient {number}"
                return f"{what} after {step}: {found:.7g} instead of {wanted:.7g}"
    return None


def _compare_losses(cell: Cell, running: dict[str, PeerProcess]) -> None:
    """Refuse the peers that compute something else than the reference."""
    names = [name for name in (REFERENCE, "evergrad eager", *running) if name in running]
    if not names:
        return
    reference = cell.results[names[0]].checks
    for name in list(running):
        difference = disagreement(cell.results[name].checks, reference)
        if difference is not None:
            cell.results[name].refuse(PeerError("disagrees", difference))
            running.pop(name).end()


# -- rounds --------------------------------------------------------------------------------------


def _take_turns(cell: Cell, running: dict[str, PeerProcess], settings: Settings) -> None:
    """Rounds until enough were quiet; sets the medians."""
    quiet: list[dict[str, Turn]] = []
    disturbed: list[dict[str, Turn]] = []
    _round(cell, running, settings, first=0)  # settles the number of steps; its time is not used
    for number in range(_PATIENCE * settings.rounds):
        turns = _round(cell, running, settings, first=number)
        (disturbed if any(t.disturbed() for t in turns.values()) else quiet).append(turns)
        enough = len(quiet) + (len(disturbed) if settings.keep_disturbed else 0)
        if enough >= settings.rounds:
            break
    for name in running:
        _set_median(cell.results[name], quiet, disturbed, settings)


def _round(
    cell: Cell, running: dict[str, PeerProcess], settings: Settings, first: int
) -> dict[str, Turn]:
    """One turn for each peer; who begins changes from round to round."""
    names = list(running)
    turns: dict[str, Turn] = {}
    for number in range(len(names)):
        name = names[(first + number) % len(names)]
        try:
            turns[name] = Turn(**running[name].ask(seconds=settings.seconds)["turn"])
        except PeerError as error:
            cell.results[name].refuse(error)
            del running[name]
    return turns


def _set_median(
    result: Result, quiet: list[dict[str, Turn]], disturbed: list[dict[str, Turn]],
    settings: Settings,
) -> None:  # fmt: skip
    result.quiet_rounds, result.disturbed_rounds = len(quiet), len(disturbed)
    rounds = quiet or (disturbed if settings.keep_disturbed else [])
    if not rounds:
        reason = f"others used the machine in all {len(disturbed)} rounds"
        result.refuse(PeerError("disturbed", reason))
        return
    result.seconds = statistics.median(
        getattr(turns[result.peer], settings.clock) / turns[result.peer].steps for turns in rounds
    )


def _finish(cell: Cell, running: dict[str, PeerProcess]) -> None:
    """End the peers; sets how much memory they took above what they held when imported."""
    for name, process in running.items():
        result = cell.results[name]
        try:
            last = process.finish()
        except PeerError as error:
            result.refuse(error)
            continue
        if result.peak_bytes is not None and result.steady_bytes is not None:
            result.peak_bytes += max(last["first_peak_bytes"], last["peak_bytes"])
            result.steady_bytes += last["peak_bytes"]
            result.resident_bytes = last["peak_bytes"]
