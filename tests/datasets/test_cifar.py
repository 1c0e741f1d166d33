"""CIFAR, from batches that the tests pickle as the original ones were."""

from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergrad import transforms as T
from evergrad.datasets import CIFAR10, CIFAR100
from evergrad.datasets.cifar import read_batch


def array_opcodes(array: Any) -> bytes:
    """A uint8 array as Python 2 pickled it: NumPy's former names, bytes as a plain string."""
    rows, columns = array.shape
    data = array.tobytes()
    minus_one = b"J\xff\xff\xff\xff"
    state = b"(K\x03U\x01|NNN" + 2 * minus_one + b"K\x00tb"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R" + state
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + b"(K\x01" + b"M" + rows.to_bytes(2, "little") + b"M" + columns.to_bytes(2, "little")
        + b"\x86" + dtype + b"\x89" + b"T" + len(data).to_bytes(4, "little") + data + b"tb"
    )  # fmt: skip


def batch(images: Any, labels: list[int], key: bytes = b"labels") -> bytes:
    """A batch: a dict of a list of numbers and an array, protocol 2."""
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    entry = b"U" + bytes([len(key)]) + key + numbers
    return b"\x80\x02}(U\x04data" + array_opcodes(images) + entry + b"u."


def meta(key: str, names: list[str]) -> bytes:
    return pickle.dumps({key: names}, protocol=2)


IMAGES = np.random.default_rng(0).integers(0, 256, (9, 3072), dtype=np.uint8)
FILES = {
    "data_batch_1": batch(IMAGES[:4], [0, 1, 2, 3]),
    "data_batch_2": batch(IMAGES[4:6], [4, 5]),
    "test_batch": batch(IMAGES[6:], [6, 7, 8]),
    "batches.meta": meta("label_names", [f"class {i}" for i in range(10)]),
}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class SmallCIFAR10(CIFAR10):
    train_list = [[name, md5(FILES[name])] for name in ("data_batch_1", "data_batch_2")]  # noqa: RUF012
    test_list = [["test_batch", md5(FILES["test_batch"])]]  # noqa: RUF012
    meta = CIFAR10.meta | {"md5": md5(FILES["batches.meta"])}


def write(folder: Path, files: dict[str, bytes] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (FILES if files is None else files).items():
        (folder / name).write_bytes(content)


def test_the_batches_of_the_tests_are_pickles() -> None:
    """Python's own reader agrees on what they hold."""
    found = read_batch_with_pickle(FILES["test_batch"])
    np.testing.assert_array_equal(found["data"], IMAGES[6:])
    assert found["labels"] == [6, 7, 8]


def read_batch_with_pickle(content: bytes) -> Any:
    return pickle.loads(content.replace(b"numpy.core.", b"numpy._core."), encoding="latin1")


@pytest.mark.parametrize("place", ["cifar-10-batches-py", "."])
def test_reading(tmp_path: Path, place: str) -> None:
    write(tmp_path / place)
    training = SmallCIFAR10(tmp_path, transform=T.ToTensor())
    assert training.data.shape == (6, 32, 32, 3) and training.data.dtype == np.uint8
    assert training.targets == [0, 1, 2, 3, 4, 5]
    assert training.classes[3] == "class 3" and training.class_to_idx["class 3"] == 3
    image, label = training[5]
    np.testing.assert_allclose(image.numpy() * 255, IMAGES[5].reshape(3, 32, 32), rtol=1e-6)
    assert label == 5
    testing = SmallCIFAR10(tmp_path, train=False)
    picture, label = testing[0]
    assert picture.mode == "RGB" and picture.size == (32, 32) and label == 6
    assert repr(testing).splitlines()[:3] == [
        "Dataset SmallCIFAR10",
        "    Number of datapoints: 3",
        f"    Root location: {tmp_path}",
    ]


def test_hundred_classes(tmp_path: Path) -> None:
    files = {
        "train": batch(IMAGES[:2], [99, 5], b"fine_labels"),
        "test": batch(IMAGES[2:3], [7], b"fine_labels"),
        "meta": meta("fine_label_names", [str(i) for i in range(100)]),
    }

    class Small(CIFAR100):
        train_list = [["train", md5(files["train"])]]  # noqa: RUF012
        test_list = [["test", md5(files["test"])]]  # noqa: RUF012
        meta = CIFAR100.meta | {"md5": md5(files["meta"])}

    write(tmp_path / "cifar-100-python", files)
    assert Small(tmp_path).targets == [99, 5]
    assert len(Small(tmp_path, train=False).classes) == 100


def test_changed_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"not found or corrupted.*cifar-10-batches-py"):
        SmallCIFAR10(tmp_path)
    write(tmp_path / "cifar-10-batches-py", FILES | {"data_batch_2": FILES["data_batch_2"] + b"!"})
    with pytest.raises(RuntimeError, match=r"wrong MD5 sum: data_batch_2$"):
        SmallCIFAR10(tmp_path)


class Harmful:
    """Leaves a trace when it is unpickled by a reader that runs what it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_is_not_run(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "trace"
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({"data": Harmful(trace)}, protocol))
    with pytest.raises(RuntimeError, match=r"asks for .*mkdir, which no batch needs"):
        read_batch(path)
    assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02", FILES["test_batch"][:-50], b"text", b"N."])
def test_what_is_no_batch(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match="batch is not a batch of CIFAR"):
        read_batch(path)


# -- downloads ------------------------------------------------------------------------------------


def archived(tmp_path: Path, names: dict[str, str] | None = None) -> type[CIFAR10]:
    """A set whose address is an archive in a folder."""
    write(tmp_path / "source" / "cifar-10-batches-py")
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted((tmp_path / "source" / "cifar-10-batches-py").iterdir()):
            name = f"cifar-10-batches-py/{path.name}"
            tar.add(path, (names or {}).get(path.name, name))

    class Archived(SmallCIFAR10):
        url = archive.as_uri()
        tgz_md5 = md5(archive.read_bytes())

    return Archived


def test_download_and_unpack(tmp_path: Path) -> None:
    family = archived(tmp_path)
    assert len(family(tmp_path / "data", download=True)) == 6
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
    ]
    (tmp_path / "cifar-10-python.tar.gz").unlink()
    assert len(family(tmp_path / "data", download=True)) == 6  # nothing is fetched again


def test_archives_cannot_write_elsewhere(tmp_path: Path) -> None:
    family = archived(tmp_path, {"test_batch": "../../outside"})
    with pytest.raises(RuntimeError, match="cannot be unpacked"):
        family(tmp_path / "data", download=True)
    assert not (tmp_path / "outside").exists()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-10-python.tar.gz"]


def test_no_network_says_where_the_archive_belongs(tmp_path: Path) -> None:
    family = archived(tmp_path)
    (tmp_path / "cifar-10-python.tar.gz").unlink()
    with pytest.raises(RuntimeError, match=r"put it at .*cifar-10-python\.tar\.gz"):
        family(tmp_path / "data", download=True)
