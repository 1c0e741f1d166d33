"""The cache of kernels on disk: what is in it is used, what is damaged is made again."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evergrad import config
from evergrad.compiler.native import disk_cache, jit

TEXT = "define i64 @answer() {\n  ret i64 42\n}\n"

# Runs a compiled step and prints its result and how many IR modules LLVM compiled for it.
PROGRAM = """
import evergrad as eg
from evergrad.compiler.native import jit
made = []
request = jit._request
jit._request = lambda file, text: made.append(text) or request(file, text)
x = eg.arange(12.0).reshape(3, 4).requires_grad_()
y = eg.compile(lambda x: ((x @ x.t()).tanh() + x.exp().sum()).mean())(x)
y.backward()
print(y.item(), x.grad.sum().item(), len(made))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    before, config.KERNEL_CACHE = config.KERNEL_CACHE, str(tmp_path / "kernels")
    yield tmp_path / "kernels"
    config.KERNEL_CACHE = before


def answer() -> Any:
    return jit.function_of(jit.addresses_in(TEXT, ["answer"])["answer"], result=ctypes.c_int64)()


def spied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled from now on."""
    made: list[str] = []
    compiled = jit._compiled

    def noted(file: str, text: str) -> bytes:
        made.append(text)
        return compiled(file, text)

    monkeypatch.setattr(jit, "_compiled", noted)
    return made


def process(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "EVERGRAD_KERNEL_CACHE": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment,
    )  # fmt: skip


def outcome(started: subprocess.Popen[str]) -> tuple[str, str, int]:
    out, error = started.communicate(timeout=120)
    assert started.returncode == 0, error
    value, gradient, made = out.split()
    return value, gradient, int(made)


def test_a_text_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = spied(monkeypatch)
    assert answer() == answer() == 42
    assert len(made) == 1
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"", lambda data: data[:40], lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b"x" + data[1:],
        lambda data: data + b"x",
    ],
)  # fmt: skip
def test_a_damaged_file_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Any
) -> None:
    assert answer() == 42
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    made = spied(monkeypatch)
    assert answer() == 42
    assert len(made) == 1
    assert path.read_bytes() == whole
    answer()
    assert len(made) == 1


@pytest.mark.parametrize("kind", ["a file in its place", "no permission"])
def test_a_folder_that_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "no permission":

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise PermissionError("read-only")

        monkeypatch.setattr(tempfile, "mkstemp", refuse)
    else:
        folder.write_text("not a folder")
    made = spied(monkeypatch)
    assert answer() == answer() == 42
    assert len(made) == 2


def test_a_failed_write_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(disk_cache.os, "replace", full)
    assert answer() == 42
    assert list(folder.iterdir()) == []


def test_the_text_and_the_machine_name_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer()
    monkeypatch.setattr(jit, "target_name", lambda: "a machine of another kind")
    answer()
    assert len(list(folder.iterdir())) == 2


def test_processes_share_the_folder(tmp_path: Path) -> None:
    """Two at once; a third then finds everything made."""
    shared = tmp_path / "shared"
    started = [process(shared), process(shared)]
    first, second = map(outcome, started)
    assert first[:2] == second[:2]
    assert first[2] + second[2] > 0
    assert outcome(process(shared)) == (*first[:2], 0)
    assert not [path for path in shared.iterdir() if path.suffix not in (".o", ".program")]
