"""Fine-tuning: answers alone are learned, packed texts do not see each other, LoRA, DPO, resume."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.datasets.conversations import read_conversations, read_preferences
from evergrad.datasets.small_talk import small_talk
from evergrad.models.cache import Segments
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.lora import adapted_layers, read_adapter
from evergrad.tokenizers.chat import Example
from evergrad.train.checkpoint import CheckpointStore, read_checkpoint
from evergrad.train.config import ConfigError, RunConfig, override, preset, to_toml
from evergrad.train.console import Console
from evergrad.train.directory import RunDirectory
from evergrad.train.exit_codes import ExitCode
from evergrad.train.loop import Trainer
from evergrad.train.pretrained import extended, load_pretrained
from evergrad.train.state import TrainingState
from evergrad.train.task import task_class
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.packing import IGNORED, pack, pad

from .runs import assert_same_runs

SIZES = ("--layers", "1", "--width", "16", "--heads", "2", "--context", "16")
VARIANTS = {
    "learned": GPTConfig(vocabulary=9, context=12, layers=2, heads=2, width=8),
    "rotary": GPTConfig(
        vocabulary=9, context=12, layers=2, heads=2, width=8, positions="rotary", norm="rms",
        feed_forward="swiglu", kv_heads=1,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with a GPT of pydoc's alphabet."""
    folder = tmp_path_factory.mktemp("base") / "gpt"
    config = override(preset("gpt", "tiny"), SIZES)
    state = TrainingState(config, task_class("gpt")(config, None))
    content = {**state.capture(), "config": to_toml(config), "metrics_offset": 0}
    CheckpointStore(folder / "checkpoints", keep=1).write(content, best=False)
    return str(folder)


def options(base: str, path: Path, *words: str, task: str = "chat") -> RunConfig:
    config = override(
        preset(task, "tiny"),
        ["--init-from", base, "--context", "64", "--steps", "4", "--batch", "2", "--log-every", "1",
         "--evaluate-every", "2", "--sample-every", "0", "--evaluate-batches", "1",
         "--checkpoint-every", "2", *words],
    )  # fmt: skip
    return dataclasses.replace(config, output=str(path))


def train(config: RunConfig) -> ExitCode:
    return Trainer(config, RunDirectory(Path(config.output)), Console()).run()


# -- packing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_packed_texts_do_not_see_each_other(name: str) -> None:
    """Scores in a packed row are those of each text alone, and another text changes none."""
    eg.manual_seed(0)
    model = GPT(VARIANTS[name]).eval()
    texts = [[1, 2, 3, 4], [5, 6], [7, 8, 1, 2, 3, 4]]
    row = [token for text in texts for token in text]
    numbers = [n for n, text in enumerate(texts) for _ in text]
    with eg.no_grad():
        packed = model(eg.tensor([row]), Segments(eg.tensor([numbers]), 2)).numpy()[0]
        alone = np.concatenate([model(eg.tensor([text])).numpy()[0] for text in texts])
        np.testing.assert_allclose(packed, alone, rtol=1e-4, atol=1e-6)
        other = model(
            eg.tensor([[8, 8, 8, 8, *row[4:]]]), Segments(eg.tensor([numbers]), 2)
        ).numpy()[0]
        np.testing.assert_array_equal(packed[4:], other[4:])
        assert np.abs(packed[:4] - other[:4]).max() > 1e-3


def test_rows_hold_whole_examples_and_learn_what_is_marked() -> None:
    examples = [
        Example([10 * n + i for i in range(n + 2)], [i > 1 for i in range(n + 2)])
        for n in range(1, 6)
    ]
    tokens, following, segments = (t.numpy() for t in pack(examples, 16, 3, draw(0, "x")))
    for row in range(3):
        for number in range(segments[row].max() + 1):
            here = segments[row] == number
            (example,) = [e for e in examples if e.tokens[:-1] == tokens[row][here].tolist()]
            expected = [
                t if learned else IGNORED
                for t, learned in zip(example.tokens[1:], example.learned[1:], strict=True)
            ]
            assert following[row][here].tolist() == expected
        assert (following[row][segments[row] == -1] == IGNORED).all()
    again = pack(examples, 16, 3, draw(0, "x"))
    assert (again[0].numpy() == tokens).all()


def test_an_example_longer_than_a_row_keeps_its_end() -> None:
    long = Example(list(range(30)), [False] * 20 + [True] * 10)
    tokens, following, _ = pack([long], 8, 1, draw(0, "x"))
    assert tokens.numpy().tolist() == [list(range(21, 29))]
    assert following.numpy().tolist() == [list(range(22, 30))]
    assert pad([long], 8)[0].numpy().tolist() == tokens.numpy().tolist()


