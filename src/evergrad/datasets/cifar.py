"""CIFAR-10 and CIFAR-100: small colour images, in the pickled batches they are published as."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from evergrad.datasets import files
from evergrad.datasets.image import from_pixels
from evergrad.datasets.vision import Transform, VisionDataset

if TYPE_CHECKING:
    from evergrad.core.tensor import Array

IMAGE_SHAPE = (3, 32, 32)

# What the batches were pickled with, under NumPy's former and present names; nothing else is run.
_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}


# What unpickling damaged bytes may raise, beside errors of the values in them.
_UNREADABLE = (pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError)


class _BatchReader(pickle.Unpickler):
    """Reads containers, strings, numbers and arrays, and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_batch(path: str | Path) -> dict[str, Any]:
    """The contents of one pickled batch."""
    try:
        with open(path, "rb") as file:
            content: object = _BatchReader(file, encoding="latin1").load()
    except (*_UNREADABLE, ValueError, TypeError) as error:
        raise RuntimeError(f"{path} is not a batch of CIFAR: {error}") from error
    if not isinstance(content, dict):
        raise RuntimeError(f"{path} is not a batch of CIFAR: it holds {type(content).__name__}")
    return content


class CIFAR10(VisionDataset):
    """60,000 colour images of 32 x 32 pixels in ten classes, 10,000 of them to test with.

    The batches are looked for in ``root/cifar-10-batches-py`` and in ``root`` itself. ``data`` is
    a uint8 array (N, 32, 32, 3), ``targets`` a list of N numbers.

    Args:
        root: the folder of the files
        train: the images to train with, else those to test with; default ``True``
        transform: of each image
        target_transform: of each label
        download: fetch missing files; default ``False``

    >>> try:
    ...     eg.datasets.CIFAR10("no/such/folder")
    ... except RuntimeError as error:
    ...     print("download=True" in str(error))
    True
    """

    targets: list[int]
    data: Array

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list: ClassVar[list[list[str]]] = [
        ["data_batch_1", "c99cafc152244af753f735de768cd75f"],
        ["data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"],
        ["data_batch_3", "54ebc095f3ab1f0389bbae665268c751"],
        ["data_batch_4", "634d18415352ddfa80567beed471001a"],
        ["data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"],
    ]
    test_list: ClassVar[list[list[str]]] = [["test_batch", "40351d587109b95175f43aff81a1287e"]]
    meta: ClassVar[dict[str, str]] = {
        "filename": "batches.meta",
        "key": "label_names",
        "md5": "5ff9c542aee3614f3951f8cda6e48888",
    }

    def __init__(
        self,
        root: str | Path,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        folder = self._folder()
        self.classes: list[str] = self._read_classes(folder)
        self.class_to_idx: dict[str, int] = {name: index for index, name in enumerate(self.classes)}
        self.data, self.targets = self._read_batches(folder)

    def _files(self) -> list[list[str]]:
        return [*self.train_list, *self.test_list, [self.meta["filename"], self.meta["md5"]]]

    def _wrong_files(self, folder: Path) -> list[str]:
        """Names of the files that are missing or have another sum."""
        return [
            name for name, md5 in self._files() if not files.check_integrity(folder / name, md5)
        ]

    def _folder(self) -> Path:
        """Where the files are, all of them and unchanged."""
        expected = Path(self.root, self.base_folder)
        for folder in (expected, Path(self.root)):
            if not self._wrong_files(folder):
                return folder
        raise RuntimeError(
            "Dataset not found or corrupted. You can use download=True to download it, or put the "
            f"files of {self.filename} into {expected}; missing or with a wrong MD5 sum: "
            + ", ".join(self._wrong_files(expected))
        )

    def download(self) -> None:
        """Fetch and unpack the archive, if its files are not there."""
        if not all(map(self._wrong_files, (Path(self.root, self.base_folder), Path(self.root)))):
            return
        archive = Path(self.root, self.filename)
        files.download([self.url], archive, self.tgz_md5)
        files.unpack(archive, archive.parent)

    def _read_classes(self, folder: Path) -> list[str]:
        names: list[str] = read_batch(folder / self.meta["filename"])[self.meta["key"]]
        return names

    def _read_batches(self, folder: Path) -> tuple[Array, list[int]]:
        arrays, targets = [], []
        for name, _ in self.train_list if self.train else self.test_list:
            batch = read_batch(folder / name)
            arrays.append(batch["data"].reshape(-1, *IMAGE_SHAPE))
            targets += batch["labels"] if "labels" in batch else batch["fine_labels"]
        return np.concatenate(arrays).transpose(0, 2, 3, 1), targets

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transformed(from_pixels(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """CIFAR-10's sister set with a hundred classes.

    Args:
        root: the folder of the files
        train: the images to train with, else those to test with; default ``True``
        transform: of each image
        target_transform: of each label
        download: fetch missing files; default ``False``

    >>> try:
    ...     eg.datasets.CIFAR100("no/such/folder")
    ... except RuntimeError as error:
    ...     print("download=True" in str(error))
    True
    """

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list: ClassVar[list[list[str]]] = [["train", "16019d7e3df5f24257cddd939b257f8d"]]
    test_list: ClassVar[list[list[str]]] = [["test", "f0ef6b0ae62326f3e7ffdfab6717acfc"]]
    meta: ClassVar[dict[str, str]] = {
        "filename": "meta",
        "key": "fine_label_names",
        "md5": "7973b15100ade9c7d40fb424638fde48",
    }
