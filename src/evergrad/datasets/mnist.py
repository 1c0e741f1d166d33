"""MNIST and the sets that come in its form: 28 x 28 grey images of ten classes, in idx files."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Array
from evergrad.datasets import files
from evergrad.datasets.idx import read_idx
from evergrad.datasets.image import from_pixels
from evergrad.datasets.vision import Transform, VisionDataset


class MNIST(VisionDataset):
    """Handwritten digits: 60,000 images to train with and 10,000 to test.

    The files are looked for in ``root/MNIST/raw`` and in ``root`` itself, unpacked or as ``.gz``.
    ``data`` is a uint8 tensor (N, 28, 28), ``targets`` an int64 tensor (N,).

    Args:
        root: the folder of the files
        train: the images to train with, else those to test with; default ``True``
        transform: of each image
        target_transform: of each label
        download: fetch missing files; default ``False``

    >>> try:
    ...     eg.datasets.MNIST("no/such/folder")
    ... except RuntimeError as error:
    ...     print("download=True" in str(error))
    True
    """

    targets: Tensor
    data: Tensor

    mirrors: ClassVar[list[str]] = [
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ]
    resources: ClassVar[list[tuple[str, str]]] = [
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ]
    classes: ClassVar[list[str]] = [
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six",
        "7 - seven", "8 - eight", "9 - nine",
    ]  # fmt: skip

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
        self.data, self.targets = self._load()

    @property
    def raw_folder(self) -> str:
        """Where downloaded files are put."""
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def processed_folder(self) -> str:
        """Where old versions of programs kept converted files; nothing is written there."""
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class, by name."""
        return {name: index for index, name in enumerate(self.classes)}

    def download(self) -> None:
        """Fetch the four files into ``raw_folder``, except those that are there already."""
        for name, md5 in self.resources:
            target = Path(self.raw_folder, name)
            if self._find(name) in (None, target):
                files.download([mirror + name for mirror in self.mirrors], target, md5)

    def _find(self, name: str) -> Path | None:
        """The file of that name, with or without its ``.gz``, or ``None``."""
        for folder in (self.raw_folder, self.root):
            for candidate in (Path(folder, name.removesuffix(".gz")), Path(folder, name)):
                if candidate.is_file():
                    return candidate
        return None

    def _load(self) -> tuple[Tensor, Tensor]:
        first = 0 if self.train else 2
        images, labels = (self._read(*resource) for resource in self.resources[first : first + 2])
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise RuntimeError(
                f"the files of {type(self).__name__} in {self.root} do not belong together: images "
                f"of shape {images.shape}, labels of shape {labels.shape}"
            )
        return from_array(images), from_array(labels.astype(np.int64))

    def _read(self, name: str, md5: str) -> Array:
        path = self._find(name)
        if path is None:
            raise RuntimeError(
                "Dataset not found. You can use download=True to download it, or put "
                f"{name} into {self.raw_folder} or {self.root}."
            )
        # In the root itself only the checksum distinguishes this set from others of its form.
        if path == Path(self.root, name) and not files.check_integrity(path, md5):
            raise RuntimeError(
                f"{path} is not the file of {type(self).__name__}: its MD5 sum is "
                f"{files.md5_of(path)} instead of {md5}. A file of your own belongs into "
                f"{self.raw_folder}."
            )
        return read_idx(path)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transformed(from_pixels(self.data.array()[index]), int(self.targets[index]))

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"

    @property
    def train_labels(self) -> Tensor:
        """The labels, under a former name."""
        return self._renamed("train_labels", "targets")

    @property
    def test_labels(self) -> Tensor:
        """The labels, under a former name."""
        return self._renamed("test_labels", "targets")

    @property
    def train_data(self) -> Tensor:
        """The images, under a former name."""
        return self._renamed("train_data", "data")

    @property
    def test_data(self) -> Tensor:
        """The images, under a former name."""
        return self._renamed("test_data", "data")

    def _renamed(self, former: str, name: str) -> Tensor:
        warnings.warn(f"{former} has been renamed {name}", UserWarning, stacklevel=3)
        return getattr(self, name)  # type: ignore[no-any-return]


class FashionMNIST(MNIST):
    """Pictures of clothes, in the form of MNIST.

    Args:
        root: the folder of the files
        train: the images to train with, else those to test with; default ``True``
        transform: of each image
        target_transform: of each label
        download: fetch missing files; default ``False``

    >>> try:
    ...     eg.datasets.FashionMNIST("no/such/folder")
    ... except RuntimeError as error:
    ...     print("download=True" in str(error))
    True
    """

    mirrors: ClassVar[list[str]] = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources: ClassVar[list[tuple[str, str]]] = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    classes: ClassVar[list[str]] = [
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
        "Ankle boot",
    ]  # fmt: skip


class KMNIST(MNIST):
    """Cursive Japanese characters, in the form of MNIST.

    Args:
        root: the folder of the files
        train: the images to train with, else those to test with; default ``True``
        transform: of each image
        target_transform: of each label
        download: fetch missing files; default ``False``

    >>> try:
    ...     eg.datasets.KMNIST("no/such/folder")
    ... except RuntimeError as error:
    ...     print("download=True" in str(error))
    True
    """

    mirrors: ClassVar[list[str]] = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources: ClassVar[list[tuple[str, str]]] = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    classes: ClassVar[list[str]] = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