def test_what_follows_the_last_answer_is_left_out() -> None:
    """A long question at the end would push the answer out of the row: a loss of nothing is NaN."""
    example = Example(list(range(30)), [False] * 5 + [True] * 3 + [False] * 22)
    tokens, following, segments = (t.numpy() for t in pack([example], 10, 1, draw(0, "x")))
    assert tokens[0, :7].tolist() == list(range(7)) and segments[0].tolist() == [0] * 7 + [-1] * 3
    assert following[0].tolist() == [IGNORED] * 4 + [5, 6, 7] + [IGNORED] * 3
    for context in range(1, 12):
        assert (pack([example], context, 2, draw(0, "x"))[1].numpy() != IGNORED).any(1).all()


@pytest.mark.parametrize("length", [2, 3, 4])
def test_the_shortest_examples_fill_whole_rows(length: int) -> None:
    example = Example(list(range(length)), [False] + [True] * (length - 1))
    for context in (1, 2, 5, 16):
        segments = pack([example], context, 3, draw(0, "x"))[2].numpy()
        assert (segments.max(1) + 1 == max(1, context // (length - 1))).all()


def test_the_loss_is_that_of_the_answers(base: str, tmp_path: Path) -> None:
    """By hand: each conversation read alone, the negative log-probabilities of marked tokens."""
    task: Any = task_class("chat")(options(base, tmp_path), None)
    model = task.model().eval()
    batch = task.batch(0)
    found = task.loss(model, *batch).item()
    tokens, following, segments = (part.numpy() for part in batch)
    losses = []
    for row in range(len(tokens)):
        for number in range(segments[row].max() + 1):
            here = segments[row] == number
            with eg.no_grad():
                scores = model(eg.tensor([tokens[row][here].tolist()])).numpy()[0].astype(float)
            log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
            wanted = following[row][here]
            losses += [-log_p[i, t] for i, t in enumerate(wanted) if t != IGNORED]
    np.testing.assert_allclose(found, np.mean(losses), rtol=1e-5)


# -- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_an_extended_model_scores_as_before(name: str) -> None:
    eg.manual_seed(0)
    model = GPT(VARIANTS[name]).eval()
    longer = extended(model, 12, 20).eval()
    assert (longer.config.vocabulary, longer.config.context) == (12, 20)
    tokens = eg.tensor([[1, 2, 3, 4, 5]])
    with eg.no_grad():
        np.testing.assert_array_equal(longer(tokens).numpy()[..., :9], model(tokens).numpy())
        assert longer(eg.tensor([[11] * 20])).shape == (1, 20, 12)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_run_trains_and_is_loaded(
    base: str, tmp_path: Path, method: str, without_report: None
) -> None:
    words = ("--method", method)
    assert train(options(base, tmp_path / "whole", *words)) == ExitCode.DONE
    checkpoint = read_checkpoint(tmp_path / "whole")
    task: Any = checkpoint.task()
    model = checkpoint.model(task)
    has_adapters = bool(list(adapted_layers(model)))
    assert has_adapters == (method == "lora")
    if has_adapters:
        frozen = load_pretrained(base).model.state_dict()["blocks.0.attention.qkv.weight"]
        np.testing.assert_array_equal(
            model.state_dict()["blocks.0.attention.qkv.weight"].numpy(), frozen.numpy()
        )
    loaded = load_pretrained(tmp_path / "whole")
    assert not list(adapted_layers(loaded.model))
    with eg.no_grad():
        tokens = eg.tensor([task.format.prompt([{"role": "user", "content": "Hi"}])])
        np.testing.assert_allclose(
            loaded.model(tokens).numpy(), model(tokens).numpy(), rtol=1e-4, atol=1e-5
        )


def test_an_interrupted_run_goes_on_to_the_bit(
    base: str, tmp_path: Path, without_report: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evergrad.train import loop

    whole, parted = (options(base, tmp_path / name) for name in ("whole", "parted"))
    assert train(whole) == ExitCode.DONE

    class Stopped:
        received = ExitCode.INTERRUPTED

        def __enter__(self) -> Stopped:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    with monkeypatch.context() as patched:
        patched.setattr(loop, "Interrupts", Stopped)
        assert train(parted) == ExitCode.INTERRUPTED
    assert train(parted) == ExitCode.DONE
    assert_same_runs(tmp_path / "whole", tmp_path / "parted", 4)


def test_the_small_talk_is_learned(base: str, tmp_path: Path) -> None:
    """A few dozen steps lower the loss of held-out answers well below that of the first."""
    config = options(base, tmp_path, "--steps", "60", "--lr", "1e-2", "--batch", "4")
    state = TrainingState(config, task_class("chat")(config, None))
    step = state.training_step()
    losses = [step(number).loss for number in range(60)]
    assert np.mean(losses[-5:]) < 0.75 * losses[0]


# -- preferences ----------------------------------------------------------------------------------


def test_dpo_is_the_formula_and_prefers_the_chosen(base: str, tmp_path: Path) -> None:
    config = options(base, tmp_path, "--lr", "3e-3", "--beta", "0.5", "--batch", "3", task="dpo")
    task: Any = task_class("dpo")(config, None)
    state = TrainingState(config, task)
    model = state.model.eval()
    assert task.loss(model, *task.batch(0)).item() == pytest.approx(math.log(2), abs=1e-6)
    with eg.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * eg.randn(parameter.shape))
    tokens, following, reference = (part.numpy() for part in task.batch(1))
    with eg.no_grad():
        scores = model(eg.tensor(tokens)).numpy().astype(float)
    log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    sums = np.array([
        sum(log_p[r, i, t] for i, t in enumerate(following[r]) if t != IGNORED)
        for r in range(len(tokens))
    ])  # fmt: skip
    gains = sums - reference
    expected = np.log1p(np.exp(-0.5 * (gains[:3] - gains[3:]))).mean()
    assert task.loss(model, *task.batch(1)).item() == pytest.approx(expected, rel=1e-4)
    model.train()
    step = state.training_step()
    losses = [step(number).loss for number in range(12)]
    assert losses[-1] < losses[0]
    with state.evaluated_model() as judged:
        assert task.evaluate(judged)["accuracy"] > 0.5


def test_a_dpo_run_resumes_with_its_reference(
    base: str, tmp_path: Path, without_report: None
) -> None:
    config = options(base, tmp_path / "dpo", "--steps", "2", task="dpo")
    assert train(config) == ExitCode.DONE
    before = task_class("dpo")(config, None).batch(3)
    again = read_checkpoint(tmp_path / "dpo").task().batch(3)
    for one, other in zip(before, again, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


# -- data and what is refused ---------------------------------------------------------------------


def test_files_of_conversations(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    talks = small_talk()[:3]
    separator = "a\u2028b"  # a line separator of Unicode does not end a line of JSON
    talks[0][0]["content"] = separator
    lines = [json.dumps({"messages": turns}, ensure_ascii=False) for turns in talks]
    path.write_text("\n".join([lines[0], "", *lines[1:]]) + "\n", encoding="utf-8")
    assert read_conversations(path) == talks
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"prompt": "hi", "chosen": "a", "rejected": "b"}))
    (found,) = read_preferences(pairs)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_conversations(path) == talks  # as some editors write files
    assert found.prompt == [{"role": "user", "content": "hi"}] and found.chosen == "a"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: Expecting"),
        ("[]", "line 2: expected"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "line 2: no message has the role"),
        ('{"messages": [{"role": "bot", "content": "x"}]}', "line 2: a role is"),
        ('{"messages": [{"role": "user"}]}', "line 2: a message is"),
        ('{"messages": [{"role": "assistant", "content": null}]}', "line 2: the content"),
    ],
)
def test_wrong_lines_are_told_with_their_number(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "talks.jsonl"
    good = '{"messages": [{"role": "assistant", "content": "x"}]}'
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(ValueError, match=told):
        read_conversations(path)
    path.write_text("\n\n")
    with pytest.raises(ValueError, match="empty"):
        read_conversations(path)


def test_what_cannot_be_fine_tuned_is_told(base: str, tmp_path: Path) -> None:
    def made(*words: str, task: str = "chat") -> Any:
        return task_class(task)(options(base, tmp_path, *words, task=task), None)

    with pytest.raises(ConfigError, match="--init-from"):
        made("--init-from", "")
    with pytest.raises(ConfigError, match="there is no file"):
        _ = made("--data", str(tmp_path / "no.jsonl")).parts
    talk = tmp_path / "one.jsonl"
    talk.write_text('{"messages": [{"role": "assistant", "content": "x"}]}\n')
    with pytest.raises(ConfigError, match="at least two"):
        _ = made("--data", str(talk)).parts
    with pytest.raises(ConfigError, match="rank is 0"):
        made("--rank", "0")
    with pytest.raises(ConfigError, match="beta"):
        made("--beta", "0", task="dpo")
    with pytest.raises(ValueError, match="no linear layer"):
        made("--method", "lora", "--targets", "nothing").model()


def test_the_command_saves_an_adapter(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_report: None
) -> None:
    testing = pytest.importorskip("click.testing", reason="click is not installed")
    from evergrad.cli.main import main

    monkeypatch.chdir(tmp_path)
    words = ["finetune", "--init-from", base, "--tiny", "--steps", "1", "--context", "64",
             "--batch", "1", "--evaluate-batches", "1"]  # fmt: skip
    done = testing.CliRunner().invoke(
        main, [*words, "--lora", "--rank", "2", "--save-adapter", "polite"]
    )
    assert done.exit_code == 0, done.output
    assert read_adapter(tmp_path / "polite").config.rank == 2
    refused = testing.CliRunner().invoke(main, [*words, "--save-adapter", "x"])
    assert refused.exit_code == 2 and "--lora" in refused.output
    missing = testing.CliRunner().invoke(main, ["finetune"])
    assert missing.exit_code == 2 and "--init-from" in missing.output
