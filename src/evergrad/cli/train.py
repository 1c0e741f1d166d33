"""``evergrad train``: from words on a command line to a run, and from its end to an exit code."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path

import click

from evergrad.cli.configured import (
    DEFAULT_TASK,
    METAVAR,
    PASS_OPTIONS_ON,
    beginning,
    takes_size,
    trusts_tasks,
)
from evergrad.cli.failures import exit_code_of, report_failure
from evergrad.distributed.mpi import launched_size
from evergrad.train.config import (
    ConfigError,
    RunConfig,
    override,
    preset,
    read_config,
    settable,
    value_of,
)
from evergrad.train.directory import (
    RUNS,
    RunDirectory,
    latest_directory,
    missing_run,
    new_directory,
    run_name,
)
from evergrad.train.exit_codes import ExitCode
from evergrad.train.option_help import options_help
from evergrad.train.task import TASKS

# What the steps so far depend on: a resumed run cannot have another.
_FIXED = ("task", "seed", "batch", "accumulate", "precision", "model", "data")


class TrainCommand(click.Command):
    """A command whose help ends with the options of the configuration."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in options_help(preset(DEFAULT_TASK)).items():
            with formatter.section(title):
                formatter.write_dl(rows)


@click.command(cls=TrainCommand, context_settings=PASS_OPTIONS_ON, options_metavar=METAVAR)
@takes_size({
    "tiny": "Seconds: to see that it works.",
    "small": "Two minutes on two cores; the default.",
    "medium": "Minutes to an hour.",
    "large": "Many hours.",
})  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint, bit for bit.")
@trusts_tasks
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
def train(
    size: str | None, resume: bool, words: tuple[str, ...], trust_task: tuple[str, ...]
) -> None:  # fmt: skip
    """Train a model.

    WHAT is gpt (the default), lstm, lenet, resnet, vit, mlp, dit, flux, a TOML file with a
    configuration, a run's folder (with --resume), or module:Class for a task of your own. Every
    option of the configuration can be set with --key value.

    \b
    Examples:
      evergrad train                                a GPT on the text every Python ships
      evergrad train --data shakespeare.txt --tokenizer bpe
      evergrad train lenet --tiny --steps 100
      evergrad train resnet --data my_data:loaders   a function that gives DataLoaders
      evergrad train gpt --layers 6 --lr 1e-3 --accumulate 4 --output runs/deep
      evergrad train runs/gpt --resume              go on after Ctrl-C or a crash
      evergrad train runs/gpt/config.toml           the same once more

    \b
    Files of a run, in runs/NAME: config.toml, metrics.jsonl, checkpoints/, samples/,
    tensorboard/, report.html and plots.

    \b
    Exit codes:
      0    done, or stopped early        4    newest state not saved (disk full?)
      1    unexpected error              5    no checkpoint that is whole
      2    wrong option, path or data    6    not enough memory
      3    loss not finite               130  Ctrl-C, saved      143  SIGTERM, saved
    """
    sys.exit(run(size, resume, list(words), trust_task))


def run(
    size: str | None, resume: bool, words: list[str], trusted: Collection[str] = (),
    then: Callable[[Path], None] | None = None,
) -> ExitCode:  # fmt: skip
    """Train as the words say, and ``then`` do something with the folder of a run that is done;
    errors become a message and an exit code."""
    try:
        return _run(size, resume, words, trusted, then)
    except BaseException as error:
        code = exit_code_of(error)
        if code is None:
            raise
        return report_failure(error, code)


def _run(
    size: str | None, resume: bool, words: list[str], trusted: Collection[str],
    then: Callable[[Path], None] | None,
) -> ExitCode:  # fmt: skip
    if (launched_size() or 1) > 1:
        from evergrad.train.ranks import Ranks  # start-up: for several ranks only

        config, directory = Ranks().on_first(lambda: prepare(size, resume, words, trusted))
    else:
        config, directory = prepare(size, resume, words, trusted)
    from evergrad.train.console import Console  # start-up: rich
    from evergrad.train.loop import Trainer  # start-up: layers, optimizers, the compiler

    code = Trainer(config, directory, Console()).run()
    if code == ExitCode.DONE and then is not None:
        then(directory.path)
    return code


def prepare(
    size: str | None, resume: bool, words: list[str], trusted: Collection[str] = ()
) -> tuple[RunConfig, RunDirectory]:
    """The configuration and the folder that the words ask for; files may name tasks of the table,
    those ``trusted``, and the one that the words name themselves."""
    what = words.pop(0) if words and not words[0].startswith("--") else None
    named = None if what is None else RunDirectory(Path(what))
    if named is not None and named.holds_run():
        if not resume:
            raise ConfigError(f"{what} is the folder of a run; go on with it with --resume")
        return _resumed(named, words, {*trusted, *_data_in(words)})
    if resume and named is not None and not _may_begin(named.path, what or ""):
        raise missing_run(named.path)
    config = override(beginning(what or DEFAULT_TASK, size, trusted), words)
    if resume:
        found = _to_resume(what, config)
        if found.holds_run():
            return _resumed(found, words, {*trusted, config.task, config.data.source})
        config = dataclasses.replace(config, output=str(found.path))
    directory = new_directory(config)
    return dataclasses.replace(config, output=str(directory.path)), directory


def _data_in(words: list[str]) -> set[str]:
    """What --data names on the command line: the user's choice, whatever the file has."""
    pairs = pairwise([*words, ""])
    given = {after for word, after in pairs if word in ("--data", "--data.source")}
    return given | {word.partition("=")[2] for word in words if word.startswith("--data=")}


def _may_begin(path: Path, what: str) -> bool:
    """Whether words after --resume name something that can also begin a run."""
    return what in TASKS or ":" in what or path.suffix == ".toml"


def _to_resume(what: str | None, config: RunConfig) -> RunDirectory:
    """The folder to go on in: the one that is named, or that of the latest run."""
    if config.output:
        return RunDirectory(Path(config.output))
    if what is None or what in TASKS:
        return latest_directory(config.name or what)
    return RunDirectory(RUNS / run_name(config))


def _resumed(
    directory: RunDirectory, words: list[str], trusted: Collection[str]
) -> tuple[RunConfig, RunDirectory]:
    """A run's configuration, with the options that may still change."""
    stored = read_config(directory.config, trusted)
    config = override(stored, words)
    for key in settable(stored):
        if key.split(".")[0] in _FIXED and value_of(config, key) != value_of(stored, key):
            raise ConfigError(
                f"{key} cannot change in a run that is resumed: it is {value_of(stored, key)!r} "
                "there; begin a new run instead"
            )
    return dataclasses.replace(config, output=str(directory.path)), directory
