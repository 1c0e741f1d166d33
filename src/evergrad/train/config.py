"""The configuration of a run: one frozen dataclass, from presets, TOML files and ``--key value``.

Keys are ``steps`` or ``optimizer.lr``; a part's name may be left out where only one part has the
option (``lr``, ``layers``). Every value is checked when it is set, and an unknown key is an error
that names the nearest right one.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from evergrad import config as limits
from evergrad.train.task import (
    TASKS,
    UntrustedTaskError,
    check_data_in_file,
    check_named_in_file,
    task_class,
)
from evergrad.train.values import ConfigError, convert, nearest, parse_bytes
from evergrad.utils.bounded_read import read_bounded

__all__ = [
    "PRESETS",
    "ConfigError",
    "DataConfig",
    "OptimizerConfig",
    "RunConfig",
    "nearest",
    "override",
    "preset",
    "read_config",
    "settable",
    "to_toml",
    "updated",
    "value_of",
]

T = TypeVar("T")

PRESETS = ("tiny", "small", "medium", "large")
DEFAULT_PRESET = "small"
PARTS = ("model", "data", "optimizer")
# Options that are called otherwise on the command line.
ALIASES = {"data": "data.source"}


def option(default: T, help: str) -> T:
    """A field with what ``--help`` says of it."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class DataConfig:
    """Where examples come from.

    >>> eg.train.DataConfig(tokenizer="bpe").vocabulary
    1024
    """

    source: str = option(
        "", "a built-in set, a file, a folder, or module:function; empty for the task's own"
    )
    tokenizer: Literal["char", "bpe"] = option("char", "how text becomes tokens: char or bpe")
    vocabulary: int = option(1024, "how many tokens bpe has")
    held_out: float = option(0.1, "the part that is kept for evaluation")

    def __post_init__(self) -> None:
        _require(self, "vocabulary", self.vocabulary > 0, "positive")
        _require(self, "held_out", 0 < self.held_out < 1, "between 0 and 1")


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with a linear warm-up and half a cosine.

    >>> eg.train.OptimizerConfig(lr=3e-4).warmup
    100
    """

    lr: float = option(1e-3, "learning rate after the warm-up")
    warmup: int = option(100, "steps in which the learning rate rises")
    final: float = option(0.1, "what is left of lr at the last step, as a fraction")
    betas: tuple[float, float] = option((0.9, 0.95), "decays of AdamW's two running means")
    weight_decay: float = option(0.1, "of matrices; biases and gains are not decayed")
    clip: float = option(1.0, "largest norm of all gradients together; 0 does not clip")

    def __post_init__(self) -> None:
        _require(self, "lr", 0 < self.lr < math.inf, "positive")
        _require(self, "warmup", self.warmup >= 0, "0 or more")
        _require(self, "final", 0 <= self.final <= 1, "between 0 and 1")
        _require(self, "betas", all(0 <= beta < 1 for beta in self.betas), "in [0, 1)")
        _require(self, "weight_decay", self.weight_decay >= 0, "0 or more")
        _require(self, "clip", self.clip >= 0, "0 or more")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run.

    >>> eg.train.RunConfig(task="gpt", steps=10).batch
    16
    """

    name: str = option("", "how the run's folder is called; empty for the task's name")
    task: str = option("gpt", "what is trained")
    seed: int = option(0, "decides weights, batches, dropout and samples")
    steps: int = option(1500, "updates of the weights")
    batch: int = option(16, "examples in a micro-batch")
    accumulate: int = option(1, "micro-batches whose gradients make one step")
    precision: Literal["float32", "bfloat16"] = option("float32", "of products; or bfloat16")
    threads: int = option(0, "0 for as many as there are cores")
    eager: bool = option(False, "without the compiler, to compare")
    memory_limit: int | None = option(
        None,
        "bytes (64MB) that a compiled step may need beside "
        "weights and data; values are computed again to fit",
    )
    output: str = option("", "the run's folder; empty for runs/NAME")
    log_every: int = option(10, "steps between lines of metrics.jsonl")
    evaluate_every: int = option(250, "steps between evaluations; 0 for only the last")
    evaluate_batches: int = option(8, "held-out batches of an evaluation")
    sample_every: int = option(250, "steps between samples; 0 for only the last")
    checkpoint_every: int = option(250, "steps between checkpoints; 0 for only the last")
    keep: int = option(3, "how many checkpoints stay, beside the best")
    patience: int = option(0, "evaluations without progress before stopping early; 0 for never")
    ema: float = option(0.0, "decay of a running mean of the weights, which is then evaluated")
    model: Any = None  # the task's dataclass of model options
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        for key in ("steps", "batch", "accumulate", "log_every", "evaluate_batches", "keep"):
            _require(self, key, getattr(self, key) > 0, "positive")
        for key in ("evaluate_every", "sample_every", "checkpoint_every"):
            _require(self, key, getattr(self, key) >= 0, "positive, or 0 for only the last")
        for key in ("seed", "threads", "patience"):
            _require(self, key, getattr(self, key) >= 0, "0 or more")
        _require(self, "ema", 0 <= self.ema < 1, "in [0, 1)")
        limit = self.memory_limit
        _require(self, "memory_limit", limit is None or limit > 0, "positive, or none")
        if self.eager and limit is not None:
            raise ConfigError("memory_limit is a promise of the compiler: leave out --eager")


