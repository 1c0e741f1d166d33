"""A path always has a whole file: the former one until the new one is on disk."""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import evergrad
from evergrad.errors import FileFormatError
from evergrad.io import safetensors as st
from evergrad.utils import atomic_file as atomic
from evergrad.utils.atomic_file import SUFFIX, replacing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that must survive."""
    path = tmp_path / "model.pt"
    evergrad.save({"former": evergrad.arange(5)}, path)
    return path


def assert_former(path: Path) -> None:
    assert evergrad.load(path)["former"].tolist() == [0, 1, 2, 3, 4]
    assert os.listdir(path.parent) == [path.name]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("cannot be pickled")


def test_a_failed_pickle_changes_nothing(path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be pickled"):
        evergrad.save([evergrad.ones(3), Unpicklable()], path)
    assert_former(path)


class FullDisk:
    """A file on a disk that has no more space after some bytes."""

    def __init__(self, file: Any, space: int) -> None:
        self._file = file
        self._space = space

    def write(self, data: Any) -> int:
        self._space -= len(data)
        if self._space < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("space", [0, 10, 300, 3000])
def test_a_full_disk_changes_nothing(
    path: Path, new: bool, space: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str, mode: str) -> Any:
        return _Managed(open(name, mode), space)

    monkeypatch.setattr(atomic, "open", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        evergrad.save(evergrad.ones(1000), path, _use_new_zipfile_serialization=new)
    monkeypatch.undo()
    assert_former(path)


class _Managed(FullDisk):
    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._file.close()


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failure_of_the_system_changes_nothing(
    path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError(errno.EIO, f"{step} failed")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="failed"):
        evergrad.save(evergrad.ones(3), path)
    monkeypatch.undo()
    assert_former(path)


def test_an_interruption_changes_nothing(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert_former(path)


def test_safetensors_are_atomic_too(path: Path) -> None:
    with pytest.raises(Exception, match="metadata"):
        st.save_file({"a": evergrad.ones(3)}, path, metadata={"a": 1})  # type: ignore[dict-item]
    assert_former(path)


def test_the_bytes_are_on_disk_before_the_name_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def noted(*args: Any, name: str = name, original: Any = original) -> Any:
            is_directory = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            steps.append(name + (" directory" if is_directory else ""))
            return original(*args)

        monkeypatch.setattr(os, name, noted)
    evergrad.save(evergrad.ones(3), path)
    assert steps == ["fsync", "replace", "fsync directory"]


KILLED = """
import os, signal, sys
import evergrad
from evergrad.utils.atomic_file import replacing

with replacing(sys.argv[1]) as file:
    file.write(b"half of a file")
    file.flush()
    print("writing", flush=True)
    signal.pause()
"""


def test_a_killed_process_harms_nothing_and_is_cleaned_up_after(path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    (left,) = [n for n in os.listdir(path.parent) if n.endswith(SUFFIX)]
    long_ago = time.time() - 3600
    os.utime(path.parent / left, (long_ago, long_ago))
    evergrad.save({"former": evergrad.arange(5)}, path)
    assert left in os.listdir(path.parent)  # it is still being written, so it stays

    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert evergrad.load(path)["former"].tolist() == [0, 1, 2, 3, 4]
    evergrad.save({"former": evergrad.arange(5)}, path)
    assert_former(path)


def test_files_that_only_look_alike_stay(path: Path) -> None:
    others = [f".model.pt.x{SUFFIX}", f".other.pt.0123{SUFFIX}", "model.pt.bak"]
    for name in others:
        (path.parent / name).write_bytes(b"")
        os.utime(path.parent / name, (0, 0))
    (path.parent / f".model.pt.young{SUFFIX}").write_bytes(b"")
    evergrad.save(1, path)
    assert sorted(os.listdir(path.parent)) == sorted(
        [*others[1:], f".model.pt.young{SUFFIX}", "model.pt"]
    )


def test_mode_and_links_are_kept(path: Path, tmp_path: Path) -> None:
    path.chmod(0o640)
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    evergrad.save("new", link)
    assert link.is_symlink() and evergrad.load(path) == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    before = os.umask(0o027)
    try:
        evergrad.save(1, tmp_path / "fresh.pt")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "fresh.pt").stat().st_mode) == 0o640


def test_devices_are_written_to(tmp_path: Path) -> None:
    evergrad.save(evergrad.ones(3), "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    long_name = tmp_path / ("n" * 250)
    evergrad.save(1, long_name)
    assert evergrad.load(long_name) == 1


def test_readers_always_find_a_whole_file(path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        for i in range(40):
            evergrad.save({"former": evergrad.arange(5), "pad": evergrad.ones(i * 100)}, path)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not stop.is_set() or not reads:
        assert evergrad.load(path)["former"].tolist() == [0, 1, 2, 3, 4]
        reads += 1
    writer.join()


def test_corruption_is_noticed(path: Path) -> None:
    """Every byte of every record is under a checksum."""
    evergrad.save({"former": evergrad.arange(5), "text": "some text"}, path)
    whole = path.read_bytes()
    noticed = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        try:
            found = evergrad.load(io.BytesIO(changed))
        except FileFormatError:
            noticed += 1
        else:  # padding, a date, or what nobody reads
            assert found["former"].tolist() == [0, 1, 2, 3, 4] and found["text"] == "some text"
    assert noticed > len(whole) // 4
