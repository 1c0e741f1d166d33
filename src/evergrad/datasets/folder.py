"""Data sets that are folders: one subfolder per class, one file per example."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergrad.datasets.image import open_image
from evergrad.datasets.vision import Transform, VisionDataset

IMG_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
)  # fmt: skip


def default_loader(path: str) -> Any:
    """The image in a file, as RGB."""
    return open_image(path)


def find_classes(directory: str | Path) -> tuple[list[str], dict[str, int]]:
    """The names of the subfolders in order, and their numbers."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: index for index, name in enumerate(classes)}


class DatasetFolder(VisionDataset):
    """Files in folders: those with one of the ``extensions``, or those ``is_valid_file`` likes.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.mkdir(f"{folder}/cats")
    ...     eg.datasets.save_image(eg.ones(3, 4, 4), f"{folder}/cats/x.png")
    ...     data = eg.datasets.DatasetFolder(folder, eg.datasets.read_image, (".png",))
    ...     data.classes, data[0][0].shape
    (['cats'], evergrad.Size([3, 4, 4]))
    """

    class_to_idx: dict[str, int]
    classes: list[str]

    def __init__(
        self,
        root: str | Path,
        loader: Callable[[str], object],
        extensions: tuple[str, ...] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ValueError(
                "Both extensions and is_valid_file cannot be None or not None at the same time"
            )
        self.loader = loader
        self.extensions = extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples: list[tuple[str, int]] = self._find_samples(
            is_valid_file or self._has_extension, allow_empty
        )
        self.targets: list[int] = [target for _, target in self.samples]

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """The classes and their numbers; a subclass may find them in another way."""
        return find_classes(directory)

    def _has_extension(self, path: str) -> bool:
        return path.lower().endswith(self.extensions or ())

    def _find_samples(
        self, is_valid: Callable[[str], bool], allow_empty: bool
    ) -> list[tuple[str, int]]:
        samples, empty = [], []
        for name in sorted(self.class_to_idx):
            paths = list(filter(is_valid, _files_below(os.path.join(self.root, name))))
            samples += [(path, self.class_to_idx[name]) for path in paths]
            if not paths:
                empty.append(name)
        if empty and not allow_empty:
            hint = f"Supported extensions are: {', '.join(self.extensions or ())}"
            raise FileNotFoundError(
                f"Found no valid file for the classes {', '.join(empty)}. "
                + (hint if self.extensions else "")
            )
        return samples

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self.transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


def _files_below(directory: str) -> list[str]:
    """Paths of all files in a folder and its subfolders, folder by folder in order."""
    folders = sorted(os.walk(directory, followlinks=True))
    return [os.path.join(folder, name) for folder, _, names in folders for name in sorted(names)]


class ImageFolder(DatasetFolder):
    """Images in folders. PNG files are read without Pillow; other formats need it.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.mkdir(f"{folder}/cats")
    ...     eg.datasets.save_image(eg.ones(3, 4, 4), f"{folder}/cats/x.png")
    ...     data = eg.datasets.ImageFolder(folder)
    ...     data.classes, data[0][0].size
    (['cats'], (4, 4))
    """

    def __init__(
        self,
        root: str | Path,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        loader: Callable[[str], object] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(
            root,
            loader,
            IMG_EXTENSIONS if is_valid_file is None else None,
            transform=transform,
            target_transform=target_transform,
            is_valid_file=is_valid_file,
            allow_empty=allow_empty,
        )
        self.imgs: list[tuple[str, int]] = self.samples
