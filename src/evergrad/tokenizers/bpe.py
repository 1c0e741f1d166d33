"""Byte-level pair encoding: common byte sequences of a text become tokens.

Training and encoding are done by the package ``tokenizers`` (extra ``app``). Every text can be
encoded, whatever it was trained on: the 256 bytes are always tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from evergrad.tokenizers.base import Tokenizer

BYTES = 256
DEFAULT_SIZE = 1024


def _library() -> ModuleType:
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
    """Bytes and merged pairs of them; made by ``train`` or ``from_dict``."""

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
        library, engine = _library(), _untrained()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=alphabet, show_progress=False
        )
        engine.train_from_iterator([_encodable(text)], trainer)
        return cls(engine)

    def __len__(self) -> int:
        size: int = self._engine.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._engine.encode(_encodable(text)).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._engine.decode(self._checked(ids), skip_special_tokens=False)
        return text

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "json": self._engine.to_str()}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> BPETokenizer:
        """The tokenizer that gave this dictionary."""
        return cls(_library().Tokenizer.from_str(state["json"]))


def _untrained() -> Any:
    """Bytes without merges, which split a text at words and join it without loss."""
    library = _library()
    engine = library.Tokenizer(library.models.BPE())
    engine.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = library.decoders.ByteLevel()
    return engine


def _encodable(text: str) -> str:
    """The text, if it has bytes: half of a surrogate pair has none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text, {text[error.start]!r}, is half of a surrogate "
            "pair and cannot be written as UTF-8; remove it"
        ) from None
    return text
