"""``metrics.jsonl`` has whole lines only, each once; TensorBoard's reader takes the events."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergrad.train import metrics as module
from evergrad.train.events import EventLog
from evergrad.train.metrics import MetricsLog
from evergrad.utils import tensorboard


def lines(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def write(log: MetricsLog, *steps: int) -> None:
    for step in steps:
        log.write({"step": step})


def test_goes_on_where_a_checkpoint_was_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    write(log, 1, 2)
    offset = log.sync()
    write(log, 3, 4)
    log.close()
    log = MetricsLog(path, offset)
    write(log, 3)
    log.close()
    assert lines(path) == [1, 2, 3]


def test_cut_after_a_step(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    write(log, 1, 2, 3, 4)
    log.cut_after(2)
    write(log, 5)
    log.close()
    assert lines(tmp_path / "metrics.jsonl") == [1, 2, 5]


def test_lines_that_were_lost_are_counted(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl", 100)
    assert (log.missing, log.offset) == (100, 0)
    log.close()


def test_lines_wait_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    write(log, 1)

    def fail(file: int, data: bytes) -> None:
        os.write(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(module, "_write_all", fail)
        write(log, 2, 3)
        assert lines(path) == [1]
        with pytest.raises(OSError, match="No space left"):
            log.sync()
    write(log, 4)
    assert log.sync() == path.stat().st_size
    log.close()
    assert lines(path) == [1, 2, 3, 4]


# -- events ---------------------------------------------------------------------------------------


MISSING = "tensorboardX is not installed: pip install 'evergrad[app]'"


def checksum(data: bytes) -> bytes:
    from tensorboardX.record_writer import masked_crc32c

    return struct.pack("<I", masked_crc32c(data))


def test_checksum() -> None:
    """The known value of CRC-32C, after the mask is taken off."""
    pytest.importorskip("tensorboardX", reason=MISSING)
    (masked,) = struct.unpack("<I", checksum(b"123456789"))
    turned = (masked - 0xA282EAD8) & 0xFFFFFFFF
    assert (turned >> 17 | turned << 15) & 0xFFFFFFFF == 0xE3069283


def test_events_are_read_by_their_own_format(tmp_path: Path) -> None:
    found = read_events(tmp_path)
    assert found[0].file_version == "brain.Event:2"
    assert (found[1].step, found[1].session_log.status) == (7, 1)
    values = [(e.step, e.summary.value[0]) for e in found[2:]]
    assert (values[0][0], values[0][1].tag, values[0][1].simple_value) == (300, "loss", 0.5)
    assert values[1][1].tensor.string_val[0].decode() == "    täxt\n    two\n"
    picture = values[2][1].image
    assert (picture.height, picture.width, picture.colorspace) == (2, 3, 3)
    assert picture.encoded_image_string.startswith(b"\x89PNG")


def read_events(folder: Path) -> list[Any]:
    pytest.importorskip("tensorboardX", reason=MISSING)
    from tensorboardX.proto import event_pb2

    log = EventLog(folder, 7)
    log.scalars(300, {"loss": 0.5})
    log.text(301, "sample", "täxt\ntwo")
    log.image(302, "sample", np.zeros((2, 3, 3), np.uint8))
    log.close()
    (path,) = folder.iterdir()
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        body = data[12 : 12 + length]
        assert data[8:12] == checksum(data[:8])
        assert data[12 + length : 16 + length] == checksum(body)
        found.append(event_pb2.Event.FromString(body))
        data = data[16 + length :]
    return found


def test_failing_disk_ends_the_events_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboardX", reason=MISSING)
    log = EventLog(tmp_path, 1)
    log.flush()

    class Full:
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            self.write(b"")

        def close(self) -> None:
            pass

    assert log._file is not None
    records = log._file._writer._py_recordio_writer
    records.close()
    records._writer = Full()
    log.scalars(1, {"loss": 1.0})
    assert log.problem is not None
    log.scalars(2, {"loss": 1.0})
    log.close()


def test_events_are_left_out_without_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(tensorboard, "import_module", absent)
    log = EventLog(tmp_path, 1)
    log.scalars(1, {"loss": 1.0})
    log.close()
    assert "pip install evergrad[app]" in str(log.problem)
    assert not list(tmp_path.iterdir())


def test_two_logs_of_one_second_have_files_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason=MISSING)
    for _ in range(2):
        EventLog(tmp_path, 1).close()
    assert len(list(tmp_path.iterdir())) == 2
