"""One exit code for each kind of failure, whichever command meets it, as ``--help`` states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import evergrad as eg
from cli.conftest import Run
from evergrad.cli.main import COMMANDS
from evergrad.errors import MemoryLimitError
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.lora import LoRAConfig, add_lora, save_adapter
from evergrad.train.checkpoint import CheckpointStore
from evergrad.train.config import override, preset, to_toml
from evergrad.train.exit_codes import ExitCode
from evergrad.train.state import TrainingState
from evergrad.train.task import task_class

GPT_WORDS = ("--layers", "1", "--width", "16", "--heads", "2", "--context", "8")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def gpt() -> Path:
    """A run whose only checkpoint is of an untrained model."""
    config = override(preset("gpt", "tiny"), GPT_WORDS)
    state = TrainingState(config, task_class("gpt")(config, None))
    content = {**state.capture(), "config": to_toml(config), "metrics_offset": 0}
    folder = Path("runs/gpt")
    CheckpointStore(folder / "checkpoints", keep=5).write(content, best=True)
    (folder / "config.toml").write_text(to_toml(config))
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def cut_checkpoints(folder: Path) -> None:
    for path in (folder / "checkpoints").glob("*.ckpt"):
        content = path.read_bytes()[:-100]
        path.unlink()  # best.ckpt may be a second name of the same file
        path.write_bytes(content)


READERS = [
    ("sample", "{}"), ("chat", "{}"), ("serve", "{}", "--port", "0"),
    ("finetune", "--tiny", "--init-from", "{}"), ("train", "chat", "--tiny", "--init-from", "{}"),
    ("finetune", "--tiny", "--dpo", "--init-from", "{}"),
    ("train", "flux", "--tiny", "--init-from", "{}"),
]  # fmt: skip


def filled(words: tuple[str, ...], place: object) -> list[str]:
    return [word.format(place) for word in words]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
@pytest.mark.parametrize("damage", ["cut", "text", "empty", "other"])
def test_a_damaged_checkpoint(run: Run, gpt: Path, words: tuple[str, ...], damage: str) -> None:
    path = gpt / "checkpoints" / "best.ckpt"
    if damage == "cut":
        cut(path)
    elif damage == "other":
        eg.save({"weights": eg.zeros(2)}, path)
    else:
        path.write_text("not a checkpoint" if damage == "text" else "")
    result = run(*filled(words, path))
    assert result.exit_code == ExitCode.NO_CHECKPOINT, result.output
    assert "error: " in result.output and "best.ckpt" in result.output


@pytest.mark.parametrize("words", [*READERS, ("train", "{}", "--resume")], ids=" ".join)
def test_a_run_whose_checkpoints_are_all_damaged(
    run: Run, gpt: Path, words: tuple[str, ...]
) -> None:
    cut_checkpoints(gpt)
    result = run(*filled(words, gpt))
    assert result.exit_code == ExitCode.NO_CHECKPOINT, result.output


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_run_without_checkpoints(run: Run, words: tuple[str, ...]) -> None:
    Path("runs/gpt/checkpoints").mkdir(parents=True)
    result = run(*filled(words, "runs/gpt"))
    assert result.exit_code == ExitCode.NO_CHECKPOINT, result.output


@pytest.mark.parametrize(
    "words",
    [*READERS, ("train", "{}", "--resume"), ("train", "{}"), ("memory", "{}"), ("explain", "{}"),
     ("report", "{}")],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("place", ["runs/nope", "no/nope.ckpt"])
def test_what_does_not_exist(run: Run, words: tuple[str, ...], place: str) -> None:
    result = run(*filled(words, place))
    assert result.exit_code == ExitCode.USAGE, result.output
    assert place in result.output


@pytest.mark.parametrize("command", ["chat", "serve", "finetune"])
@pytest.mark.parametrize("damage", ["cut", "config", "missing"])
def test_files_of_hugging_face(
    run: Run, tmp_path: Path, hugging_face: Callable[[], Path], command: str, damage: str
) -> None:
    folder = hugging_face()
    if damage == "cut":
        cut(folder / "model.safetensors")
    elif damage == "config":
        (folder / "config.json").write_text("{")
    else:
        (folder / "model.safetensors").unlink()
    words = ("finetune", "--tiny", "--init-from") if command == "finetune" else (command,)
    result = run(*words, str(folder))
    assert result.exit_code == ExitCode.NO_CHECKPOINT, result.output


@pytest.fixture
def hugging_face() -> Callable[[], Path]:
    def written() -> Path:
        from evergrad.models.hugging_face import save_hugging_face

        folder = Path("hf")
        save_hugging_face(GPT(GPTConfig(vocabulary=16, context=8, layers=1, width=8)), folder)
        return folder

    return written


def test_a_damaged_adapter(run: Run, gpt: Path) -> None:
    model = GPT(GPTConfig(vocabulary=16, context=8, layers=1, width=8, heads=1))
    config = LoRAConfig(rank=1)
    add_lora(model, config)
    save_adapter(model, Path("polite"), config)
    cut(Path("polite/adapter_model.safetensors"))
    result = run("serve", str(gpt), "--port", "0", "--adapter", "a=polite")
    assert result.exit_code == ExitCode.NO_CHECKPOINT, result.output
    missing = run("serve", str(gpt), "--port", "0", "--adapter", "a=nowhere")
    assert missing.exit_code == ExitCode.USAGE, missing.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (MemoryError(), ExitCode.MEMORY),
        (MemoryLimitError("no plan"), ExitCode.MEMORY),
        (PermissionError(13, "Permission denied"), ExitCode.ERROR),
        (ModuleNotFoundError("rich is missing"), ExitCode.ERROR),
    ],
)
@pytest.mark.parametrize(
    ("command", "place"),
    [
        (("memory", "--tiny"), "evergrad.cli.memory.plan_training"),
        (("explain", "--tiny"), "evergrad.cli.explain.explanations"),
        (("bench",), "evergrad.cli.bench.time_task"),
        (("check", "--quick"), "evergrad.cli.check.stages"),
        (("doctor",), "evergrad.cli.doctor.diagnose"),
        (("demo",), "evergrad.cli.demo.Demo.run"),
        (("report", "runs"), "evergrad.cli.report.write_report"),
        (("sample", "x"), "evergrad.cli.sample.read_checkpoint"),
        (("train", "--tiny"), "evergrad.cli.train.prepare"),
        (("finetune", "--tiny"), "evergrad.cli.train.prepare"),
        (("chat", "x"), "evergrad.cli.chat.service_of"),
        (("serve", "x", "--port", "0"), "evergrad.cli.serve.service_of"),
        (("launch", "-n", "1", "--", "doctor"), "evergrad.cli.launch.run"),
    ],
)
def test_every_command_ends_with_the_code_of_its_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], place: str,
    error: BaseException, code: ExitCode,
) -> None:  # fmt: skip
    def failing(*args: object, **kwargs: object) -> NoReturn:
        raise error

    monkeypatch.setattr(place, failing)
    result = run(*command)
    assert result.exit_code == code, result.output
    assert result.output.startswith("error: ") and "Traceback" not in result.output


def test_every_command_is_in_the_test_above() -> None:
    rows = test_every_command_ends_with_the_code_of_its_error.pytestmark[0].args[1]
    assert {words[0] for words, _ in rows} == set(COMMANDS)


def test_help_states_every_exit_code(run: Run) -> None:
    for words in (("--help",), ("train", "--help")):
        text = run(*words).output.partition("xit codes")[2]
        assert all(str(int(code)) in text for code in ExitCode), words
