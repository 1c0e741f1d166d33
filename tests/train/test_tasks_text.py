"""Language tasks: tokenizers, held-out text, samples, and data that does not fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from evergrad.train.config import ConfigError, RunConfig, override, preset
from evergrad.train.tasks.text import GPTTask

TEXT = "the cat sat on the mat. the dog sat on the log!" * 40
SIZES = "--layers 1 --width 8 --heads 2 --context 8 --batch 4 --evaluate-batches 3"


def config_for(folder: Path, *words: str, text: str = TEXT) -> RunConfig:
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    return override(preset("gpt", "tiny"), [*SIZES.split(), "--data", str(path), *words])


def test_the_vocabulary_of_the_model_is_that_of_the_text(tmp_path: Path) -> None:
    task = GPTTask(config_for(tmp_path))
    assert len(task.tokenizer) == len(set(TEXT))
    assert task.model().config.vocabulary == len(set(TEXT))  # type: ignore[attr-defined]


def test_held_out_text_is_the_end_of_the_text(tmp_path: Path) -> None:
    task = GPTTask(config_for(tmp_path, "--held-out", "0.25", text="ab" * 300 + "cd" * 100))
    decode = task.tokenizer.decode
    assert set(decode(task.corpus.train)) == set("ab")
    assert set(decode(task.corpus.held_out)) == set("cd")


def test_evaluation_is_the_mean_over_held_out_windows(tmp_path: Path) -> None:
    task = GPTTask(config_for(tmp_path))
    model: Any = task.model().eval()
    windows = [task.corpus.held_out_batch(number, 3, 4) for number in range(3)]
    losses = [model.loss(*window).item() for window in windows]
    assert task.evaluate(model)["loss"] == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_samples_are_text_of_the_vocabulary(tmp_path: Path) -> None:
    task = GPTTask(dataclasses.replace(config_for(tmp_path), eager=True))
    text = task.sample(task.model(), 0).text
    assert text is not None and len(text) == 240 and set(text) <= set(TEXT)


def test_pairs_as_tokens(tmp_path: Path) -> None:
    pytest.importorskip(
        "tokenizers.models", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    config = config_for(tmp_path, "--tokenizer", "bpe", "--vocabulary", "270")
    task = GPTTask(config)
    assert len(task.tokenizer) == 270
    tokens = [*task.corpus.train, *task.corpus.held_out]
    assert len(tokens) < len(TEXT) and task.tokenizer.decode(tokens) == TEXT
    again = GPTTask(config, task.extras())
    assert again.extras() == task.extras()
    assert again.batch(3)[0].tolist() == task.batch(3)[0].tolist()


def test_too_small_a_vocabulary_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    config = config_for(tmp_path, "--tokenizer", "bpe", "--vocabulary", "200")
    with pytest.raises(ConfigError, match="no room for the 256 bytes"):
        GPTTask(config)


def test_another_text_than_the_tokenizer_was_made_for(tmp_path: Path) -> None:
    extras = GPTTask(config_for(tmp_path)).extras()
    task = GPTTask(config_for(tmp_path, text="XYZ" * 100), extras)
    with pytest.raises(ConfigError, match=r"'X' is not in the vocabulary.*begin a new run"):
        task.batch(0)


def test_a_text_shorter_than_the_context(tmp_path: Path) -> None:
    task = GPTTask(config_for(tmp_path, text="too short"))
    with pytest.raises(ConfigError, match=r"has \d tokens, but a context of 8 needs at least 9"):
        task.batch(0)


def test_data_that_is_no_text_is_told_at_once(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    (tmp_path / "text.txt").write_bytes(b"abc\xff")
    with pytest.raises(ConfigError, match=r"^\S+text\.txt is not utf-8 text: byte 3 is 0xff"):
        GPTTask(config)
