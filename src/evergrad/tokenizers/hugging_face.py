"""Tokenizers in Hugging Face's layout: ``tokenizer.json`` and the chat template beside it.

What people write cannot spell a special token: one that occurs in a message is broken up before the
template (:mod:`evergrad.tokenizers.chat_template`) sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evergrad import config
from evergrad.core.types import StateDict
from evergrad.tokenizers.base import Tokenizer, bounded_text
from evergrad.tokenizers.bpe import byte_level, encodable, tokenizers_library
from evergrad.tokenizers.chat import Example, Message, PlainFormat, checked_message
from evergrad.tokenizers.chat_template import render
from evergrad.utils.bounded_read import read_bounded, read_json, read_regular

TOKENIZER = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_HOW = "set EVERGRAD_TOKENIZER_BYTES"
_BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")


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
        engine.no_truncation()  # what a file says of batches is not meant for texts
        engine.no_padding()
        self._is_byte_level = "ByteLevel" in str(engine.decoder)
        added = engine.get_added_tokens_decoder()
        self._special = frozenset(number for number, token in added.items() if token.special)
        unknown = {self._specials.get("unk_token"), getattr(engine.model, "unk_token", None)}
        self._control = self._special - {engine.token_to_id(name) for name in unknown if name}
        # Some templates write turns with tokens that are not special, such as DeepSeek's.
        self._turns = self._control | {
            number
            for number, token in added.items()
            if _is_markup(token.content) and token.content in (template or "")
        }

    @classmethod
    def from_folder(cls, folder: str | Path) -> HuggingFaceTokenizer:
        place = Path(folder)
        engine = _engine(place / TOKENIZER)
        try:
            return cls._described(engine, place)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{place / _CONFIG} is damaged: {error!r}") from error

    @classmethod
    def _described(cls, engine: Any, place: Path) -> HuggingFaceTokenizer:
        about = _read(place / _CONFIG)
        specials = {n: _text(v) for n, v in about.items() if n.endswith("_token") and v}
        template = about.get("chat_template")
        if (place / _TEMPLATE).is_file():
            template = read_bounded(place / _TEMPLATE, config.TOKENIZER_BYTES, _HOW).decode()
        if isinstance(template, list):  # several by name
            template = {one["name"]: one["template"] for one in template}.get("default")
        if not isinstance(template, str | None):
            raise TypeError("the chat template is no text")
        ends = [engine.token_to_id(specials["eos_token"])] if "eos_token" in specials else []
        for name in ("generation_config.json", "config.json"):
            given = _read(place / name).get("eos_token_id")
            ends += given if isinstance(given, list) else [given]
        return cls(engine, template, specials, [end for end in ends if type(end) is int])

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

    def token_bytes(self, number: int) -> bytes:
        piece = self._engine.id_to_token(number) if 0 <= number < len(self) else None
        if piece is None or number in self._special:
            return self.decode([number]).encode()
        if (byte := _BYTE_PIECE.fullmatch(piece)) is not None:  # of a byte fallback
            return bytes([int(byte[1], 16)])
        return byte_level(piece) if self._is_byte_level else self.decode([number]).encode()

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind, "json": self._engine.to_str(), "template": self._template,
            "specials": self._specials, "stops": sorted(self.stops),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, state: StateDict) -> HuggingFaceTokenizer:
        engine = _parsed(bounded_text(state, "json").encode())
        return cls(engine, state["template"], state["specials"], state["stops"])

    # -- conversations ------------------------------------------------------------------------

    def broken_up(self, text: str, *, is_turn: bool = False) -> str:
        """The text with a space in each special token it spells, so that none is left.

        The tokenizer itself finds them: it may read other characters as those of a token. What a
        space does not break is left out. ``is_turn``: nor are tokens left that the template writes.
        """
        control = self._turns if is_turn else self._control
        for begin, end in reversed(self._spans(text, control)):
            spelling = text[begin:end]
            place = begin + len(spelling) - len(spelling.lstrip()) + 1
            text = f"{text[:place]} {text[place:]}"
        while text and (spans := self._spans(text, control)):
            for begin, end in reversed(spans):
                text = text[:begin] + text[end:]
        return text

    def _spans(self, text: str, control: frozenset[int]) -> list[tuple[int, int]]:
        """Where the tokenizer finds such tokens in a text; each has a character at least."""
        found = self._engine.encode(encodable(text), add_special_tokens=False)
        spans = []
        for number, (begin, end) in zip(found.ids, found.offsets, strict=True):
            if number in control:
                begin = max(0, min(begin, len(text) - 1))
                spans.append((begin, max(end, begin + 1)))
        return spans

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
        assert self._template is not None
        given = [
            {"role": role, "content": self.broken_up(content, is_turn=role != "assistant")}
            for role, content in map(checked_message, messages)
        ]
        text = render(self._template, given, self._specials, begin_answer=begin_answer)
        ids: list[int] = self._engine.encode(encodable(text), add_special_tokens=False).ids
        return ids


def _engine(path: Path) -> object:
    tokenizers_library()
    content = read_regular(path, config.TOKENIZER_BYTES, _HOW)
    try:
        return _parsed(content)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.\n  fix: get the file again.") from error


def _parsed(content: bytes) -> object:
    """The engine described by a text. The package raises no narrower kind than ``Exception``, and
    its panics are not even that."""
    try:
        return tokenizers_library().Tokenizer.from_buffer(content)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from error


def _read(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    found = read_json(path, config.TOKENIZER_BYTES, _HOW)
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it holds no object")
    return found


def _text(value: object) -> str:
    return str(value["content"]) if isinstance(value, dict) else str(value)


def _is_markup(token: str) -> bool:
    """Whether a token looks like one of a template, not like a word or a space."""
    inner = token.strip()
    return len(inner) > 2 and not (inner[0].isalnum() or inner[-1].isalnum())
