"""What the image sets share: a root folder, transforms of image and label, and how they print."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergrad.utils.data.dataset import Dataset

Transform = Callable[[Any], Any]


class VisionDataset(Dataset[Any]):
    """A data set of images: ``transforms`` take image and label together, the others one each.

    >>> class Numbers(eg.datasets.VisionDataset):
    ...     def __len__(self):
    ...         return 3
    ...
    ...     def __getitem__(self, index):
    ...         return self.transformed(index, 0)
    >>> Numbers(transform=lambda x: x * 2)[2]
    (4, 0)
    """

    _repr_indent = 4

    def __init__(
        self,
        root: str | Path | None = None,
        transforms: Callable[[Any, Any], tuple[object, object]] | None = None,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
    ) -> None:
        separate = transform is not None or target_transform is not None
        if transforms is not None and separate:
            raise ValueError(
                "Only transforms or transform/target_transform can be passed as argument"
            )
        self.root: Any = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform = transform
        self.target_transform = target_transform
        self.transforms: Callable[[Any, Any], tuple[Any, Any]] | None = (
            StandardTransform(transform, target_transform) if separate else transforms
        )

    def transformed(self, image: object, target: object) -> tuple[Any, Any]:
        """An image and its label after the transforms."""
        return (image, target) if self.transforms is None else self.transforms(image, target)

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has to define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has to define __len__")

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"Root location: {self.root}")
        lines += self.extra_repr().splitlines()
        if self.transforms is not None:
            lines.append(repr(self.transforms))
        indent = " " * self._repr_indent
        return "\n".join([f"Dataset {type(self).__name__}", *(indent + line for line in lines)])

    def extra_repr(self) -> str:
        """Further lines of ``repr``."""
        return ""


class StandardTransform:
    """One function for the image and one for the label.

    >>> both = eg.datasets.StandardTransform(transform=lambda image: image + 1)
    >>> both(1, "label")
    (2, 'label')
    """

    def __init__(
        self, transform: Transform | None = None, target_transform: Transform | None = None
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, input: object, target: object) -> tuple[object, object]:
        if self.transform is not None:
            input = self.transform(input)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return input, target

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        for head, part in (
            ("Transform: ", self.transform),
            ("Target transform: ", self.target_transform),
        ):
            if part is not None:
                lines.append(head + repr(part).replace("\n", "\n" + " " * len(head)))
        return "\n".join(lines)
