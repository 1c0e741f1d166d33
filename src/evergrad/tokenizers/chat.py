"""Conversations as tokens: roles are tokens of their own, which no text can spell.

A message is ``<|user|> text <|end|>``. What a person writes is encoded as plain text, so that
"<|end|>" in it stays seven characters and ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from evergrad.tokenizers.base import Array, Tokenizer
from evergrad.tokenizers.char import CharTokenizer

ROLES = ("system", "user", "assistant")
END = "<|end|>"
SPECIALS = (*(f"<|{role}|>" for role in ROLES), END)

Message = Mapping[str, str]


class Example(NamedTuple):
    """A conversation to learn from: its tokens, and which of them are to be learned."""

    tokens: list[int]
    learned: list[bool]


class ChatFormat(Protocol):
    """How conversations become tokens."""

    @property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer."""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens after which the answer follows."""

    def example(self, messages: Sequence[Message]) -> Example:
        """The tokens of a whole conversation; its answers, with their ends, are to be learned."""


class ChatTokenizer(Tokenizer):
    """A tokenizer and four tokens more: three roles and the end of a message.

    Text never gives one of the four, and they have no text. Characters that the tokenizer does not
    know are read as ``?`` (or left out, where it does not know that either): a chat is to answer
    whatever is typed.

    Args:
        base: the tokenizer of the text

    >>> base = eg.tokenizers.CharTokenizer.train("hello")
    >>> tokenizer = eg.tokenizers.ChatTokenizer(base)
    >>> len(base), len(tokenizer)
    (4, 8)
    """

    kind = "chat"

    def __init__(self, base: Tokenizer) -> None:
        self.base = base
        self._numbers = {name: len(base) + i for i, name in enumerate(SPECIALS)}

    def __len__(self) -> int:
        return len(self.base) + len(SPECIALS)

    def encode(self, text: str) -> list[int]:
        return self.base.encode(self.readable(text))

    def encode_array(self, text: str) -> Array:
        return self.base.encode_array(self.readable(text))

    def readable(self, text: str) -> str:
        """The text with ``?`` in place of what has no token."""
        if not isinstance(self.base, CharTokenizer):
            return text.encode("utf-8", "replace").decode()
        known = set(self.base.characters)
        instead = "?" if "?" in known else ""
        return "".join(c if c in known else instead for c in text)

    def decode(self, ids: Iterable[int]) -> str:
        return self.base.decode(i for i in self._checked(ids) if i < len(self.base))

    def token_bytes(self, number: int) -> bytes:
        (known,) = self._checked([number])
        return self.base.token_bytes(known) if known < len(self.base) else b""

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, "base": self.base.to_dict()}

    # -- conversations ------------------------------------------------------------------------

    @property
    def stops(self) -> frozenset[int]:
        """The tokens that end an answer."""
        return frozenset({self._numbers[END]})

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a conversation up to the next answer."""
        begun = self._numbers["<|assistant|>"]
        return [*self.example(messages).tokens, begun]

    def example(self, messages: Sequence[Message]) -> Example:
        """The tokens of a conversation, and which of them are learned."""
        tokens: list[int] = []
        learned: list[bool] = []
        for message in messages:
            role, content = checked_message(message)
            body = [*self.encode(content), self._numbers[END]]
            tokens += [self._numbers[f"<|{role}|>"], *body]
            learned += [False] + [role == "assistant"] * len(body)
        return Example(tokens, learned)


class PlainFormat:
    """Conversations for a model that has only read text: as a play, with names and colons."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = ChatTokenizer(tokenizer)
        self.stops: frozenset[int] = frozenset()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return self._tokenizer.encode(self._play(messages) + "Assistant:")

    def example(self, messages: Sequence[Message]) -> Example:
        tokens: list[int] = []
        learned: list[bool] = []
        for number, message in enumerate(messages):
            part = self._tokenizer.encode(self._play(messages[number : number + 1]))
            tokens += part
            learned += [message["role"] == "assistant"] * len(part)
        return Example(tokens, learned)

    @staticmethod
    def _play(messages: Sequence[Message]) -> str:
        parts = map(checked_message, messages)
        return "".join(f"{role.capitalize()}: {content}\n" for role, content in parts)


def chat_format(tokenizer: Tokenizer) -> ChatFormat:
    """The format that belongs to a tokenizer."""
    if hasattr(tokenizer, "prompt") and hasattr(tokenizer, "example"):
        found: Any = tokenizer
        return found  # type: ignore[no-any-return]
    return PlainFormat(tokenizer)


def checked_message(message: object) -> tuple[str, str]:
    """The role and the text of a message."""
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
        raise ValueError(f'a message is {{"role": ..., "content": ...}}, not {str(message)[:80]!r}')
    role, content = message["role"], message["content"]
    if role not in ROLES:
        raise ValueError(f"a role is {', '.join(ROLES)}, not {role!r}")
    if not isinstance(content, str):
        raise ValueError(f"the content of a message is a text, not {str(content)[:80]!r}")
    return role, content
