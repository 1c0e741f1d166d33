"""Transforms to try, and what torchvision 0.28.0 makes of them.

    python -m tests.datasets.transform_cases

writes ``torchvision_results.npz`` anew, where torchvision is installed. Every case is applied
three times after a fixed seed, so that a wrong draw shows in the next image, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).with_name("torchvision_results.npz")
TIMES = 3

Make = Callable[[Any], Any]

# Cases that move pixels or draw numbers: exact for every type, tried with uint8.
EXACT: dict[str, Make] = {
    "center_crop": lambda T: T.CenterCrop(5),
    "center_crop_of_more": lambda T: T.CenterCrop((14, 4)),
    "pad": lambda T: T.Pad(2, fill=7),
    "pad_edge": lambda T: T.Pad((1, 2, 3, 4), padding_mode="edge"),
    "pad_reflect": lambda T: T.Pad((4, 2), padding_mode="reflect"),
    "pad_symmetric": lambda T: T.Pad((4, 2), padding_mode="symmetric"),
    "pad_negative": lambda T: T.Pad((-2, 1, 3, -1)),
    "random_crop": lambda T: T.RandomCrop(6),
    "random_crop_padded": lambda T: T.RandomCrop(8, padding=4),
    "random_crop_reflected": lambda T: T.RandomCrop(8, padding=(2, 3), padding_mode="reflect"),
    "random_crop_larger": lambda T: T.RandomCrop(14, pad_if_needed=True),
    "random_crop_one_way": lambda T: T.RandomCrop((9, 6)),
    "horizontal_flip": lambda T: T.RandomHorizontalFlip(),
    "vertical_flip": lambda T: T.RandomVerticalFlip(0.3),
    "five_crop": lambda T: T.FiveCrop(4),
    "ten_crop": lambda T: T.TenCrop(4, vertical_flip=True),
    "rotation": lambda T: T.RandomRotation(30),
    "rotation_expanded": lambda T: T.RandomRotation(180, expand=True),
    "rotation_around": lambda T: T.RandomRotation((0, 180), center=(2, 3), fill=9),
    "affine": lambda T: T.RandomAffine(20, (0.1, 0.3), (0.7, 1.2), 10),
    "resize_nearest": lambda T: T.Resize((7, 15), T.InterpolationMode.NEAREST),
    "resize_nearest_exact": lambda T: T.Resize((7, 15), T.InterpolationMode.NEAREST_EXACT),
    "grayscale": lambda T: T.Grayscale(),
    "random_grayscale": lambda T: T.RandomGrayscale(0.5),
    "brightness": lambda T: T.ColorJitter(brightness=(0.5, 2)),
    "colours": lambda T: T.ColorJitter(0.4, 0.4, 0.4, 0.2),
    "erasing": lambda T: T.RandomErasing(0.9),
    "erasing_colour": lambda T: T.RandomErasing(0.9, value=(1, 2, 3)),
    "erasing_all": lambda T: T.RandomErasing(1, scale=(0.9, 1.0), ratio=(0.1, 0.2)),
    "apply": lambda T: T.RandomApply([T.CenterCrop(5)], 0.4),
    "choice": lambda T: T.RandomChoice([T.CenterCrop(5), T.CenterCrop(4)], p=[0.3, 0.7]),
    "order": lambda T: T.RandomOrder([T.CenterCrop(5), T.Pad(1)]),
    "usual": lambda T: T.Compose([T.RandomCrop(9, padding=2), T.RandomHorizontalFlip()]),
}

# Cases that calculate: tried with floats, equal up to their rounding.
CALCULATED: dict[str, Make] = {
    "resize": lambda T: T.Resize(6),
    "resize_both_ways": lambda T: T.Resize((14, 5)),
    "resize_limited": lambda T: T.Resize(8, max_size=9),
    "resize_aliased": lambda T: T.Resize((14, 5), antialias=False),
    "bicubic": lambda T: T.Resize((5, 15), T.InterpolationMode.BICUBIC),
    "bicubic_aliased": lambda T: T.Resize((5, 15), T.InterpolationMode.BICUBIC, antialias=False),
    "random_resized_crop": lambda T: T.RandomResizedCrop(6),
    "random_resized_middle": lambda T: T.RandomResizedCrop(6, scale=(0.9, 1), ratio=(3, 4)),
    "rotation_bilinear": lambda T: T.RandomRotation(
        (10, 80), T.InterpolationMode.BILINEAR, fill=0.5
    ),
    "affine_bilinear": lambda T: T.RandomAffine(
        20, (0.1, 0.3), (0.7, 1.2), (-5, 5, -10, 10), T.InterpolationMode.BILINEAR, 0.3, (3, 4)
    ),
    "colours_of_floats": lambda T: T.ColorJitter(0.4, 0.4, 0.4, 0.5),
    "grayscale_of_floats": lambda T: T.Grayscale(3),
    "erasing_noise": lambda T: T.RandomErasing(0.9, value="random"),
    "blur": lambda T: T.GaussianBlur(5),
    "blur_oblong": lambda T: T.GaussianBlur((3, 7), (1.0, 2.0)),
    "normalize": lambda T: T.Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
}

CASES = EXACT | CALCULATED
GENERATIONS = ("v1", "v2")


def picture(name: str) -> Any:
    """The array (3, 9, 11) a case is tried with."""
    generator = np.random.default_rng(0)
    if name in EXACT:
        return generator.integers(0, 256, (3, 9, 11), dtype=np.uint8)
    return generator.random((3, 9, 11), dtype=np.float32)


def outcome(namespace: Any, transforms: Any, name: str) -> tuple[Any, Any]:
    """All elements a case gives, one after the other; and the shapes and the next random number."""
    namespace.manual_seed(3)
    random.seed(3)
    transform = CASES[name](transforms)
    found: list[Any] = []
    for _ in range(TIMES):
        result = transform(namespace.tensor(picture(name)))
        found += result if isinstance(result, tuple) else [result]
    shapes = [size for tensor in found for size in tensor.shape]
    following = namespace.randint(0, 2**31, (1,)).item()
    elements = np.concatenate([tensor.numpy().reshape(-1) for tensor in found])
    return elements, np.array([*shapes, following])


def record() -> None:
    """Ask torchvision; of the second generation, keep what differs from the first."""
    import torch
    import torchvision.transforms
    import torchvision.transforms.v2

    kept: dict[str, Any] = {}
    for name in CASES:
        first = outcome(torch, torchvision.transforms, name)
        second = outcome(torch, torchvision.transforms.v2, name)
        same = all(map(np.array_equal, first, second))
        for generation, found in (("v1", first),) if same else (("v1", first), ("v2", second)):
            kept[f"{generation}:{name}:elements"], kept[f"{generation}:{name}:facts"] = found
    np.savez_compressed(RECORDED, **kept)


def recorded(generation: str, name: str) -> tuple[Any, Any]:
    """What torchvision made of a case."""
    with np.load(RECORDED) as kept:
        own = generation if f"{generation}:{name}:facts" in kept else "v1"
        return kept[f"{own}:{name}:elements"], kept[f"{own}:{name}:facts"]


if __name__ == "__main__":
    record()
