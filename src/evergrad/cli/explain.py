"""``evergrad explain``: what the compiler made of a training step."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evergrad.cli.configured import (
    METAVAR,
    PASS_OPTIONS_ON,
    PROGRAMS,
    check_outputs,
    chosen_config,
    prepared,
    takes_configuration,
)
from evergrad.train.config import RunConfig

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject


def explanations(config: RunConfig) -> JsonObject:
    """The explanation of each program of a training step. No step is done."""
    with prepared(config) as training:
        found = {
            name: program.explain(*arguments)
            for name, (program, arguments) in training.programs().items()
        }
    for name, explanation in found.items():
        explanation.data["function"] = f"the {config.task} {PROGRAMS.get(name, name)}"
    return found


@click.command(context_settings=PASS_OPTIONS_ON, options_metavar=METAVAR)
@takes_configuration
@click.option("--html", type=click.Path(path_type=Path), help="Write everything to this page.")
@click.option("--json", type=click.Path(path_type=Path), help="Write everything to this file.")
def explain(
    size: str | None, words: tuple[str, ...], html: Path | None, json: Path | None,
    trust_task: tuple[str, ...],
) -> None:  # fmt: skip
    """Show what the compiler made of a training step.

    WHAT is gpt (the default) or another task, a TOML file or the folder of a run. Shown are the
    nodes (fusion groups and single ops) of the compiled step with their times and lines, its
    memory, the calls left to NumPy, its guards, and the graphs; the page also has the code of
    each kernel.
    With --accumulate there are two programs (micro and update), each with a page of its own.

    \b
    Examples:
      evergrad explain --tiny | head -40
      evergrad explain lenet --html step.html
      evergrad explain gpt --layers 2 --json step.json

    \b
    Exit codes: 0 if it is shown, 2 for an option or file that cannot be used, 6 if the
    step cannot be done within --memory-limit.
    """
    check_outputs(html, json)
    found = explanations(chosen_config(size, words, trust_task))
    if html is not None:
        for name, explanation in found.items():
            _write(_place(html, name, len(found)), explanation.html())
    if json is not None:
        data = {name: explanation.json() for name, explanation in found.items()}
        _write(json, json_format.dumps(data, indent=1))
    if html is None and json is None:
        click.echo_via_pager("\n\n".join(str(e) for e in found.values()))


def _place(path: Path, name: str, programs: int) -> Path:
    """The file of a program: of several, each gets a page of its own."""
    return path if programs == 1 else path.with_stem(f"{path.stem}-{name}")


def _write(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    click.echo(path)
