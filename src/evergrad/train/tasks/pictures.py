"""Pictures to train on: generated ones, and the files of MNIST and CIFAR-10.

All of a set is kept as bytes; batches are made of them on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evergrad.core.types import Array
from evergrad.datasets.cifar import CIFAR10
from evergrad.datasets.mnist import MNIST
from evergrad.train.config import ConfigError, nearest
from evergrad.train.tasks import glyphs, shapes

GENERATED = 5000  # pictures in a generated set, before some are held out
MNIST_FOLDERS = ("data", "data/mnist", "~/data", "~/data/mnist")
CIFAR_FOLDERS = ("data", "data/cifar", "~/data", "~/data/cifar")


@dataclass(frozen=True)
class Part:
    """Pictures (N, C, H, W) of uint8 and the number of each one's class."""

    pictures: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class PictureSet:
    """What is trained with, what is held out, and how a picture may vary without changing."""

    train: Part
    held_out: Part
    classes: list[str]
    shift: int = 0  # pixels
    flip: bool = False

    @property
    def channels(self) -> int:
        return int(self.train.pictures.shape[1])

    @property
    def size(self) -> int:
        return int(self.train.pictures.shape[2])

    def mean_and_deviation(self) -> tuple[float, float]:
        """Of all numbers in the pictures to train with, where 255 counts as 1."""
        counts = np.bincount(self.train.pictures.reshape(-1), minlength=256)
        levels = np.arange(256) / 255
        mean = float(np.average(levels, weights=counts))
        return mean, float(np.average((levels - mean) ** 2, weights=counts)) ** 0.5


def load_pictures(source: str, held_out: float, size: int) -> PictureSet:
    """A set by name, or the one whose files are in a folder.

    ``held_out`` is the part of a generated set to evaluate with; sets in files have their own.
    ``size`` is that of generated shapes.
    """
    if source == "digits":
        return _generated(glyphs.digit_pictures, glyphs.CLASSES, held_out)
    if source == "shapes":
        return _generated(_shapes_of(size), shapes.CLASSES, held_out)
    if source == "mnist":
        return _mnist(_first(MNIST_FOLDERS, _has_mnist, "mnist", "train-images-idx3-ubyte.gz"))
    if source == "cifar":
        return _cifar(_first(CIFAR_FOLDERS, _has_cifar, "cifar", "data_batch_1"))
    return _from_folder(source)


def _generated(
    draw: Callable[[int, str], tuple[Array, Array]], classes: list[str], held_out: float
) -> PictureSet:
    kept = max(1, round(GENERATED * held_out))
    train = Part(*draw(GENERATED - kept, "train"))
    return PictureSet(train, Part(*draw(kept, "held out")), classes)


def _shapes_of(size: int) -> Callable[[int, str], tuple[Array, Array]]:
    return lambda count, part: shapes.shape_pictures(count, size, part)


def _first(
    folders: tuple[str, ...], has_files: Callable[[Path], bool], name: str, file: str
) -> Path:
    """The first of the usual folders that has the files."""
    for folder in map(Path, folders):
        if has_files(folder.expanduser()):
            return folder.expanduser()
    raise ConfigError(
        f"the files of {name} are in none of the folders {', '.join(folders)}: put {file} and the "
        "others into one of them, name their folder with --data FOLDER, or train on generated "
        "pictures with --data digits or --data shapes"
    )


def _from_folder(source: str) -> PictureSet:
    folder = Path(source).expanduser()
    if not folder.is_dir():
        known = ("digits", "shapes", "mnist", "cifar")
        raise ConfigError(
            f"there is no folder and no set of pictures {source!r}{nearest(source, known)}"
        )
    if _has_mnist(folder):
        return _mnist(folder)
    if _has_cifar(folder):
        return _cifar(folder)
    raise ConfigError(
        f"{folder} has neither the files of MNIST (train-images-idx3-ubyte.gz and so on) nor those "
        "of CIFAR-10 (data_batch_1.bin or data_batch_1 and so on)"
    )


# -- MNIST ----------------------------------------------------------------------------------------


def _has_mnist(folder: Path) -> bool:
    places = (folder, folder / "MNIST" / "raw")
    return any(list(place.glob("train-images-idx3-ubyte*")) for place in places)


def _mnist(folder: Path) -> PictureSet:
    try:
        sets = [MNIST(folder, train) for train in (True, False)]
    except RuntimeError as error:
        raise ConfigError(f"MNIST in {folder} cannot be used: {error}") from error
    train, test = (Part(one.data.array()[:, None], one.targets.array()) for one in sets)
    return PictureSet(train, test, glyphs.CLASSES)


# -- CIFAR-10 -------------------------------------------------------------------------------------

CIFAR_CLASSES = [
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
]  # fmt: skip
CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + 3 * 32 * 32  # the label, then the pixels
CIFAR_SHIFT = 4


def _binary_folder(folder: Path) -> Path | None:
    """Where the binary version of the files is, if it is there."""
    for place in (folder, folder / "cifar-10-batches-bin"):
        if (place / "data_batch_1.bin").is_file():
            return place
    return None


def _has_cifar(folder: Path) -> bool:
    pickled = (folder / "data_batch_1", folder / CIFAR10.base_folder / "data_batch_1")
    return _binary_folder(folder) is not None or any(path.is_file() for path in pickled)


def _cifar(folder: Path) -> PictureSet:
    binary = _binary_folder(folder)
    train, test = _pickled_cifar(folder) if binary is None else _binary_cifar(binary)
    return PictureSet(train, test, CIFAR_CLASSES, shift=CIFAR_SHIFT, flip=True)


def _pickled_cifar(folder: Path) -> list[Part]:
    try:
        sets = [CIFAR10(folder, train) for train in (True, False)]
    except RuntimeError as error:
        raise ConfigError(f"CIFAR-10 in {folder} cannot be used: {error}") from error
    return [
        Part(np.ascontiguousarray(one.data.transpose(0, 3, 1, 2)), np.array(one.targets, np.int64))
        for one in sets
    ]


def _binary_cifar(folder: Path) -> list[Part]:
    train = [folder / f"data_batch_{number}.bin" for number in range(1, 6)]
    return [_binary_part(train), _binary_part([folder / "test_batch.bin"])]


def _binary_part(paths: list[Path]) -> Part:
    records = np.concatenate([_records(path) for path in paths])
    pictures = np.ascontiguousarray(records[:, 1:]).reshape(-1, *CIFAR_SHAPE)
    return Part(pictures, records[:, 0].astype(np.int64))


def _records(path: Path) -> Array:
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise ConfigError(f"CIFAR-10 is not whole: {error}") from error
    if not len(content) or len(content) % CIFAR_RECORD:
        raise ConfigError(
            f"{path} is damaged: {len(content):,} bytes are no multiple of the {CIFAR_RECORD} "
            "of a label and a picture. Fetch the file again."
        )
    records = content.reshape(-1, CIFAR_RECORD)
    if records[:, 0].max() >= len(CIFAR_CLASSES):
        raise ConfigError(f"{path} is damaged: it has a label above 9. Fetch the file again.")
    return records
