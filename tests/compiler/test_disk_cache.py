"""The cache of kernels on disk: what is in it is used, what is damaged is made again."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evergrad import config
from evergrad.compiler import program_cache
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

        monkeypatch.setattr(disk_cache, "_temporary_file", refuse)
    else:
        folder.write_text("not a folder")
    made = spied(monkeypatch)
    assert answer() == answer() == 42
    assert len(made) == 2


def test_a_failed_write_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
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


# -- who may write what is executed ---------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def entry(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_the_folder_and_the_key_are_the_users_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        assert answer() == 42
    finally:
        os.umask(before)
    key = folder.with_name("kernels.key")
    assert (mode(folder), mode(key), key.stat().st_size) == (0o700, 0o600, 32)
    assert mode(entry(folder)) == 0o600


def test_a_folder_that_others_can_read_is_closed(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    assert answer() == 42
    assert mode(folder) == 0o700 and entry(folder)


@pytest.mark.parametrize("unsafe", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, unsafe: int
) -> None:
    folder.mkdir()
    folder.chmod(unsafe)
    made = spied(monkeypatch)
    assert answer() == answer() == 42
    assert len(made) == 2 and list(folder.iterdir()) == []
    assert "700" in str(disk_cache.problem())


def test_a_folder_of_somebody_else_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer() == 42
    (before,) = folder.iterdir()
    user = os.geteuid()
    monkeypatch.setattr(disk_cache.os, "geteuid", lambda: user + 1)
    made = spied(monkeypatch)
    assert answer() == answer() == 42
    assert len(made) == 2 and list(folder.iterdir()) == [before]


def test_a_link_in_place_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    folder.symlink_to(other)
    assert answer() == 42
    assert list(other.iterdir()) == []


def replace_by_link(path: Path) -> None:
    path.rename(path.parent.with_name("elsewhere"))
    path.symlink_to(path.parent.with_name("elsewhere"))


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def replace_by_device_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def replace_by_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made, pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)  # names of sockets are short
        made.bind("s")
    (path.parent / "s").rename(path)


def add_hard_link(path: Path) -> None:
    os.link(path, path.parent.with_name("elsewhere"))


def replace_by_sparse_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(
    "spoil",
    [
        replace_by_link, replace_by_fifo, replace_by_device_link, replace_by_socket, add_hard_link,
        replace_by_sparse_file, lambda path: path.chmod(0o620), lambda path: path.chmod(0o602),
    ],
)  # fmt: skip
def test_what_is_no_file_of_the_user_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    assert answer() == 42
    path = entry(folder)
    spoil(path)
    made = spied(monkeypatch)
    assert answer() == 42
    assert len(made) == 1
    assert path.is_file() and not path.is_symlink() and mode(path) == 0o600
    assert answer() == 42
    assert len(made) == 1


def test_a_folder_in_place_of_a_file(folder: Path) -> None:
    assert answer() == 42
    path = entry(folder)
    path.unlink()
    path.mkdir()
    assert answer() == answer() == 42


def test_a_device_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    path = folder / "device.o"
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root makes devices")
    assert disk_cache.read(path, b"kind") is None


def forged(data: bytes) -> bytes:
    """Other content with a right checksum, as somebody without the key can make it."""
    content = data[len(jit._KIND) + 32 :] + b"forged"
    return jit._KIND + hashlib.sha256(content).digest() + content


def test_a_forged_file_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer() == 42
    path = entry(folder)
    path.write_bytes(forged(path.read_bytes()))
    made = spied(monkeypatch)
    assert answer() == 42
    assert len(made) == 1


def test_files_cannot_change_places(folder: Path) -> None:
    for name in ("a", "b"):
        disk_cache.write(folder / name, b"kind", name.encode())
    (folder / "a").replace(folder / "b")
    assert disk_cache.read(folder / "b", b"kind") is None
    assert not (folder / "b").exists()


def test_a_folder_from_elsewhere_is_made_again(folder: Path, tmp_path: Path) -> None:
    disk_cache.write(folder / "a", b"kind", b"content")
    other = tmp_path / "copied"
    shutil.copytree(folder, other)
    assert disk_cache.read(other / "a", b"kind") is None
    disk_cache.write(other / "a", b"kind", b"new")
    assert disk_cache.read(other / "a", b"kind") == b"new"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key.unlink(), lambda key: key.write_bytes(b""), lambda key: key.chmod(0o644),
        lambda key: key.write_bytes(bytes(33)), replace_by_link, replace_by_fifo,
        replace_by_device_link, lambda key: key.chmod(0o606),
    ],
)  # fmt: skip
def test_a_damaged_key_is_made_again(folder: Path, spoil: Any) -> None:
    disk_cache.write(folder / "a", b"kind", b"content")
    spoil(folder.with_name("kernels.key"))
    assert disk_cache.read(folder / "a", b"kind") is None
    disk_cache.write(folder / "a", b"kind", b"new")
    assert disk_cache.read(folder / "a", b"kind") == b"new"
    key = folder.with_name("kernels.key")
    assert mode(key) == 0o600 and not key.is_symlink()


@pytest.mark.parametrize("first", ["missing", "short", "readable by others"])
def test_a_key_that_another_has_just_made_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """One process finds no key, or a damaged one; before it goes on, another makes the key and
    writes a file."""
    disk_cache.write(folder / "before", b"kind", b"content")
    key = folder.with_name("kernels.key")
    if first == "missing":
        key.unlink()
    elif first == "short":
        key.write_bytes(b"short")
    else:
        key.chmod(0o644)
    read_key = disk_cache._read_key

    def read_and_be_overtaken(place: Path) -> bytes:
        monkeypatch.setattr(disk_cache, "_read_key", read_key)
        try:
            return read_key(place)
        finally:
            disk_cache.write(folder / "other", b"kind", b"of another")

    monkeypatch.setattr(disk_cache, "_read_key", read_and_be_overtaken)
    disk_cache.write(folder / "own", b"kind", b"own")
    assert disk_cache.read(folder / "other", b"kind") == b"of another"
    assert disk_cache.read(folder / "own", b"kind") == b"own"


def test_processes_agree_on_one_key(folder: Path) -> None:
    """Many make the key at the same moment, threads and forked processes: what each has written
    can be read by all."""
    start = time.monotonic() + 0.3

    def write_some(number: int) -> None:
        while time.monotonic() < start:
            pass
        for part in range(3):
            disk_cache.write(folder / f"{number}-{part}", b"kind", b"%d" % number)

    children = []
    for number in range(8):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                threads = [
                    threading.Thread(target=write_some, args=(10 * number + i,)) for i in (1, 2)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    found = [disk_cache.read(path, b"kind") for path in sorted(folder.iterdir())]
    assert len(found) == 8 * 2 * 3 and None not in found
    assert sorted(p.name for p in folder.parent.iterdir()) == ["kernels", "kernels.key"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None), ({"HOME": ""}, None), ({"HOME": "relative"}, None),
        ({"HOME": "/h"}, "/h/.cache/evergrad/kernels"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/evergrad/kernels"),
        ({"XDG_CACHE_HOME": "x", "HOME": "/h"}, "/h/.cache/evergrad/kernels"),
        ({"XDG_CACHE_HOME": "~/x"}, None), ({"EVERGRAD_KERNEL_CACHE": "/k"}, "/k"),
        ({"EVERGRAD_KERNEL_CACHE": "k", "HOME": "/h"}, None),
        ({"EVERGRAD_KERNEL_CACHE": "~/k", "HOME": "/h"}, None),
    ],
)  # fmt: skip
def test_the_folder_is_absolute_or_there_is_none(
    environment: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "EVERGRAD_KERNEL_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert config._cache_folder() == expected


def test_without_a_home_nothing_is_written(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PATH": os.environ.get("PATH", "")}
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM], env=paths, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_programs_of_another_form_are_built_again(folder: Path) -> None:
    """Content with a right MAC that is no program, as another version may have written."""
    assert outcome(process(folder))[2] > 0
    expected = outcome(process(folder))
    assert expected[2] == 0
    for content in (b"", b"[]", b"null", b"[" * 100_000, b'{"a": 1}', b"\x80\x04."):
        for path in folder.glob("*.program"):
            disk_cache.write(path, program_cache._KIND, content)
        assert outcome(process(folder))[:2] == expected[:2]
