"""``evergrad sample``: a trained model continues a text, or fills a grid with pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import evergrad
from evergrad.cli.configured import check_outputs, trusts_tasks
from evergrad.train.checkpoint import read_checkpoint
from evergrad.train.config import ConfigError
from evergrad.train.exit_codes import ExitCode

if TYPE_CHECKING:
    from evergrad.nn.module import Module
    from evergrad.train.task import Task

PICTURES = 4  # of one prompt


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path), metavar="CHECKPOINT")
@click.option("--prompt", default="\n", help="The text to go on with.  [default: a new line]")
@click.option("--length", default=400, show_default=True, help="How many tokens to write.")
@click.option(
    "--temperature", default=0.8, show_default=True,
    help="Below 1 prefers what is likely, above 1 surprises; 0 always takes the likeliest.",
)  # fmt: skip
@click.option("--top-k", type=int, help="Choose among so many of the likeliest tokens.")
@click.option(
    "--top-p", type=float, help="Choose among the fewest tokens that are likely to this degree."
)
@click.option("--seed", type=int, help="The same seed writes the same text.")
@click.option(
    "--stream/--no-stream", default=True, help="Show tokens as they come (default), or at the end."
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Where pictures go.  [default: sample.png]"
)
@trusts_tasks
@click.option("--eager", is_flag=True, help="Without the compiler, to compare.")
def sample(
    checkpoint: Path, output: Path | None, seed: int | None, trust_task: tuple[str, ...],
    **options: Any,
) -> None:  # fmt: skip
    """Let a trained model go on with a text, or show pictures.

    CHECKPOINT is a file that `evergrad train` wrote, or the folder of a run: then its best
    checkpoint is taken. Language models (gpt, lstm) go on with --prompt; each token costs the same
    however much is written, and beyond the context the last half of it is read again. Models of
    pictures fill a grid in --output: a dit and a flux with pictures they make (a flux of the
    --prompt), the others with pictures they
    were not trained on, in green frames where they are recognised.

    \b
    Examples:
      evergrad sample runs/gpt --prompt "The for statement"
      evergrad sample runs/gpt --temperature 0.5 --top-k 20 --seed 1
      evergrad sample runs/gpt/checkpoints/step-000250.ckpt --length 1000 --no-stream > text.txt
      evergrad sample runs/dit --output shapes.png --seed 3
      evergrad sample runs/flux --prompt "a red circle left of a blue square"

    \b
    Exit codes: 0 done, 2 an option, path or prompt that cannot be used, 5 a checkpoint that is
    damaged or a run without any, 130 Ctrl-C.
    """
    check_outputs(output)
    task, model = _read(checkpoint, trust_task)
    if hasattr(task, "tokenizer"):
        _refuse(output, "--output is for pictures; this model writes text")
        _write(task.tokenizer, model, seed, **options)
    else:
        _show(task, model, seed, output, options["prompt"])


def _read(path: Path, trusted: tuple[str, ...]) -> tuple[Task, Module]:
    found = read_checkpoint(path, trusted)
    task = found.task()
    return task, found.model(task)


def _refuse(value: object, problem: str) -> None:
    if value is not None:
        raise ConfigError(problem)


def _write(
    tokenizer: Any, model: object, seed: int | None, *, prompt: str, length: int, stream: bool,
    eager: bool, **choice: Any,
) -> None:  # fmt: skip
    """Print the prompt and what follows it."""
    from evergrad.models.generate import Decoder, generate  # start-up: layers

    try:
        ids = tokenizer.encode(prompt)
    except ValueError as error:
        raise ConfigError(f"the prompt cannot be read by this model: {error}") from error
    try:
        drawn = generate(Decoder(model, compiled=not eager), ids, length, seed=seed, **choice)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    parts: Iterator[str] = tokenizer.stream(drawn) if stream else iter([tokenizer.decode(drawn)])
    click.echo(click.style(prompt, bold=True), nl=False)
    try:
        for part in parts:
            click.echo(part, nl=False)
    except KeyboardInterrupt:  # enough of it
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        click.echo()


def _show(task: Any, model: object, seed: int | None, output: Path | None, prompt: str) -> None:
    """Write what the task shows of a model: a grid of pictures, of a prompt if it takes one."""
    from evergrad.train.packages import package  # start-up: rarely used

    chosen = _any_seed() if seed is None else seed
    with evergrad.no_grad():
        if hasattr(task, "sample_prompts") and prompt.strip():
            made = task.sample_prompts(model, [prompt] * PICTURES, chosen)
        else:
            made = task.sample(model, chosen)
    if made is None or made.image is None:
        raise ConfigError(f"the task {task.name} shows no samples; sample a gpt, an lstm or a dit")
    path = Path("sample.png") if output is None else output
    package("PIL.Image").fromarray(made.image).save(path, format="PNG")
    click.echo(path)


def _any_seed() -> int:
    import secrets

    return secrets.randbelow(1 << 31)
