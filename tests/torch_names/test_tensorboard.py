"""Logs for TensorBoard: our tensors are taken, and written by tensorboardX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import evergrad
from evergrad import nn
from evergrad.utils import tensorboard


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(tensorboard, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install evergrad\[app\]"):
        tensorboard.SummaryWriter()


class Recorder:
    """Stands for tensorboardX's writer: keeps the calls."""

    def __init__(self, log_dir: str | None = None, **settings: Any) -> None:
        self.logdir = log_dir or "runs"
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, args))


class Package:
    """Stands for tensorboardX."""

    SummaryWriter = Recorder


def test_tensors_become_plain_numbers_and_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "_package", Package)
    x = evergrad.ones(2, 2, requires_grad=True)
    with tensorboard.SummaryWriter("here") as writer:
        assert writer.get_logdir() == "here"
        writer.add_scalar("loss", x.sum(), evergrad.tensor(3))
        writer.add_scalars("both", {"a": x.mean(), "b": 2.0}, 1)
        writer.add_histogram("weights", x, 1)
        writer.add_image("image", evergrad.zeros(3, 2, 2))
        writer.add_images("images", evergrad.zeros(1, 3, 2, 2))
        writer.add_text("note", "it *works*")
        writer.add_pr_curve("curve", evergrad.ones(2), evergrad.ones(2))
        writer.add_hparams({"lr": 0.1, "deep": True}, {"loss": x.sum()})
        writer.flush()
        with pytest.raises(NotImplementedError, match="add_graph"):
            writer.add_graph(nn.Linear(1, 1))
    calls = writer._writer.calls
    assert [name for name, _ in calls] == [
        "add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_text",
        "add_pr_curve", "add_hparams", "flush", "close",
    ]  # fmt: skip
    assert calls[0][1][:3] == ("loss", 4.0, 3)
    assert calls[1][1][1] == {"a": 1.0, "b": 2.0}
    values = [value for _, args in calls for value in args]
    assert not any(isinstance(value, evergrad.Tensor) for value in values)


def test_an_event_file_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    with tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", evergrad.tensor(0.5), 1)
        writer.add_histogram("weights", evergrad.randn(10))
    (path,) = tmp_path.glob("events*")
    assert b"loss" in path.read_bytes() and b"weights" in path.read_bytes()
