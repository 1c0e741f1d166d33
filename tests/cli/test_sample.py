"""``evergrad sample``: texts and pictures of checkpoints, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models.generate import generate
from evergrad.train.checkpoint import CheckpointStore, read_checkpoint
from evergrad.train.config import override, preset, to_toml
from evergrad.train.state import TrainingState
from evergrad.train.task import task_class

from .conftest import Run

TEXT = "the quick brown fox jumps over the lazy dog.\n" * 20
GPT = ("--layers", "1", "--width", "16", "--heads", "2", "--context", "8")
LSTM = ("--layers", "1", "--width", "8", "--context", "8")
DIT = ("--layers", "1", "--width", "16", "--heads", "2", "--sampling-steps", "2")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Write the checkpoint of an untrained model as the trainer does; gives the run's folder."""

    def written(task: str, *words: str, step: int = 3, best: bool = False) -> Path:
        run = tmp_path / task
        config = override(preset(task, "tiny"), words)
        made = task_class(task)(config, None)
        state = TrainingState(config, made)
        state.step = step
        eg.manual_seed(step)
        with eg.no_grad():
            for parameter in state.model.parameters():
                parameter.normal_(0.0, 0.5)
        content = {**state.capture(), "config": to_toml(config), "metrics_offset": 0}
        CheckpointStore(run / "checkpoints", keep=5).write(content, best=best)
        return run

    return written


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "fox.txt"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def gpt(make: Callable[..., Path], text: str) -> str:
    run = make("gpt", "--data", text, *GPT)
    Path(text).unlink()  # a checkpoint writes without the text it was trained on
    return str(run)


def directly(run: str, prompt: str, length: int, **options: Any) -> str:
    checkpoint = read_checkpoint(Path(run))
    task: Any = checkpoint.task()
    model = checkpoint.model(task)
    drawn = generate(model, task.tokenizer.encode(prompt), length, **options)
    return prompt + task.tokenizer.decode(drawn) + "\n"


def test_a_text_is_what_generate_draws(gpt: str, run: Run) -> None:
    words = "sample", gpt, "--prompt", "the ", "--length", "20", "--seed", "1"
    result = run(*words)
    assert result.exit_code == 0
    assert result.output == directly(gpt, "the ", 20, temperature=0.8, seed=1)
    assert run(*words).output == result.output
    assert run(*words, "--no-stream").output == result.output
    assert run(*words[:-1], "2").output != result.output


def test_options_choose_the_tokens(gpt: str, run: Run) -> None:
    words = "sample", gpt, "--prompt", "fox", "--length", "12"
    likeliest = run(*words, "--temperature", "0").output
    assert likeliest == directly(gpt, "fox", 12, temperature=0)
    assert run(*words, "--top-k", "1", "--seed", "4").output == likeliest
    assert run(*words, "--top-p", "1e-9", "--seed", "4").output == likeliest
    assert run(*words, "--temperature", "0", "--eager").output == likeliest
    assert run(
        *words, "--temperature", "3", "--top-k", "9", "--top-p", "0.9", "--seed", "2"
    ).output == directly(gpt, "fox", 12, temperature=3, top_k=9, top_p=0.9, seed=2)


def test_without_a_seed_texts_differ(gpt: str, run: Run) -> None:
    words = "sample", gpt, "--length", "40", "--temperature", "2", "--eager"
    assert run(*words).output != run(*words).output


def test_a_folder_stands_for_its_best_checkpoint(
    make: Callable[..., Path], text: str, run: Run
) -> None:
    folder = make("gpt", "--data", text, *GPT, step=1, best=True)
    make("gpt", "--data", text, *GPT, step=2)
    words = "--prompt", "dog", "--length", "16", "--temperature", "2", "--seed", "0"
    chosen = run("sample", str(folder), *words).output
    assert chosen == run("sample", str(folder / "checkpoints/step-000001.ckpt"), *words).output
    assert chosen != run("sample", str(folder / "checkpoints/step-000002.ckpt"), *words).output


