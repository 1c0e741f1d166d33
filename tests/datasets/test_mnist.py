"""MNIST and its kin, from files that the tests write in the original format."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import transforms as T
from evergrad.datasets import KMNIST, MNIST, FashionMNIST
from evergrad.datasets.idx import parse_idx, read_idx
from evergrad.utils.data import DataLoader

KINDS = {"u1": 0x08, "i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}
NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def idx(array: Any, kind: str = "u1") -> bytes:
    """The bytes of an idx file, as its definition says."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, KINDS[kind], array.ndim, *array.shape)
    return header + array.astype(kind).tobytes()


def contents() -> dict[str, bytes]:
    """Seven images to train with, five to test."""
    generator = np.random.default_rng(0)
    arrays = []
    for count in (7, 5):
        arrays.append(generator.integers(0, 256, (count, 28, 28)))
        arrays.append(generator.integers(0, 10, count))
    return {f"{n}-ubyte": idx(array) for n, array in zip(NAMES, arrays, strict=True)}


def packed() -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(part, mtime=0) for name, part in contents().items()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


class SmallMNIST(MNIST):
    """The same reader for the files of these tests."""

    resources = [(name, hashlib.md5(part).hexdigest()) for name, part in packed().items()]  # noqa: RUF012


# -- where files are found ------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["SmallMNIST/raw", "."])
@pytest.mark.parametrize("files", [contents, packed], ids=["plain", "packed"])
def test_files_are_found(tmp_path: Path, place: str, files: Any) -> None:
    write(tmp_path / place, files())
    training, testing = SmallMNIST(tmp_path), SmallMNIST(str(tmp_path), train=False)
    assert (len(training), len(testing)) == (7, 5)
    assert training.data.dtype is eg.uint8 and tuple(training.data.shape) == (7, 28, 28)
    assert training.targets.dtype is eg.int64
    assert training.data.numpy().tobytes() == contents()["train-images-idx3-ubyte"][16:]
    assert bytes(testing.targets.tolist()) == contents()["t10k-labels-idx1-ubyte"][8:]


def test_folder_of_each_set(tmp_path: Path) -> None:
    for family in (MNIST, FashionMNIST, KMNIST):
        write(tmp_path / family.__name__ / "raw", contents())
        found = family(tmp_path)
        assert len(found.classes) == len(found.class_to_idx) == 10
        assert found.raw_folder == str(tmp_path / family.__name__ / "raw")


# -- what they give -------------------------------------------------------------------------------


def test_examples(tmp_path: Path) -> None:
    write(tmp_path, packed())
    plain = SmallMNIST(tmp_path)
    image, label = plain[2]
    assert image.mode == "L" and image.size == (28, 28)
    np.testing.assert_array_equal(np.asarray(image), plain.data[2].numpy())
    assert label == plain.targets[2].item() and type(label) is int
    transformed = SmallMNIST(tmp_path, transform=T.ToTensor(), target_transform=lambda t: t + 100)
    tensor, moved = transformed[-1]
    np.testing.assert_array_equal(tensor.numpy()[0] * 255, plain.data[-1].numpy())
    assert moved == plain.targets[-1].item() + 100
    with pytest.raises(IndexError):
        plain[7]


def test_batches(tmp_path: Path) -> None:
    write(tmp_path, packed())
    pipeline = T.Compose([T.RandomCrop(28, padding=2), T.ToTensor(), T.Normalize((0.5,), (0.5,))])
    batches = list(DataLoader(SmallMNIST(tmp_path, transform=pipeline), batch_size=4))
    assert [tuple(images.shape) for images, _ in batches] == [(4, 1, 28, 28), (3, 1, 28, 28)]
    assert batches[0][1].dtype is eg.int64


def test_repr(tmp_path: Path) -> None:
    write(tmp_path, packed())
    found = SmallMNIST(tmp_path, train=False, transform=T.Compose([T.ToTensor()]))
    assert repr(found) == (
        "Dataset SmallMNIST\n"
        "    Number of datapoints: 5\n"
        f"    Root location: {tmp_path}\n"
        "    Split: Test\n"
        "    StandardTransform\n"
        "Transform: Compose(\n"
        "               ToTensor()\n"
        "           )"
    )


def test_former_names_warn(tmp_path: Path) -> None:
    write(tmp_path, packed())
    found = SmallMNIST(tmp_path)
    with pytest.warns(UserWarning, match="train_labels has been renamed targets"):
        assert found.train_labels is found.targets
    with pytest.warns(UserWarning, match="test_data has been renamed data"):
        assert found.test_data is found.data


