"""``evergrad chat``: talk to a trained model, in the terminal or in a browser."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import click

from evergrad.cli.serve import PORT, start
from evergrad.cli.served import service_of, takes_model
from evergrad.cli.terminal import Terminal
from evergrad.cli.train import run as train
from evergrad.train.config import ConfigError
from evergrad.train.directory import RUNS
from evergrad.train.exit_codes import ExitCode


@click.command()
@click.argument(
    "checkpoint", type=click.Path(path_type=Path), metavar="[CHECKPOINT]", required=False
)
@takes_model
@click.option("--web", is_flag=True, help="A page in the browser instead of the terminal.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the page is served.")
@click.option("--port", default=8000, show_default=True, type=PORT, help="0 for any that is free.")
@click.option("--token", help="What the page must present; made up where others can connect.")
@click.option("--temperature", default=0.7, show_default=True, help="Of the terminal's answers.")
@click.option("--length", default=200, show_default=True, help="The longest answer, in tokens.")
@click.option("--seed", type=int, help="The same seed gives the same answers.")
@click.option("--tiny", is_flag=True, help="Without CHECKPOINT: train for seconds, to see it work.")
def chat(
    checkpoint: Path | None, web: bool, host: str, port: int, token: str | None,
    temperature: float, length: int, seed: int | None, tiny: bool, **options: Any,
) -> None:  # fmt: skip
    """Talk to a trained model.

    CHECKPOINT is a run's folder, a checkpoint, or a folder in Hugging Face's layout. Without one,
    runs/chat is used; if it is not there yet, a small GPT is trained and fine-tuned for it first
    (a few minutes). In the terminal /help shows the commands; Ctrl-C stops an answer.

    \b
    Examples:
      evergrad chat
      evergrad chat runs/chat --temperature 0.3
      evergrad chat runs/chat --web

    \b
    Exit codes: 0 at /quit, 2 for an option or path that cannot be used, 5 for a checkpoint that is
    damaged, 130 for Ctrl-C while the model is loaded or trained.
    """
    place = _default(tiny) if checkpoint is None else checkpoint
    if web:
        start(place, host, port, token, options, page=True)
        return
    for stream in (sys.stdin, sys.stdout):  # what cannot be read or shown ends no conversation
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    service = service_of(place, **{**options, "sequences": 1})  # there is one conversation
    try:
        Terminal(service, temperature, length, seed).run()
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _default(tiny: bool) -> Path:
    """The chat of this folder; trained now if there is none."""
    size = "tiny" if tiny else None
    base, talk = RUNS / "gpt", RUNS / "chat"
    for folder, words in ((base, []), (talk, ["chat", "--init-from", str(base)])):
        is_begun = (folder / "config.toml").is_file()
        if is_begun and not _is_unfinished(folder):
            continue
        if is_begun:
            code = train(None, True, [str(folder)])
        else:
            code = train(size, False, [*words, "--output", str(folder)])
        if code != ExitCode.DONE:
            sys.exit(code)
    return talk


def _is_unfinished(folder: Path) -> bool:
    """Whether a run was interrupted before its first good state."""
    return not (folder / "checkpoints" / "best.ckpt").is_file()
