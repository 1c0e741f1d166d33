"""Byte-level pair encoding: common byte sequences of a text become tokens.

Training and encoding are done by the package ``tokenizers`` (extra ``app``). Every text can be
encoded, whatever it was trained on: the 256 bytes are always tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from evergrad.core.types import StateDict
from evergrad.tokenizers.base import Tokenizer, bounded_text

BYTES = 256
DEFAULT_SIZE = 1024


def tokenizers_library() -> ModuleType:
    """The package ``tokenizers``."""
    try:
        import_module("tokenizers.models")  # any folder of that name would do for the package
        return import_module("tokenizers")
    except ImportError:
        raise ImportError(
            "the bpe tokenizer needs the package tokenizers, which is not installed: "
            "pip install 'evergrad[app]', or use the tokenizer 'char'"
        ) from None


class BPETokenizer(Tokenizer):
    """Bytes and merged pairs of them; made by ``train`` or ``from_dict``.

    >>> tokenizer = eg.tokenizers.BPETokenizer.train("low lower lowest " * 10, 260)
    >>> tokenizer.decode(tokenizer.encode("lower"))
    'lower'
    """

    kind = "bpe"

    def __init__(self, engine: Any) -> None:
        self._engine = engine  # tokenizers.Tokenizer

    @classmethod
    def train(cls, text: str, size: int = DEFAULT_SIZE) -> BPETokenizer:
        """Merge the most common pairs of a text until there are ``size`` tokens.

        A short or monotonous text may give fewer: then it has no pair left to merge.
        """
        if size < BYTES:
            raise ValueError(f"a vocabulary of {size} has no room for the {BYTES} bytes: use more")
        library, engine = tokenizers_library(), _untrained()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=alphabet, show_progress=False
        )
        engine.train_from_iterator([encodable(text)], trainer)
        return cls(engine)

    def __len__(self) -> int:
        size: int = self._engine.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._engine.encode(encodable(text)).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._engine.decode(self._checked(ids), skip_special_tokens=False)
        return text

    def token_bytes(self, number: int) -> bytes:
        (known,) = self._checked([number])
        return byte_level(self._engine.id_to_token(known))

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, "json": self._engine.to_str()}

    @classmethod
    def from_dict(cls, state: StateDict) -> BPETokenizer:
        """The tokenizer that gave this dictionary.

        Of the stored text only the vocabulary and the merges are used: other parts of the package's
        format (expressions, templates, normalizers) are code that a file could choose.
        """
        vocabulary, merges = _stored_pairs(bounded_text(state, "json"))
        engine = _untrained()
        engine.model = tokenizers_library().models.BPE(vocab=vocabulary, merges=merges)
        return cls(engine)


def byte_level(piece: str) -> bytes:
    """The bytes that a token of a byte-level vocabulary is written for."""
    return b"".join(bytes([_BYTES_OF[c]]) if c in _BYTES_OF else c.encode() for c in piece)


def _byte_characters() -> dict[str, int]:
    """The byte of each character that byte-level vocabularies write it with, as GPT-2 does:
    printable characters of Latin-1 for themselves, others by characters from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    found = {chr(byte): byte for byte in plain}
    return found | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES_OF = _byte_characters()


def _stored_pairs(text: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary, numbered without gaps, and the merges, whose parts and results are in it."""
    try:
        model = json.loads(text)["model"]
        vocabulary = {str(token): int(number) for token, number in model["vocab"].items()}
        merges = [_pair(merge) for merge in model["merges"]]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"the stored tokenizer is damaged: {error!r}") from error
    is_numbered = sorted(vocabulary.values()) == list(range(len(vocabulary)))
    if not is_numbered or any(
        part not in vocabulary for left, right in merges for part in (left, right, left + right)
    ):
        raise ValueError("the stored tokenizer is damaged: its tokens do not fit together")
    return vocabulary, merges


def _pair(merge: str | list[str]) -> tuple[str, str]:
    """A merge, written as a list or (by older versions of the package) with a space."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return str(left), str(right)


def _untrained() -> Any:
    """Bytes without merges, which split a text at words and join it without loss."""
    library = tokenizers_library()
    engine = library.Tokenizer(library.models.BPE())
    engine.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = library.decoders.ByteLevel()
    return engine


def encodable(text: str) -> str:
    """The text, if it has bytes: half of a surrogate pair has none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text, {text[error.start]!r}, is half of a surrogate "
            "pair and cannot be written as UTF-8; remove it"
        ) from None
    return text
