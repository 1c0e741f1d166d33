"""The options of a configuration as rows of a help text."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from evergrad.train.config import PARTS, RunConfig, settable

_TITLES = {
    "": "Options of a run (--key value; short keys such as --lr stand for --optimizer.lr)",
    "model": "Options of the model (here of gpt)",
    "data": "Options of the data",
    "optimizer": "Options of the optimizer",
}


def options_help(config: RunConfig) -> dict[str, list[tuple[str, str]]]:
    """For each part of a configuration its title, and its options with default and meaning."""
    return {_TITLES[part]: _rows(config, part) for part in ("", *PARTS)}


def _rows(config: RunConfig, part: str) -> list[tuple[str, str]]:
    owner: Any = getattr(config, part) if part else config
    keys = settable(config)
    prefix = f"{part}." if part else ""
    shown = [f for f in fields(owner) if prefix + f.name in keys]
    return [
        (f"--{prefix}{f.name}".replace("_", "-"), _meaning(f.metadata, getattr(owner, f.name)))
        for f in shown
    ]


def _meaning(metadata: Any, value: Any) -> str:
    text = metadata.get("help", "")
    default = "none" if value is None else value if value != "" else '""'
    return f"{text}  [{default}]" if text else f"[{default}]"
