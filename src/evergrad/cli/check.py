"""``evergrad check``: the self-test of an installation.

The checks are those of :mod:`evergrad.testing`, which the test suite runs as well; this module
chooses among them, shows the progress and gives the verdict.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import click

from evergrad.testing.checks import CHECKS, has_derivative
from evergrad.testing.compiled import check_compiled_gradient, check_compiled_values
from evergrad.testing.samples import Sample
from evergrad.testing.samples.table import all_samples
from evergrad.testing.training import check_compiled_training, check_steady, check_threads

_SHOWN_FAILURES = 20
# Steps of the trainings.
FEW_STEPS, MANY_STEPS = 20, 200


@dataclass(frozen=True)
class Job:
    """One thing to check; it raises if something is wrong."""

    name: str
    run: Callable[[], None]


@dataclass(frozen=True)
class Stage:
    """Jobs that prove one thing."""

    title: str
    jobs: list[Job]


@dataclass(frozen=True)
class Failure:
    """A job that did not pass."""

    stage: str
    job: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """What a stage came to."""

    title: str
    checked: int
    seconds: float
    failures: list[Failure]


# -- what is checked ----------------------------------------------------------------------------


def stages(quick: bool) -> list[Stage]:
    """All stages. A quick check takes the first sample of each row, and not every property."""
    rows = [_some(samples, quick) for _, samples in sorted(all_samples().items())]
    found = [
        _sampled("values against NumPy", "value", rows),
        _sampled("gradients, both modes, against finite differences", "gradient", rows),
        Stage("compiled values against eager", [
            Job(row[0].row, partial(check_compiled_values, row)) for row in rows
        ]),
    ]  # fmt: skip
    if not quick:
        found += [
            _sampled("second derivatives against finite differences", "second_gradient", rows),
            Stage("compiled gradients against eager", _compiled_gradients(rows)),
            _sampled("nothing left after derivatives up to the third", "leaks", rows),
        ]
    return [*found, *_trainings(FEW_STEPS if quick else MANY_STEPS)]


def _some(samples: list[Sample], quick: bool) -> list[Sample]:
    """The samples of a row to look at: all, or one that says most of it."""
    return sorted(samples, key=has_derivative, reverse=True)[:1] if quick else samples


def _sampled(title: str, check: str, rows: Iterable[list[Sample]]) -> Stage:
    chosen = CHECKS[check]
    jobs = [
        Job(str(sample), partial(chosen.run, sample))
        for row in rows
        for sample in row
        if chosen.applies(sample)
    ]
    return Stage(title, jobs)


def _compiled_gradients(rows: Iterable[list[Sample]]) -> list[Job]:
    """One sample of each row: machine code takes its time, and rows share their formulas."""
    first = (next(filter(has_derivative, row), None) for row in rows)
    return [Job(str(s), partial(check_compiled_gradient, s)) for s in first if s is not None]


def _trainings(steps: int) -> list[Stage]:
    ways = (("eager", False), ("compiled", True))
    return [
        Stage("a compiled training against eager", [
            Job("training", check_compiled_training),
        ]),
        Stage("two threads train, each to the bit as alone", [
            Job(name, partial(check_threads, compiled, steps)) for name, compiled in ways
        ]),
        Stage("every training step ends with the same live bytes", [
            Job(name, partial(check_steady, compiled, steps)) for name, compiled in ways
        ]),
    ]  # fmt: skip


# -- running ------------------------------------------------------------------------------------


def run_stage(stage: Stage, advance: Callable[[], None]) -> Outcome:
    """Do all jobs of a stage; whatever a job raises is its failure."""
    failures = []
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samples are at the edges of what ops take
        for job in stage.jobs:
            try:
                job.run()
            except Exception as error:
                message = str(error) if isinstance(error, AssertionError) else repr(error)
                failures.append(Failure(stage.title, job.name, message))
            advance()
    return Outcome(stage.title, len(stage.jobs), time.perf_counter() - start, failures)


def _run_all(chosen: list[Stage], show: bool) -> Iterator[Outcome]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    # Without a terminal a bar would only fill a log.
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as bar:
        task = bar.add_task("", total=sum(len(stage.jobs) for stage in chosen))
        for stage in chosen:
            bar.update(task, description=stage.title)
            yield run_stage(stage, partial(bar.advance, task))


# -- the command --------------------------------------------------------------------------------


@click.command()
@click.option("--quick", is_flag=True, help="One sample of each op: some ten seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def check(quick: bool, as_json: bool) -> None:
    """Test this installation: is everything computed rightly on this machine?

    Checks every op of the table (values, first and second derivatives, compiled code, memory),
    then trains a small model: compiled against eager, in two threads at once, and with the live
    bytes counted after each step. It takes about a minute, the first time longer: machine code is
    made and kept.

    \b
    Examples:
      evergrad check
      evergrad check --quick
      evergrad check --json > check.json

    \b
    Exit codes: 0 if everything is right, 1 if something is not; it is named.
    """
    outcomes = []
    for outcome in _run_all(stages(quick), show=not as_json):
        outcomes.append(outcome)
        if not as_json:
            click.echo(_line(outcome))
    if as_json:
        click.echo(json.dumps(_as_data(outcomes), indent=1))
    else:
        click.echo(_verdict(outcomes))
    sys.exit(1 if _failures(outcomes) else 0)


def _failures(outcomes: list[Outcome]) -> list[Failure]:
    return [failure for outcome in outcomes for failure in outcome.failures]


def _as_data(outcomes: list[Outcome]) -> dict[str, object]:
    return {
        "ok": not _failures(outcomes),
        "seconds": sum(outcome.seconds for outcome in outcomes),
        "stages": [asdict(outcome) for outcome in outcomes],
    }


def _line(outcome: Outcome) -> str:
    if outcome.failures:
        sign = click.style(f"{len(outcome.failures)} wrong", fg="red")
    else:
        sign = click.style("ok", fg="green")
    return f"{outcome.checked:>6,}  {outcome.title}: {sign} ({outcome.seconds:.1f} s)"


def _verdict(outcomes: list[Outcome]) -> str:
    failures = _failures(outcomes)
    checked = sum(outcome.checked for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    if not failures:
        words = f"All {checked:,} checks passed in {seconds:.0f} s: this installation is right."
        return "\n" + click.style(words, fg="green", bold=True)
    lines = [f"  {f.job} ({f.stage})\n    {f.message}" for f in failures[:_SHOWN_FAILURES]]
    if len(failures) > _SHOWN_FAILURES:
        lines.append(f"  and {len(failures) - _SHOWN_FAILURES} more (--json lists all)")
    words = f"{len(failures)} of {checked:,} checks failed: do not trust results of this machine."
    advice = "Please report this with the output of `evergrad doctor`."
    return "\n".join(["", click.style(words, fg="red", bold=True), *lines, advice])
