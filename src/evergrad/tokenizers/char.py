"""Characters as tokens: no training, no unknown words, long sequences."""

from __future__ import annotations

from collections.abc import Iterable

from evergrad.datasets.text import CharVocabulary
from evergrad.tokenizers.base import Array, Tokenizer, bounded_text


class CharTokenizer(Tokenizer):
    """One token for each character of an alphabet, in its order.

    >>> tokenizer = eg.tokenizers.CharTokenizer.train("hello")
    >>> tokenizer.encode("hole"), tokenizer.decode([0, 1])
    ([1, 3, 2, 0], 'eh')
    """

    kind = "char"

    def __init__(self, characters: Iterable[str]) -> None:
        self._vocabulary = CharVocabulary(characters)
        if not len(self._vocabulary):
            raise ValueError("an alphabet needs a character: the text is empty")

    @classmethod
    def train(cls, text: str) -> CharTokenizer:
        """The alphabet of a text."""
        return cls(text)

    @property
    def characters(self) -> list[str]:
        """The alphabet; a character's place in it is its number."""
        return self._vocabulary.characters

    def __len__(self) -> int:
        return len(self._vocabulary)

    def encode(self, text: str) -> list[int]:
        numbers: list[int] = self._vocabulary.encode(text).tolist()
        return numbers

    def encode_array(self, text: str) -> Array:
        return self._vocabulary.encode(text).array()

    def decode(self, ids: Iterable[int]) -> str:
        return self._vocabulary.decode(self._checked(ids))

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, "characters": "".join(self.characters)}

    @classmethod
    def from_dict(cls, state: dict[str, object]) -> CharTokenizer:
        """The tokenizer that gave this dictionary."""
        return cls(bounded_text(state, "characters"))
