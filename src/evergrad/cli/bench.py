"""``evergrad bench``: how long training steps take here, compiled and eager, and beside peers."""

from __future__ import annotations

import dataclasses
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import click

import evergrad
from evergrad.cli.configured import prepared
from evergrad.train.config import PRESETS, ConfigError, RunConfig, nearest, preset
from evergrad.train.task import TASKS

_WARM_UP = 3  # steps in which programs are made
_HEAD = "task      parameters  compiled, ms     eager, ms    ratio   per second"
_TURNS = 5  # the ways to run a step take turns, so that a disturbance meets both


@dataclass(frozen=True)
class Timing:
    """What a step of a task takes, in seconds."""

    task: str
    parameters: int
    units_per_step: int
    unit: str
    compiled: float
    eager: float

    @property
    def units_per_second(self) -> float:
        return self.units_per_step / self.compiled


def time_task(config: RunConfig, seconds: float) -> Timing:
    """Time steps of a training, compiled and eager, for about so long each."""
    eager = dataclasses.replace(config, eager=True)
    with prepared(config) as ours, prepared(eager) as plain:
        found: list[list[float]] = [[], []]
        steps = [_warmed(training.step) for training in (ours, plain)]
        for _ in range(_TURNS):
            for step, times in zip(steps, found, strict=True):
                times += _timed(step, seconds / _TURNS)
        task = ours.state.task
        return Timing(
            config.task, sum(p.numel() for p in ours.state.model.parameters()),
            task.units_per_batch * config.accumulate, task.unit, *map(statistics.median, found),
        )  # fmt: skip


def _warmed(step: Callable[[int], object]) -> Callable[[], object]:
    """The next step at each call, after the first ones."""
    numbers = count()
    for _ in range(_WARM_UP):
        step(next(numbers))
    return lambda: step(next(numbers))


def _timed(step: Callable[[], object], seconds: float) -> list[float]:
    """The times of single steps, one at least."""
    times: list[float] = []
    while not times or sum(times) < seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def _misplaced(word: str) -> str:
    """Why a word that is no option of this command is refused."""
    name = word.removeprefix("--")
    if name in PRESETS:
        return f"there is no option {word!r} here; write --size {name}"
    return f"{word!r} is for the peers; write it after --peers --"


# -- the command --------------------------------------------------------------------------------


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--tasks", default=",".join(TASKS), show_default=True, help="Separated by commas.")
@click.option("--size", type=click.Choice(PRESETS), default=PRESETS[0], show_default=True,
              help="The preset of each task.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=2.0,
              show_default=True, help="How long to time each way of each task.")  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), help="Threads to use; all cores if absent.")
@click.option("--json", "as_json", is_flag=True, help="Print the times as JSON.")
@click.option("--peers", is_flag=True, help="Against PyTorch and JAX; needs a source checkout.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF THE PEERS]")
def bench(
    tasks: str, size: str, seconds: float, threads: int | None, as_json: bool, peers: bool,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    """Time training steps: compiled, eager, and beside other libraries.

    Each task's step (forward, backward, clipping, AdamW) is timed compiled and eager, in turns; the
    times are medians. With --peers the benchmark of the source checkout runs instead, which times
    the same steps in PyTorch and JAX too and checks that all compute the same.

    \b
    Examples:
      evergrad bench
      evergrad bench --tasks gpt,lenet --size small --seconds 5
      evergrad bench --peers -- --workloads gpt_tiny --quick

    \b
    Exit codes: 0 if all ran, 2 for an option that cannot be used; with --peers 1 if a step of
    evergrad's failed or computed something else.
    """
    if peers:
        sys.exit(_run_peers(words))
    if words:
        raise ConfigError(_misplaced(words[0]))
    if threads is not None:
        evergrad.set_num_threads(threads)
    timings = []
    for config in [preset(task, size) for task in _chosen(tasks)]:
        timings.append(time_task(config, seconds))
        if not as_json:
            click.echo(_line(timings[-1], with_head=len(timings) == 1))
    if as_json:
        click.echo(json.dumps([asdict(timing) for timing in timings], indent=1))


def _chosen(tasks: str) -> list[str]:
    names = tasks.split(",")
    for name in names:
        if name not in TASKS:
            raise ConfigError(f"there is no task {name!r}{nearest(name, TASKS)}")
    return names


def _line(timing: Timing, with_head: bool) -> str:
    ratio = timing.eager / timing.compiled
    row = (
        f"{timing.task:<8}{timing.parameters:>12,}{timing.compiled * 1e3:>14.2f}"
        f"{timing.eager * 1e3:>14.2f}{ratio:>9.2f}   {timing.units_per_second:,.0f} {timing.unit}"
    )
    return f"{_HEAD}\n{row}" if with_head else row


def _run_peers(words: Sequence[str]) -> int:
    """Run the benchmark against peers, which is a package of the repository, not of the wheel."""
    root = Path(evergrad.__file__).parents[2]
    if not (root / "bench" / "peers" / "run.py").is_file():
        raise ConfigError(
            "the benchmark against peers is part of the source checkout, and this evergrad is "
            "installed without it; in a checkout run `make bench`, which also installs the peers"
        )
    command = [sys.executable, "-m", "bench.peers.run", *words]
    process = subprocess.Popen(command, cwd=root)
    with ending_with(process):
        return process.wait()


@contextmanager
def ending_with(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process when this one is ended: Ctrl-C and SIGTERM reach it as SIGTERM, which it has
    time to act on, since it has processes of its own."""
    former = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        signal.signal(signal.SIGTERM, former)
