"""Tokens as text while they come: no half characters, nothing of a stop sequence."""

from __future__ import annotations

from collections.abc import Sequence

from evergrad.tokenizers.base import REPLACEMENT, Tokenizer

_LONGEST_CHARACTER = 4  # tokens one character may be split into


class Detokenizer:
    """The text of one answer.

    Tokens are decoded with a few before them, since in some tokenizers the text of a token depends
    on its place. Text that may be the beginning of a stop sequence waits until that is known.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = [stop for stop in stops if stop]
        self._tokens: list[int] = []
        self._before = 0  # tokens from here on are decoded
        self._decoded = 0  # tokens whose text was taken
        self._waiting = ""
        self.is_stopped: bool = False

    def add(self, token: int) -> str:
        """One more token; gives the text that is certain now."""
        if self.is_stopped:
            return ""
        self._tokens.append(token)
        before = self._tokenizer.decode(self._tokens[self._before : self._decoded])
        now = self._tokenizer.decode(self._tokens[self._before :])
        is_partial = now.endswith(REPLACEMENT)
        if is_partial and len(self._tokens) - self._decoded < _LONGEST_CHARACTER:
            return ""
        self._before, self._decoded = self._decoded, len(self._tokens)
        return self._release(now[len(before) :])

    def finish(self) -> str:
        """The rest of the text."""
        if self.is_stopped:
            return ""
        before = self._tokenizer.decode(self._tokens[self._before : self._decoded])
        now = self._tokenizer.decode(self._tokens[self._before :])
        text = self._release(now[len(before) :])
        rest, self._waiting = self._waiting, ""
        return text + rest

    def _release(self, text: str) -> str:
        """Text up to the first stop sequence, or up to what may become one."""
        self._waiting += text
        found = [place for stop in self._stops if (place := self._waiting.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            certain, self._waiting = self._waiting[: min(found)], ""
            return certain
        kept = max((_overlap(self._waiting, stop) for stop in self._stops), default=0)
        end = len(self._waiting) - kept
        certain, self._waiting = self._waiting[:end], self._waiting[end:]
        return certain


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop sequence."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
