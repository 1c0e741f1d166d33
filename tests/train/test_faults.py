"""What goes wrong is told, costs no state that was saved, and shows in the exit code."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import evergrad as eg
from evergrad.cli.train import run
from evergrad.errors import GradientError, MemoryLimitError
from evergrad.io import saving
from evergrad.train.checkpoint import CheckpointError, read_checkpoint
from evergrad.train.config import ConfigError
from evergrad.train.exit_codes import ExitCode
from evergrad.train.interrupts import Interrupts
from train.kills import wait_for_steps, write_config
from train.runs import (
    assert_same_bits,
    assert_same_runs,
    command,
    environment,
    final_state,
    metrics,
    start,
    tiny,
    train,
    trainer,
)
from train.tiny_task import NAME

pytestmark = pytest.mark.usefixtures("without_report")


def checkpoints(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "checkpoints").iterdir())


# -- a full disk ----------------------------------------------------------------------------------


class FullDisk:
    """Writes half of a checkpoint and fails, while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, full_from: int, full_to: int) -> None:
        self.count, self.range = 0, range(full_from, full_to)
        self.write = saving.write_archive
        monkeypatch.setattr(saving, "write_archive", self)

    def __call__(self, file: Any, *args: Any, **kwargs: Any) -> None:
        self.count += 1
        if self.count - 1 in self.range:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.write(file, *args, **kwargs)


def test_disk_that_is_full_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny(tmp_path / "whole"))
    FullDisk(monkeypatch, 2, 4)
    assert train(tiny(tmp_path / "full")) == ExitCode.DONE
    assert_same_runs(tmp_path / "whole", tmp_path / "full", 20)
    told = capsys.readouterr().out
    assert "step 10 could not be saved" in told and "No space left on device" in told


def test_disk_that_stays_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FullDisk(monkeypatch, 2, 100)
    assert train(tiny(tmp_path)) == ExitCode.NOT_SAVED
    assert checkpoints(tmp_path) == ["best.ckpt", "step-000000.ckpt", "step-000005.ckpt"]
    assert "the newest state is not saved" in capsys.readouterr().out
    monkeypatch.undo()
    assert read_checkpoint(tmp_path / "checkpoints" / "step-000005.ckpt").step == 5


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """A limit on the size of files, met by checkpoints at once and by metrics.jsonl later."""
    import resource

    limit = 3000
    config_file = write_config(tmp_path, tiny(tmp_path / "run", "--steps", "60", "--eager"))
    done = subprocess.run(
        command(config_file), env=environment(), capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == ExitCode.NOT_SAVED, done.stdout + done.stderr
    assert "File too large" in done.stdout
    assert checkpoints(tmp_path / "run") == []
    lines = metrics(tmp_path / "run")  # whole lines only
    assert 0 < lines[-1]["step"] < 60


# -- damaged checkpoints --------------------------------------------------------------------------


def flip_bits(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(0, len(data), 1000):
        data[place] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip_bits, cut, empty])
def test_newest_checkpoint_damaged(
    tmp_path: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny(tmp_path / "whole"))
    train(tiny(tmp_path / "run"))
    damage(tmp_path / "run" / "checkpoints" / "step-000020.ckpt")
    assert train(tiny(tmp_path / "run")) == ExitCode.DONE
    told = capsys.readouterr().out
    assert "step-000020.ckpt is damaged" in told and "going on after step 15" in told
    assert "step-000020.ckpt.damaged" in checkpoints(tmp_path / "run")
    assert_same_runs(tmp_path / "whole", tmp_path / "run", 20)


def test_every_bit_of_a_checkpoint_is_guarded(tmp_path: Path) -> None:
    """A flipped bit either is found or changes nothing that is read."""
    train(tiny(tmp_path, "--steps", "2"))
    path = tmp_path / "checkpoints" / "step-000002.ckpt"
    original, expected = path.read_bytes(), read_checkpoint(path).content
    for place in range(0, len(original), 41):
        data = bytearray(original)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            found = read_checkpoint(path).content
        except CheckpointError:
            continue
        assert_same_bits(found, expected)


