"""Text as tokens: files and folders, characters as a vocabulary, blocks to predict."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

import evergrad as eg
from evergrad import config
from evergrad.core.tensor import Tensor, from_array
from evergrad.utils.bounded_read import read_bounded
from evergrad.utils.data.dataset import Dataset


def read_text(path: str | Path, pattern: str = "*.txt", encoding: str = "utf-8") -> str:
    """The text of a file, or of the files below a folder whose names fit, in order of paths."""
    path = Path(path).expanduser()
    if path.is_file():
        return _decoded(path, encoding)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {path}")
    files = sorted(file for file in path.rglob(pattern) if file.is_file())
    if not files:
        raise FileNotFoundError(f"no file below {path} has a name like {pattern!r}")
    return "\n".join(_decoded(file, encoding) for file in files)


def _decoded(path: Path, encoding: str) -> str:
    """The text of one file, or an error that says where it is no text."""
    try:
        how = "set EVERGRAD_UNPACKED_BYTES"
        text = read_bounded(path, config.UNPACKED_BYTES, how).decode(encoding)
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise ValueError(
            f"{path} is not {encoding} text: byte {error.start} is 0x{wrong:02x} ({error.reason})"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def pydoc_topics() -> str:
    """The text every Python ships: the topics of ``help()``, half a million characters.

    >>> "assert" in eg.datasets.pydoc_topics()
    True
    """
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


class CharVocabulary:
    """Characters and their numbers, in the order of the alphabet."""

    def __init__(self, characters: Iterable[str]) -> None:
        self.characters: list[str] = sorted(set(characters))
        self._numbers = {character: i for i, character in enumerate(self.characters)}

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Tensor:
        """The numbers of the characters of a text, int64."""
        try:
            numbers = [self._numbers[character] for character in text]
        except KeyError as error:
            raise ValueError(
                f"the character {error.args[0]!r} is not in the vocabulary of "
                f"{len(self)}; build it from all texts it is to encode"
            ) from None
        return from_array(np.array(numbers, np.int64))

    def decode(self, tokens: Tensor | Iterable[int]) -> str:
        """The text of such numbers."""
        numbers: Iterable[int] = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        return "".join(self.characters[number] for number in numbers)


class TokenBlocks(Dataset[tuple[Tensor, Tensor]]):
    """Blocks of ``block_size`` tokens, each with the tokens that follow: (x, y), y one ahead.

    Block ``i`` starts at token ``i * stride``.
    """

    def __init__(self, tokens: Tensor, block_size: int, stride: int = 1) -> None:
        if block_size < 1 or stride < 1:
            raise ValueError(f"block_size {block_size} and stride {stride} have to be positive")
        if len(tokens) <= block_size:
            raise ValueError(
                f"a block of {block_size} and the token after it need {block_size + 1} tokens; "
                f"there are {len(tokens)}"
            )
        self.tokens = tokens
        self.block_size = block_size
        self.stride = stride

    def __len__(self) -> int:
        return (len(self.tokens) - self.block_size - 1) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} blocks, no block {index}")
        start = index % len(self) * self.stride
        block = self.tokens[start : start + self.block_size + 1]
        return block[:-1], block[1:]

    def batch(
        self, batch_size: int, generator: eg.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Blocks drawn at random: (batch_size, block_size) tokens and those that follow."""
        chosen = eg.randint(0, len(self), (batch_size, 1), generator=generator) * self.stride
        blocks = self.tokens[chosen + eg.arange(self.block_size + 1)]
        return blocks[:, :-1], blocks[:, 1:]


class CharCorpus:
    """A text, its characters as vocabulary, and its parts to train with and to validate.

    ``train`` and ``val`` are :class:`TokenBlocks`; the last ``val_fraction`` of the text is kept
    for validation.

    Args:
        text: the text
        block_size: length of an example
        val_fraction: the share at the end that is held out; default 0.1
        stride: distance of the beginnings of examples; default 1

    >>> text = "to be or not to be, that is the question of this text"
    >>> corpus = eg.datasets.CharCorpus(text, block_size=4)
    >>> x, y = corpus.train[0]
    >>> x.shape, y.shape
    (evergrad.Size([4]), evergrad.Size([4]))
    """

    def __init__(
        self, text: str, block_size: int, val_fraction: float = 0.1, stride: int = 1
    ) -> None:
        if not 0.0 < val_fraction < 1.0:
            raise ValueError(f"val_fraction is a part of the text, between 0 and 1: {val_fraction}")
        self.text = text
        self.vocabulary: CharVocabulary = CharVocabulary(text)
        tokens = self.vocabulary.encode(text)
        split = round(len(tokens) * (1 - val_fraction))
        self.train: TokenBlocks = TokenBlocks(tokens[:split], block_size, stride)
        self.val: TokenBlocks = TokenBlocks(tokens[split:], block_size, stride)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.text):,} characters, {len(self.vocabulary)} "
            f"different, {len(self.train):,} + {len(self.val):,} blocks)"
        )


class TextFile(CharCorpus):
    """The corpus of a text file, or of the text files in a folder.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "text.txt")
    ...     _ = path.write_text("to be or not to be, that is the question of it")
    ...     len(eg.datasets.TextFile(path, block_size=4).train)
    37
    """

    def __init__(
        self,
        path: str | Path,
        block_size: int,
        val_fraction: float = 0.1,
        stride: int = 1,
        pattern: str = "*.txt",
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(read_text(path, pattern, encoding), block_size, val_fraction, stride)
