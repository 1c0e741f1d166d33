"""``evergrad memory``: what a training needs in memory, and when, without training."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evergrad import html
from evergrad.cli.configured import (
    METAVAR,
    PASS_OPTIONS_ON,
    PROGRAMS,
    check_outputs,
    chosen_config,
    prepared,
    takes_configuration,
)
from evergrad.cli.timeline import draw_timeline
from evergrad.memory.reports import size as told
from evergrad.train.config import RunConfig

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject

_AT_PEAK = 12


@dataclass(frozen=True)
class Plans:
    """The memory of a training: its table and the plan of each of its programs as plain data."""

    parameters: int
    rows: list[tuple[str, str, str]]  # name, bytes, note
    programs: dict[str, JsonObject]

    @property
    def activations(self) -> int:
        return sum(int(program["peak"]) for program in self.programs.values())


def plan_training(config: RunConfig) -> Plans:
    """Plan a training; nothing is run but what makes the model."""
    from evergrad.compiler.explain.report import memory_data  # start-up: the compiler
    from evergrad.train.memory_table import MemoryTable  # start-up: layers and optimizers

    with prepared(config) as training:
        plans = {
            name: memory_data(program.plan(*arguments))
            for name, (program, arguments) in training.programs().items()
        }
        table = MemoryTable(training.state, training.step)
        rows = [(name, planned, note) for name, planned, _, note in table.as_text_rows()]
        count = sum(p.numel() for p in training.state.model.parameters())
    return Plans(count, rows, plans)


@click.command(context_settings=PASS_OPTIONS_ON, options_metavar=METAVAR)
@takes_configuration
@click.option("--html", type=click.Path(path_type=Path), help="Write the plan to this page too.")
def memory(
    size: str | None, words: tuple[str, ...], html: Path | None, trust_task: tuple[str, ...]
) -> None:  # fmt: skip
    """Show the memory plan of a training, without training.

    WHAT is gpt (the default) or another task, a TOML file or the folder of a run. Shown are the
    bytes of parameters, gradients, optimizer and activations and their peak; then how many bytes of
    activations are alive in each wave of the compiled step, and who they are at the peak. With
    --memory-limit values are computed again instead of kept until the activations fit.

    \b
    Examples:
      evergrad memory
      evergrad memory gpt --layers 8 --batch 32
      evergrad memory gpt --memory-limit 20MB
      evergrad memory runs/gpt --html plan.html

    \b
    Exit codes: 0 if the plan is shown, 2 for an option or file that cannot be used, 6 if the step
    cannot be done within --memory-limit.
    """
    check_outputs(html)
    config = chosen_config(size, words, trust_task)
    plans = plan_training(config)
    click.echo(as_text(config, plans))
    if config.memory_limit is not None:
        click.echo(f"\n{_effect(config, plans)}")
    if html is not None:
        html.write_text(as_page(config, plans), encoding="utf-8")
        click.echo(f"\n{html}")


def _effect(config: RunConfig, plans: Plans) -> str:
    """What a limit changes."""
    free = plan_training(dataclasses.replace(config, memory_limit=None))
    limit = told(config.memory_limit or 0)
    if free.activations == plans.activations:
        return f"the limit of {limit} changes nothing: the activations fit without it"
    return (
        f"within the limit of {limit} the activations take {told(plans.activations)} instead of "
        f"{told(free.activations)}; what is missing is computed again"
    )


# -- showing ------------------------------------------------------------------------------------


def as_text(config: RunConfig, plans: Plans) -> str:
    """The plan for a terminal."""
    name_width = max(len(name) for name, _, _ in plans.rows)
    width = max(len(nbytes) for _, nbytes, _ in plans.rows)
    lines = [_title(config, plans), ""]
    lines += [f"  {n:<{name_width}}  {b:>{width}}  {note}".rstrip() for n, b, note in plans.rows]
    for name, program in plans.programs.items():
        lines += ["", f"activations over time, in the {_heading(name)}", ""]
        lines += [draw_timeline(program["timeline"]), "", "alive at the peak", *_peak(program)]
    return "\n".join(lines)


def _title(config: RunConfig, plans: Plans) -> str:
    return f"{config.task}: {plans.parameters:,} parameters, batches of {config.batch}"


def _heading(name: str) -> str:
    """How a program of the step is called."""
    return PROGRAMS.get(name, name)


def _peak(program: JsonObject) -> list[str]:
    living = [program["buffers"][number] for number in program["at_peak"]]
    lines = [f"{told(b['bytes']):>12}  {b['label']}" for b in living[:_AT_PEAK]]
    rest = living[_AT_PEAK:]
    if rest:
        lines.append(f"{told(sum(b['bytes'] for b in rest)):>12}  in {len(rest)} more")
    return lines


def as_page(config: RunConfig, plans: Plans) -> str:
    """The plan as one page that needs nothing else, the arena drawn buffer by buffer."""
    from evergrad.compiler.explain.html import drawing, peak_table  # start-up: the compiler

    rows = [(nbytes, name, note) for name, nbytes, note in plans.rows]
    parts = [html.paragraph(_title(config, plans)), html.table(("bytes", "for", ""), rows, 1)]
    for name, program in plans.programs.items():
        held = drawing(program) + peak_table(program)
        parts.append(html.section(f"Activations in the {_heading(name)}", held))
    return html.page(f"What training {config.task} needs in memory", parts)
