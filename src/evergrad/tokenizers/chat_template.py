"""Chat templates: programs of Jinja, rendered in its sandbox with the names ``transformers`` gives.

A template comes with a model and is not trusted: it sees texts, and no object whose attributes lead
anywhere. Whatever it raises is the refusal of a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import Any

_KEPT = 8  # compiled templates


def render(
    template: str, messages: Sequence[Mapping[str, str]], specials: Mapping[str, str], *,
    begin_answer: bool,
) -> str:  # fmt: skip
    """The text of a conversation, up to the place of its next answer if one is to begin."""
    compiled = _compiled(template)
    names = {**specials, "messages": list(messages), "tools": None, "documents": None}
    try:
        found: str = compiled.render(names, add_generation_prompt=begin_answer)
    except Exception as error:  # foreign code may raise anything
        raise ValueError(f"the chat template refuses this conversation: {error}") from error
    return found


@lru_cache(_KEPT)
def _compiled(template: str) -> Any:
    try:
        return _environment().from_string(template)
    except import_module("jinja2").TemplateSyntaxError as error:
        raise ValueError(f"the chat template is damaged: {error}") from error


@lru_cache(1)
def _environment() -> Any:
    try:
        sandbox = import_module("jinja2.sandbox")
    except ImportError:
        raise ImportError(
            "chat templates need the package jinja2, which is not installed: "
            "pip install 'evergrad[app]'"
        ) from None
    found = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation(), "jinja2.ext.loopcontrols"]
    )
    found.globals["raise_exception"] = _refuse
    found.globals["strftime_now"] = _strftime_now
    found.filters["tojson"] = _to_json
    return found


def _generation() -> type:
    """``{% generation %}``, which some templates put around answers: its body is what it gives."""

    class Generation(import_module("jinja2.ext").Extension):  # type: ignore[misc]
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> object:
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    return Generation


def _refuse(message: str) -> None:
    raise ValueError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: object, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """Unlike Jinja's own it does not escape what HTML would."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
