"""Tokenizers in Hugging Face's layout: ``tokenizer.json`` and the chat template beside it.

A template is a program of Jinja, rendered in its sandbox. What people write cannot spell a special
token: one that occurs in a message is broken up before the template sees it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from evergrad.tokenizers.base import Tokenizer
from evergrad.tokenizers.bpe import tokenizers_library
from evergrad.tokenizers.chat import Example, Message, PlainFormat, checked_message

TOKENIZER = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the package ``tokenizers`` with its special tokens and template."""

    kind = "hugging face"

    def __init__(
        self, engine: Any, template: str | None = None, specials: dict[str, str] | None = None,
        stops: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self._engine = engine
        self._template = template
        self._specials = dict(specials or {})  # such as eos_token, as templates name them
        self.stops: frozenset[int] = frozenset(stops)
        added = engine.get_added_tokens_decoder().values()
        self._spellings = sorted((token.content for token in added if token.special), key=len)

    @classmethod
    def from_folder(cls, folder: str | Path) -> HuggingFaceTokenizer:
        place = Path(folder)
        engine = tokenizers_library().Tokenizer.from_file(str(place / TOKENIZER))
        about = _read(place / _CONFIG)
        specials = {n: _text(v) for n, v in about.items() if n.endswith("_token") and v}
        template = about.get("chat_template")
        if (place / _TEMPLATE).is_file():
            template = (place / _TEMPLATE).read_text("utf-8")
        if isinstance(template, list):  # several by name
            template = {one["name"]: one["template"] for one in template}.get("default")
        ends = [engine.token_to_id(specials["eos_token"])] if "eos_token" in specials else []
        for name in ("generation_config.json", "config.json"):
            given = _read(place / name).get("eos_token_id")
            ends += given if isinstance(given, list) else [given]
        return cls(engine, template, specials, [end for end in ends if end is not None])

    def __len__(self) -> int:
        size: int = self._engine.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        """With what the tokenizer puts before and after a text, such as its beginning."""
        ids: list[int] = self._engine.encode(self.broken_up(text)).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        # Models may have more rows than the tokenizer has tokens.
        known = [int(number) for number in ids if 0 <= int(number) < len(self)]
        text: str = self._engine.decode(known, skip_special_tokens=True)
        return text

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "json": self._engine.to_str(), "template": self._template,
            "specials": self._specials, "stops": sorted(self.stops),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> HuggingFaceTokenizer:
        engine = tokenizers_library().Tokenizer.from_str(state["json"])
        return cls(engine, state["template"], state["specials"], state["stops"])

    # -- conversations ------------------------------------------------------------------------

    def broken_up(self, text: str) -> str:
        """The text with a space in each special token it spells."""
        for spelling in self._spellings:
            while spelling in text:
                text = text.replace(spelling, f"{spelling[0]} {spelling[1:]}")
                if len(spelling) == 1:
                    break
        return text

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        if self._template is None:
            return PlainFormat(self).prompt(messages)
        return self._rendered(messages, begin_answer=True)

    def example(self, messages: Sequence[Message]) -> Example:
        """Answers are what the template adds to the prompt before them."""
        if self._template is None:
            return PlainFormat(self).example(messages)
        tokens = self._rendered(messages, begin_answer=False)
        learned = [False] * len(tokens)
        for number, message in enumerate(messages):
            if message["role"] == "assistant":
                begin = len(self._rendered(messages[:number], begin_answer=True))
                end = len(self._rendered(messages[: number + 1], begin_answer=False))
                learned[begin:end] = [True] * (min(end, len(tokens)) - begin)
        return Example(tokens, learned)

    def _rendered(self, messages: Sequence[Message], *, begin_answer: bool) -> list[int]:
        given = [
            {"role": role, "content": self.broken_up(content)}
            for role, content in map(checked_message, messages)
        ]
        template = _environment().from_string(self._template)
        text = template.render(
            messages=given, add_generation_prompt=begin_answer, **self._specials
        )  # fmt: skip
        ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return ids


def _environment() -> Any:
    try:
        sandbox = import_module("jinja2.sandbox")
    except ImportError:
        raise ImportError(
            "chat templates need the package jinja2, which is not installed: "
            "pip install 'evergrad[app]'"
        ) from None
    found = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    found.globals["raise_exception"] = _refuse
    found.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    return found


def _refuse(message: str) -> None:
    raise ValueError(f"the chat template refuses this conversation: {message}")


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def _text(value: Any) -> str:
    return str(value["content"]) if isinstance(value, dict) else str(value)
