"""``evergrad report``: the curves of a run as pictures, and its report as one page."""

from __future__ import annotations

from pathlib import Path

import click

from evergrad.cli.configured import trusts_tasks
from evergrad.train.report import write_report


@click.command()
@trusts_tasks
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
def report(run: Path, trust_task: tuple[str, ...]) -> None:
    """Draw the curves of a run and write its report.

    RUN is the folder that `evergrad train` named. The report is written at the end of each run;
    this command makes it at any time, also while the run continues or after it was killed. The
    pictures (loss, learning rate, memory, speed, samples) and report.html, one page that needs no
    other file, go to the folder of the run.

    \b
    Examples:
      evergrad report runs/gpt

    \b
    Exit codes: 0 if the report is written, 2 if RUN holds no run.
    """
    for path in write_report(run, trust_task):
        click.echo(path)
