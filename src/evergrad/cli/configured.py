"""What commands share that look at a training without doing it: its configuration and its step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import evergrad
from evergrad.core.rng.default_generator import using_generator
from evergrad.train.config import (
    DEFAULT_PRESET,
    PRESETS,
    ConfigError,
    RunConfig,
    override,
    preset,
    read_config,
)
from evergrad.train.directory import RunDirectory, missing_run
from evergrad.train.task import TASKS, task_class
from evergrad.utils.atomic_file import unwritable

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction
    from evergrad.train.state import TrainingState
    from evergrad.train.step import TrainingStep

DEFAULT_TASK = "gpt"


def trusts_tasks(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command ``--trust-task``, which names what a file may have imported."""
    return click.option(
        "--trust-task", multiple=True, metavar="MODULE:CLASS",
        help="Let the file name this task or data function, whose module is then imported.",
    )(command)  # fmt: skip


def takes_configuration(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options of a training: a task or file, a size, and ``--key value``.

    The function gets them as ``size``, ``words`` and ``trust_task``.
    """
    command = trusts_tasks(command)
    command = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")(command)
    return takes_size({name: f"The {name} preset of the task." for name in PRESETS})(command)


def takes_size(
    helps: dict[str, str],
) -> Callable[[AnyFunction], AnyFunction]:
    """Give a command a flag per preset, of which at most one may be present; the function gets
    its name, or ``None``, as ``size``."""

    def choose(context: click.Context, option: click.Parameter, is_given: bool) -> None:
        chosen = context.params.setdefault("size", None)
        if not is_given:
            return
        if chosen is not None:
            raise click.UsageError(f"--{chosen} and --{option.name} exclude each other", context)
        context.params["size"] = option.name

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        for name, text in reversed(helps.items()):
            flag = click.option(
                f"--{name}", is_flag=True, expose_value=False, callback=choose, help=text
            )
            command = flag(command)
        return command

    return decorate


# Options of the configuration are no options of the command, so click is to pass them on.
PASS_OPTIONS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": True}
METAVAR = "[WHAT] [--KEY VALUE]..."
# How the programs of a step are called in reports.
PROGRAMS = {
    "whole": "training step", "micro": "part for each micro-batch",
    "update": "part that changes weights",
}  # fmt: skip


def chosen_config(
    size: str | None, words: Sequence[str], trusted: Collection[str] = ()
) -> RunConfig:
    """The requested configuration: of a task, of a TOML file or of a run's folder."""
    named = bool(words) and not words[0].startswith("--")
    what, options = (words[0], words[1:]) if named else (DEFAULT_TASK, words)
    directory = RunDirectory(Path(what))
    if directory.holds_run():
        what = str(directory.config)
    return override(beginning(what, size, trusted), options)


def beginning(what: str, size: str | None, trusted: Collection[str] = ()) -> RunConfig:
    """The configuration that options are set in: a file's, or a preset of a task. What the words
    name is the user's choice; what a file names has to be in the table or ``trusted``."""
    path = Path(what)
    if path.suffix == ".toml":
        if size is not None:
            raise ConfigError(f'--{size} is for tasks; write preset = "{size}" in {path}')
        return read_config(path, trusted)
    if what not in TASKS and ":" not in what and path.exists():
        raise ConfigError(f"{what} is neither a task, a *.toml file nor the folder of a run")
    if what not in TASKS and ":" not in what and len(path.parts) > 1:
        raise missing_run(path)
    return preset(what, size or DEFAULT_PRESET)


def check_outputs(*paths: Path | None) -> None:
    """Raise ConfigError if a file could not be written, before the work whose result it holds."""
    for path in paths:
        problem = None if path is None else unwritable(path)
        if problem is not None:
            raise ConfigError(f"{path} cannot be written: {problem}")


class Prepared(NamedTuple):
    """A training that is ready for its first step."""

    state: TrainingState
    step: TrainingStep

    def programs(self) -> dict[str, tuple[Any, tuple[Any, ...]]]:
        """The compiled parts of a step by name (``whole``, or ``micro`` and ``update``), with the
        arguments of the first step."""
        if self.state.config.eager:
            raise ConfigError("an eager step is not compiled; leave out --eager")
        found = self.step.programs()
        return {program.function.__name__.strip("_"): (program, args) for program, args in found}


@contextmanager
def prepared(config: RunConfig) -> Iterator[Prepared]:
    """Make the model, the optimizer and the step of a training; inside, draws come from its seed.

    Nothing is written: there is no run's folder.
    """
    from evergrad.train.state import TrainingState  # start-up: layers and optimizers

    if config.threads:
        evergrad.set_num_threads(config.threads)
    task = task_class(config.task)(config, None)
    state = TrainingState(config, task)
    with using_generator(state.generator):
        yield Prepared(state, state.training_step())