def _require(part: object, key: str, holds: bool, what: str) -> None:
    if not holds:
        raise ConfigError(f"{key} has to be {what}, not {getattr(part, key)!r}")


def preset(task: str, name: str = DEFAULT_PRESET) -> RunConfig:
    """A task's configuration of that size."""
    known = task_class(task).presets()
    if name not in known:
        raise ConfigError(f"the task {task} has no preset {name!r}{nearest(name, known)}")
    return dataclasses.replace(known[name], task=task)


def settable(config: RunConfig) -> dict[str, Any]:
    """The types of all options by their full keys (``steps``, ``model.layers``)."""
    hints = _hints(RunConfig)
    found = {f.name: hints[f.name] for f in fields(config) if f.name not in PARTS}
    hidden = {f"model.{option}" for option in task_class(config.task).set_by_data}
    for part in PARTS:
        value = getattr(config, part)
        if is_dataclass(value):
            owner: type = type(value)
            hints = _hints(owner)
            found |= {f"{part}.{f.name}": hints[f.name] for f in fields(value)}
    return {key: hint for key, hint in found.items() if key not in hidden}


@cache
def _hints(part: type) -> dict[str, object]:
    """The types of a dataclass's fields; to find them takes longer than a whole configuration."""
    return get_type_hints(part)


def value_of(config: RunConfig, key: str) -> Any:
    """The value under a full key."""
    part, _, option = key.rpartition(".")
    return getattr(getattr(config, part) if part else config, option)


def full_key(config: RunConfig, key: str) -> str:
    """The full key of an option that may be written short and with hyphens."""
    known = settable(config)
    wanted = key.replace("-", "_")
    wanted = ALIASES.get(wanted, wanted)
    if wanted in known:
        return wanted
    places = [place for place in known if place.rpartition(".")[2] == wanted]
    if len(places) == 1:
        return places[0]
    if places:
        raise ConfigError(f"{key!r} may be {' or '.join(places)}; write the whole key")
    short = {place.rpartition(".")[2] for place in known}
    candidates = known if "." in wanted else short
    raise ConfigError(f"there is no option {key!r}{nearest(wanted, candidates)}")


def updated(config: RunConfig, values: Mapping[str, object]) -> RunConfig:
    """The configuration with other values, under keys short or full."""
    hints = settable(config)
    parts: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        place = full_key(config, key)
        if place == "memory_limit" and isinstance(value, str) and value.lower() != "none":
            value = parse_bytes(value)
        part, _, option = place.rpartition(".")
        parts.setdefault(part, {})[option] = convert(value, hints[place], place)
    own = parts.pop("", {})
    for part, changes in parts.items():
        own[part] = _replaced(getattr(config, part), changes, part)
    return dataclasses.replace(config, **own)