# -- what is wrong --------------------------------------------------------------------------------


def test_missing_files_say_where_they_belong(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Dataset not found.*train-images.*SmallMNIST.raw"):
        SmallMNIST(tmp_path)
    assert not list(tmp_path.iterdir())


def test_digits_are_not_taken_for_clothes(tmp_path: Path) -> None:
    write(tmp_path, packed())
    with pytest.raises(RuntimeError, match="not the file of FashionMNIST: its MD5 sum"):
        FashionMNIST(tmp_path)


def test_images_and_labels_have_to_fit(tmp_path: Path) -> None:
    files = contents()
    files["train-labels-idx1-ubyte"] = files["t10k-labels-idx1-ubyte"]
    write(tmp_path, files)
    with pytest.raises(RuntimeError, match=r"do not belong together.*\(7, 28, 28\).*\(5,\)"):
        SmallMNIST(tmp_path)


def test_damaged_gzip(tmp_path: Path) -> None:
    write(tmp_path / "SmallMNIST" / "raw", packed())
    path = tmp_path / "SmallMNIST" / "raw" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for spoilt in (whole[:-20], whole[:-8] + b"\0" * 8, b"no archive"):
        path.write_bytes(spoilt)
        with pytest.raises(RuntimeError, match=r"train-images.* is damaged"):
            SmallMNIST(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_idx(kind: str) -> None:
    array = np.arange(6).reshape(2, 3)
    found = parse_idx(idx(array, kind))
    assert found.dtype == np.dtype(kind).newbyteorder("=")
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("length", range(25))
def test_truncated_idx(tmp_path: Path, length: int) -> None:
    content = idx(np.zeros((3, 3)))
    assert len(content) == 21
    path = tmp_path / "a"
    path.write_bytes((content + b"more")[:length])
    if length == 21:
        assert read_idx(path).shape == (3, 3)
    else:
        with pytest.raises(RuntimeError, match=r"a is (damaged|not an idx file)"):
            read_idx(path)


def test_other_files_are_no_idx() -> None:
    with pytest.raises(RuntimeError, match="not an idx file: it begins with 89 50 4e 47"):
        parse_idx(b"\x89PNG\r\n\x1a\n")


# -- downloads ------------------------------------------------------------------------------------


def mirrored(tmp_path: Path, files: dict[str, bytes]) -> type[MNIST]:
    """A set whose first mirror is gone and whose second is a folder."""
    write(tmp_path / "mirror", files)

    class Mirrored(SmallMNIST):
        mirrors = [  # noqa: RUF012
            (tmp_path / "gone").as_uri() + "/",
            (tmp_path / "mirror").as_uri() + "/",
        ]

    return Mirrored


def test_download_goes_from_mirror_to_mirror(tmp_path: Path) -> None:
    family = mirrored(tmp_path, packed())
    assert len(family(tmp_path / "data", download=True)) == 7
    assert {path.name for path in (tmp_path / "data" / "Mirrored" / "raw").iterdir()} == {*packed()}
    for path in (tmp_path / "mirror").iterdir():
        path.unlink()
    assert len(family(tmp_path / "data", download=True)) == 7  # nothing is fetched again


def test_download_mends_a_damaged_file(tmp_path: Path) -> None:
    family = mirrored(tmp_path, packed())
    raw = tmp_path / "data" / "Mirrored" / "raw"
    write(raw, {"train-images-idx3-ubyte.gz": b"half"})
    assert len(family(tmp_path / "data", download=True)) == 7


def test_wrong_download_leaves_nothing(tmp_path: Path) -> None:
    family = mirrored(tmp_path, packed() | {"t10k-labels-idx1-ubyte.gz": b"other bytes"})
    with pytest.raises(RuntimeError, match="could not download t10k-labels") as caught:
        family(tmp_path / "data", download=True)
    message = str(caught.value)
    assert "the MD5 sum is" in message and "gone/t10k-labels" in message
    raw = tmp_path / "data" / "Mirrored" / "raw"
    assert f"put it at {raw / 't10k-labels-idx1-ubyte.gz'}" in message
    assert sorted(path.name for path in raw.iterdir()) == sorted(NAMES_BEFORE_LAST)


NAMES_BEFORE_LAST = [f"{name}-ubyte.gz" for name in NAMES[:3]]


def test_download_leaves_local_files_alone(tmp_path: Path) -> None:
    write(tmp_path, packed())
    assert len(SmallMNIST(tmp_path, download=True)) == 7
    assert not (tmp_path / "SmallMNIST").exists()
