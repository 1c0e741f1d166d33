"""What every tokenizer can do: text to numbers and back, and a dictionary that restores it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from evergrad import config
from evergrad.core.types import Array as Array
from evergrad.utils.bounded_read import too_large

# Bytes that are no whole character decode to this one.
REPLACEMENT = "\ufffd"
LONGEST_CHARACTER = 4  # bytes in UTF-8, and so the most tokens one character can be split into


def bounded_text(state: dict[str, object], key: str) -> str:
    """A text of a stored tokenizer, of at most ``config.TOKENIZER_BYTES`` characters."""
    text = state.get(key)
    if not isinstance(text, str):
        raise ValueError(f"the stored tokenizer is damaged: it has no text {key!r}")
    if len(text) > config.TOKENIZER_BYTES:
        how = "set EVERGRAD_TOKENIZER_BYTES"
        raise too_large("the stored tokenizer", config.TOKENIZER_BYTES, how)
    return text


class Tokenizer(ABC):
    """Text as numbers from 0 to ``len(tokenizer) - 1``.

    >>> tokenizer = eg.tokenizers.CharTokenizer.train("hello")
    >>> isinstance(tokenizer, eg.tokenizers.Tokenizer), len(tokenizer)
    (True, 4)
    """

    kind: str
    """The name under which ``to_dict`` stores it."""

    @abstractmethod
    def __len__(self) -> int:
        """How many different tokens there are."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The numbers of a text."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of such numbers."""

    def token_bytes(self, number: int) -> bytes:
        """The UTF-8 of one token, which may be a part of a character.

        >>> eg.tokenizers.CharTokenizer("aé").token_bytes(1)
        b'\\xc3\\xa9'
        """
        return self.decode([number]).encode()

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """All there is to know, in values JSON can hold; see ``tokenizer_from_dict``."""

    def encode_array(self, text: str) -> Array:
        """The numbers of a long text, as an int64 array."""
        return np.array(self.encode(text), np.int64)

    def stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text of numbers as they arrive, never a part of a character."""
        waiting: list[int] = []
        for number in ids:
            waiting.append(number)
            text = self.decode(waiting)
            if not text.endswith(REPLACEMENT) or len(waiting) >= LONGEST_CHARACTER:
                yield text
                waiting = []
        if waiting:
            yield self.decode(waiting)

    def _checked(self, ids: Iterable[int]) -> Sequence[int]:
        """The same numbers as a list, if each of them is a token."""
        numbers = [int(number) for number in ids]
        for number in numbers:
            if not 0 <= number < len(self):
                raise ValueError(
                    f"there is no token {number}: this tokenizer has {len(self)}, from 0 to "
                    f"{len(self) - 1}. Decode with the tokenizer of the model that gave it."
                )
        return numbers