def test_all_checkpoints_damaged(tmp_path: Path) -> None:
    train(tiny(tmp_path))
    for path in (tmp_path / "checkpoints").glob("step-*"):
        empty(path)
    assert run(None, True, [str(tmp_path)], [NAME]) == ExitCode.NO_CHECKPOINT


def test_another_file_is_not_a_checkpoint(tmp_path: Path) -> None:
    eg.save({"step": 3}, tmp_path / "other.ckpt")
    with pytest.raises(CheckpointError, match="not a checkpoint of evergrad train"):
        read_checkpoint(tmp_path / "other.ckpt")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        read_checkpoint(tmp_path)


# -- numbers that are not finite ------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--accumulate", "2"), ("--evaluate-every", "2")])
def test_non_finite_loss(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The state that is left is that of a run that stopped just before."""
    batches = 2 if "--accumulate" in words else 1
    config = tiny(tmp_path / "run", *words, "--bad-batch", str(12 * batches))
    assert train(config) == ExitCode.NOT_FINITE
    told = capsys.readouterr().out
    assert "step 13: loss" in told
    assert "came from" in told and "tiny_task.py" in told  # the op and the line
    train(tiny(tmp_path / "good", *words, "--steps", "20", "--checkpoint-every", "1"))
    good = [line for line in metrics(tmp_path / "good") if line["step"] <= 12]
    assert metrics(tmp_path / "run") == good


def test_state_before_a_non_finite_step_is_kept(tmp_path: Path) -> None:
    train(tiny(tmp_path / "run", "--bad-batch", "12"))
    train(tiny(tmp_path / "good", "--checkpoint-every", "1", "--keep", "20"))
    assert_same_bits(final_state(tmp_path / "run", 12), final_state(tmp_path / "good", 12))


def test_eager_run_falls_back_to_its_own_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny(tmp_path, "--eager", "--bad-batch", "12")) == ExitCode.NOT_FINITE
    assert "after step 10, is saved" in capsys.readouterr().out
    assert checkpoints(tmp_path)[-1] == "step-000010.ckpt"


# -- signals --------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_signal_saves_and_ends(tmp_path: Path, number: int, code: ExitCode) -> None:
    path = tmp_path / "run"
    config_file = write_config(tmp_path, tiny(path, "--steps", "100000", "--checkpoint-every", "0"))
    with start(config_file) as process:
        wait_for_steps(path, process)
        process.send_signal(number)
        output = process.communicate(timeout=60)[0]
    assert process.returncode == code, output
    assert "--resume" in output
    saved = max(path.glob("checkpoints/step-*"))
    assert read_checkpoint(saved).step == max(line["step"] for line in metrics(path)) > 0


def test_second_interrupt_ends_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.received == ExitCode.INTERRUPTED
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert "Ctrl-C again" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- what does not fit ----------------------------------------------------------------------------


def test_parameter_without_gradient_is_told_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(GradientError, match=r"unused .*missing"):
        train(tiny(tmp_path / "run", "--unused"))
    assert not (tmp_path / "run").exists()


def test_limit_that_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(MemoryLimitError):
        train(tiny(tmp_path / "run", "--memory-limit", "100"))
    assert not (tmp_path / "run").exists()


def test_folder_in_use(tmp_path: Path) -> None:
    train(tiny(tmp_path))
    first = trainer(tiny(tmp_path))
    with pytest.raises(ConfigError, match="another process is training"):
        trainer(tiny(tmp_path))
    first.directory.release()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "is the folder of a run; go on with it with --resume"),
        (
            ["--resume", "--batch", "9"],
            "batch cannot change in a run that is resumed: it is 8",
        ),
        (["--resume", "--width", "9"], "model.width cannot change"),
    ],
)
def test_what_a_resumed_run_cannot_do(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tiny(tmp_path))
    options = [word for word in words if word != "--resume"]
    assert run(None, "--resume" in words, [str(tmp_path), *options], [NAME]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