def _replaced(part: Any, changes: dict[str, Any], name: str) -> object:
    """A part with other options; errors of its own checks name it."""
    try:
        return dataclasses.replace(part, **changes)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def override(config: RunConfig, words: Iterable[str]) -> RunConfig:
    """The configuration with ``--key value``, ``--key=value``, ``--flag`` and ``--no-flag``."""
    values: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            raise ConfigError(f"{word!r} stands alone; options are written --key value")
        key, equals, value = word[2:].partition("=")
        if not equals:
            key, value = _flag_or_value(config, key, waiting)
        values[full_key(config, key)] = value
    return updated(config, values)


def _flag_or_value(config: RunConfig, key: str, waiting: list[str]) -> tuple[str, str]:
    """A key and its value, which flags may do without."""
    positive = key.removeprefix("no-")
    if positive != key and settable(config).get(full_key(config, positive)) is bool:
        return positive, "false"
    is_flag = settable(config)[full_key(config, key)] is bool
    if waiting and not waiting[0].startswith("--"):
        if not is_flag or waiting[0].lower() in ("true", "false"):
            return key, waiting.pop(0)
    elif not is_flag:
        raise ConfigError(f"--{key} needs a value")
    return key, "true"


def read_config(path: Path, trusted: Collection[str] = ()) -> RunConfig:
    """The configuration in a TOML file: what it does not say is as in its ``preset``.

    A task that is not in the table has to be among ``trusted``: its module is imported. Files of
    more than ``config.CONFIG_BYTES`` are refused.
    """
    try:
        return parse_config(read_toml(path), trusted)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    except UntrustedTaskError as error:
        raise UntrustedTaskError(f"{path}: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_toml(path: Path) -> str:
    """The text of a TOML file of at most ``config.CONFIG_BYTES``."""
    try:
        data = read_bounded(path, limits.CONFIG_BYTES, "set EVERGRAD_CONFIG_BYTES")
        return data.decode("utf-8")
    except ValueError as error:  # too large, or no text
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document; whatever is wrong with it is a :class:`ConfigError`. Its length is bounded,
    since dotted keys take the parser quadratic time."""
    if len(text) > limits.CONFIG_BYTES:
        raise ConfigError(
            f"it has more than the {limits.CONFIG_BYTES:,} characters of EVERGRAD_CONFIG_BYTES"
        )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # beside TOMLDecodeError, numbers without end
        raise ConfigError(f"it cannot be read as TOML: {error}") from error


def parse_config(text: str, trusted: Collection[str] = ()) -> RunConfig:
    """The configuration in the text of a TOML document."""
    return from_mapping(parse_toml(text), trusted)


def from_mapping(mapping: Mapping[str, object], trusted: Collection[str] = ()) -> RunConfig:
    """The configuration of a TOML document, which begins from its ``task`` and ``preset``."""
    flat: dict[str, object] = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            if key not in PARTS:
                raise ConfigError(f"there is no part {key!r}{nearest(key, PARTS)}")
            flat |= {f"{key}.{option}": inner for option, inner in value.items()}
        else:
            flat[key] = value
    task = convert(flat.get("task", next(iter(TASKS))), str, "task")
    check_named_in_file(task, trusted)
    size = convert(flat.pop("preset", DEFAULT_PRESET), str, "preset")
    config = updated(preset(task, size), flat)
    check_data_in_file(config.data.source, trusted)
    return config


def to_toml(config: RunConfig) -> str:
    """The whole configuration as TOML that :func:`read_config` understands."""
    lines: list[str] = []
    part = ""
    for key in settable(config):
        place, _, option = key.rpartition(".")
        if place != part:
            lines += ["", f"[{place}]"]
            part = place
        value = value_of(config, key)
        lines.append(f"{option} = {_toml_value('none' if value is None else value)}")
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    return repr(value)


def _quoted(text: str) -> str:
    """A TOML string; what may not stand in one is written as its number."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in plain) + '"'
