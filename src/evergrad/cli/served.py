"""What ``evergrad serve`` and ``evergrad chat`` share: the options of a served model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from evergrad.errors import FileFormatError
from evergrad.models.lora import read_adapter
from evergrad.models.quantize import quantize
from evergrad.serve.engine import EngineConfig
from evergrad.serve.service import Service
from evergrad.train.config import ConfigError
from evergrad.train.pretrained import load_pretrained

_OPTIONS = [
    click.option(
        "--weights", type=click.Choice(["float32", "bfloat16", "int8"]), default="float32",
        show_default=True, help="Keep weights in fewer bytes.",
    ),
    click.option(
        "--draft", type=click.Path(path_type=Path),
        help="A smaller model of the same tokenizer that proposes tokens.",
    ),
    click.option(
        "--adapter", "adapters", multiple=True, metavar="NAME=FOLDER",
        help="A LoRA adapter; clients choose it as MODEL:NAME. May be given several times.",
    ),
    click.option(
        "--sequences", default=32, show_default=True, help="How many are answered at once."
    ),
    click.option(
        "--waiting", default=128, show_default=True, help="How many may wait; others get 429."
    ),
]  # fmt: skip


def takes_model(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options of a served model, as keyword arguments of :func:`service_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def service_of(
    place: Path, weights: Any, draft: Path | None, adapters: tuple[str, ...], sequences: int,
    waiting: int,
) -> Service:  # fmt: skip
    """The model of a run, a checkpoint or a folder in Hugging Face's layout, ready to start."""
    try:
        found = load_pretrained(place)
        proposing = None if draft is None else load_pretrained(draft).model
        known = {name: read_adapter(folder) for name, folder in map(_named, adapters)}
        config = EngineConfig(sequences=sequences, waiting=waiting)
        model = quantize(found.model, weights)
        return Service(model, found.tokenizer, found.name, config, proposing, known)
    except FileFormatError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _named(word: str) -> tuple[str, str]:
    name, equals, folder = word.partition("=")
    if not equals or not name:
        raise ConfigError(f"--adapter is NAME=FOLDER, not {word!r}")
    return name, folder


def memory_line(service: Service) -> str:
    """What a service whose programs are compiled keeps in memory."""
    parts = service.engine.memory()
    told = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in parts.items())
    return f"memory: {told}; {service.engine.table.count} pages of 16 tokens"