def test_an_interrupt_ends_the_text(gpt: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Iterator[int]:
        yield 3
        raise KeyboardInterrupt

    monkeypatch.setattr("evergrad.models.generate.generate", interrupted)
    result = run("sample", gpt, "--prompt", "dog")
    assert result.exit_code == 130
    assert len(result.output) == len("dog?\n") and result.output.endswith("\n")


def test_an_lstm_writes(make: Callable[..., Path], text: str, run: Run) -> None:
    folder = str(make("lstm", "--data", text, *LSTM))
    result = run("sample", folder, "--prompt", "the", "--length", "15", "--seed", "0")
    assert result.output == directly(folder, "the", 15, temperature=0.8, seed=0)


def test_pair_encoding_streams_whole_characters(
    make: Callable[..., Path], tmp_path: Path, run: Run
) -> None:
    pytest.importorskip(
        "tokenizers.models", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    path = tmp_path / "umlauts.txt"
    path.write_text("Füchse üben große Sprünge. " * 40, encoding="utf-8")
    folder = str(
        make("gpt", "--data", str(path), "--tokenizer", "bpe", "--data.vocabulary", "280", *GPT)
    )
    words = "sample", folder, "--prompt", "Fü", "--length", "30", "--seed", "5"
    streamed, whole = run(*words).output, run(*words, "--no-stream").output
    assert streamed.startswith("Fü") and len(streamed) > 10
    assert streamed.replace("\ufffd", "") == whole.replace("\ufffd", "")


def test_a_dit_draws_a_grid(make: Callable[..., Path], tmp_path: Path, run: Run) -> None:
    image = pytest.importorskip(
        "PIL.Image", reason="pillow is not installed: pip install 'evergrad[app]'"
    )
    folder = str(make("dit", *DIT))

    def drawn(name: str, seed: int) -> Any:
        result = run("sample", folder, "--output", str(tmp_path / name), "--seed", str(seed))
        assert (result.exit_code, result.output) == (0, f"{tmp_path / name}\n")
        with image.open(tmp_path / name) as picture:
            return np.array(picture)

    first = drawn("a.png", 1)
    assert first.ndim == 3 and first.shape[2] == 3 and first.std() > 0
    np.testing.assert_array_equal(first, drawn("b.png", 1))
    assert (first != drawn("c.png", 2)).any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prompt", "Ω"), "the prompt cannot be read by this model: the character 'Ω'"),
        (("--prompt", ""), "no token to begin with"),
        (("--temperature", "-1"), "temperature is -1.0"),
        (("--top-k", "0"), "top_k is 0"),
        (("--top-p", "2"), "top_p is 2.0"),
        (("--length", "-1"), "length is -1"),
        (("--length", "many"), "'many' is not a valid integer"),
        (("--output", "a.png"), "--output is for pictures"),
    ],
)
def test_bad_options_are_told(gpt: str, run: Run, words: tuple[str, ...], message: str) -> None:
    result = run("sample", gpt, *words)
    assert result.exit_code == 2
    assert message in result.output


def test_a_task_that_shows_nothing_is_told(
    make: Callable[..., Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make("dit", *DIT)
    monkeypatch.setattr(task_class("dit"), "sample", lambda *_: None)
    result = run("sample", str(folder))
    assert result.exit_code == 2
    assert "the task dit shows no samples" in result.output


def test_missing_and_damaged_checkpoints(gpt: str, tmp_path: Path, run: Run) -> None:
    missing = run("sample", str(tmp_path / "nothing.ckpt"))
    assert missing.exit_code == 2 and "there is no checkpoint" in missing.output
    (tmp_path / "empty").mkdir()
    assert run("sample", str(tmp_path / "empty")).exit_code == 5
    path = next(Path(gpt).rglob("*.ckpt"))
    path.write_bytes(path.read_bytes()[:-100])
    damaged = run("sample", str(path))
    assert damaged.exit_code == 5 and "is damaged" in damaged.output


def test_help_teaches(run: Run) -> None:
    text = run("sample", "--help").output
    for word in ("Examples", "--prompt", "--top-p", "--seed", "Exit codes", "runs/gpt"):
        assert word in text
