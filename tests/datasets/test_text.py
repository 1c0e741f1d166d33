"""Text corpora: reading, characters as numbers, blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

import evergrad as eg
from evergrad.datasets import CharCorpus, TextFile, pydoc_topics
from evergrad.datasets.text import CharVocabulary, TokenBlocks, read_text
from evergrad.utils.data import DataLoader


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("béta\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("alpha")
    (tmp_path / "notes.md").write_text("not this")
    assert read_text(tmp_path / "b.txt") == "béta\n"
    assert read_text(str(tmp_path)) == "béta\n\nalpha"
    assert read_text(tmp_path, "*.md") == "not this"
    with pytest.raises(FileNotFoundError, match=r"like '\*\.rst'"):
        read_text(tmp_path, "*.rst")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        read_text(tmp_path / "nothing")


def test_vocabulary_there_and_back() -> None:
    vocabulary = CharVocabulary("hello world")
    assert vocabulary.characters == sorted(set("hello world"))
    tokens = vocabulary.encode("hello")
    assert tokens.dtype is eg.int64 and len(tokens) == 5
    assert vocabulary.decode(tokens) == vocabulary.decode(tokens.tolist()) == "hello"
    with pytest.raises(ValueError, match=r"'x' is not in the vocabulary of 8"):
        vocabulary.encode("fox"[1:])


def test_blocks_are_one_ahead() -> None:
    blocks = TokenBlocks(eg.arange(10), block_size=3)
    assert len(blocks) == 7
    assert [part.tolist() for part in blocks[6]] == [[6, 7, 8], [7, 8, 9]]
    assert blocks[-1][0].tolist() == [6, 7, 8]
    with pytest.raises(IndexError, match="7 blocks, no block 7"):
        blocks[7]
    assert len(list(blocks)) == 7
    apart = TokenBlocks(eg.arange(10), block_size=3, stride=3)
    assert [x.tolist() for x, _ in apart] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_batches_of_blocks() -> None:
    blocks = TokenBlocks(eg.arange(100), block_size=5, stride=2)
    x, y = blocks.batch(4, eg.Generator().manual_seed(1))
    assert tuple(x.shape) == tuple(y.shape) == (4, 5)
    assert (y == x + 1).all() and (x[:, 0] % 2 == 0).all()
    again, _ = blocks.batch(4, eg.Generator().manual_seed(1))
    assert x.tolist() == again.tolist()
    first = next(iter(DataLoader(blocks, batch_size=3)))
    assert first[1].tolist() == [[1, 2, 3, 4, 5], [3, 4, 5, 6, 7], [5, 6, 7, 8, 9]]


def test_corpus_is_split_without_overlap(tmp_path: Path) -> None:
    text = "abcdefghij" * 10
    corpus = CharCorpus(text, block_size=4, val_fraction=0.2)
    decode = corpus.vocabulary.decode
    assert decode(corpus.train.tokens) + decode(corpus.val.tokens) == text
    assert len(corpus.val.tokens) == 20
    assert repr(corpus) == "CharCorpus(100 characters, 10 different, 76 + 16 blocks)"
    (tmp_path / "a.txt").write_text(text)
    assert TextFile(tmp_path / "a.txt", 4, 0.2).val.tokens.tolist() == corpus.val.tokens.tolist()


def test_too_little_text() -> None:
    with pytest.raises(ValueError, match="need 9 tokens; there are 8"):
        TokenBlocks(eg.arange(8), 8)
    with pytest.raises(ValueError, match="between 0 and 1"):
        CharCorpus("abc", 1, val_fraction=1.0)
    with pytest.raises(ValueError, match="positive"):
        TokenBlocks(eg.arange(8), 0)


def test_text_that_every_python_ships() -> None:
    text = pydoc_topics()
    assert len(text) > 100_000 and "statement" in text
    assert text == pydoc_topics()
