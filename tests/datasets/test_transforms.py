"""Transforms: torchvision's results for the same seeds, kinds of images, and refusals."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad import transforms as T
from evergrad.datasets import Image
from evergrad.transforms import functional as F
from evergrad.transforms import v2

from . import transform_cases
from .transform_cases import CALCULATED, CASES, EXACT

GENERATIONS = {"v1": T, "v2": v2}


def pixels(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


# -- against torchvision --------------------------------------------------------------------------


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("name", CASES)
def test_torchvisions_results_for_its_seed(name: str, generation: str) -> None:
    elements, facts = transform_cases.outcome(eg, GENERATIONS[generation], name)
    expected, expected_facts = transform_cases.recorded(generation, name)
    np.testing.assert_array_equal(facts, expected_facts)
    assert elements.dtype == expected.dtype
    if name in EXACT:
        np.testing.assert_array_equal(elements, expected)
    else:
        np.testing.assert_allclose(elements, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", [n for n in CALCULATED if n.startswith(("resize", "bic", "blur"))])
def test_uint8_is_the_rounded_result_of_floats(name: str) -> None:
    image = eg.tensor(pixels(3, 9, 11))
    eg.manual_seed(0)
    of_bytes = CASES[name](T)(image)
    assert of_bytes.dtype is eg.uint8
    eg.manual_seed(0)
    of_floats = CASES[name](T)(image.float()).clamp(0, 255)
    assert (of_bytes.float() - of_floats).abs().max().item() <= 0.5 + 1e-4


REPRS = [
    (lambda: T.Compose([T.ToTensor(), T.Normalize((0.5,), (0.5,))]),
     "Compose(\n    ToTensor()\n    Normalize(mean=(0.5,), std=(0.5,))\n)"),
    (lambda: T.ToPILImage("L"), "ToPILImage(mode=L)"),
    (lambda: T.Resize(5), "Resize(size=5, interpolation=bilinear, max_size=None, antialias=True)"),
    (lambda: T.CenterCrop(4), "CenterCrop(size=(4, 4))"),
    (lambda: T.Pad(2), "Pad(padding=2, fill=0, padding_mode=constant)"),
    (lambda: T.RandomApply([T.ToTensor()]), "RandomApply(\n    p=0.5\n    ToTensor()\n)"),
    (lambda: T.RandomChoice([T.ToTensor()], p=[1]), "RandomChoice(\n    ToTensor()\n)(p=[1])"),
    (lambda: T.RandomCrop(4, padding=2), "RandomCrop(size=(4, 4), padding=2)"),
    (lambda: T.RandomHorizontalFlip(), "RandomHorizontalFlip(p=0.5)"),
    (lambda: T.RandomResizedCrop(8),
     "RandomResizedCrop(size=(8, 8), scale=(0.08, 1.0), ratio=(0.75, 1.3333), "
     "interpolation=bilinear, antialias=True)"),
    (lambda: T.ColorJitter(0.1, hue=0.4),
     "ColorJitter(brightness=(0.9, 1.1), contrast=None, saturation=None, hue=(-0.4, 0.4))"),
    (lambda: T.RandomRotation(10),
     "RandomRotation(degrees=[-10.0, 10.0], interpolation=nearest, expand=False, fill=0)"),
    (lambda: T.RandomAffine(10, (0.1, 0.1), (0.5, 1), 10, fill=2, center=(1, 1)),
     "RandomAffine(degrees=[-10.0, 10.0], translate=(0.1, 0.1), scale=(0.5, 1), "
     "shear=[-10.0, 10.0], fill=2, center=(1, 1))"),
    (lambda: T.RandomErasing(),
     "RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False)"),
    (lambda: T.GaussianBlur(3), "GaussianBlur(kernel_size=(3, 3), sigma=(0.1, 2.0))"),
    (lambda: T.RandomGrayscale(), "RandomGrayscale(p=0.1)"),
    (lambda: T.TenCrop(3), "TenCrop(size=(3, 3), vertical_flip=False)"),
    (lambda: T.Lambda(len), "Lambda()"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), REPRS, ids=[text.split("(")[0] for _, text in REPRS])
def test_repr(make: Callable[[], Any], text: str) -> None:
    assert repr(make()) == text


# -- kinds of images ------------------------------------------------------------------------------


def test_to_tensor_scales_bytes_and_moves_channels_first() -> None:
    array = pixels(4, 5, 3)
    expected = array.transpose(2, 0, 1).astype(np.float32) / 255
    for picture in (array, Image(array)):
        found = T.ToTensor()(picture)
        assert found.dtype is eg.float32
        np.testing.assert_array_equal(found.numpy(), expected)
    assert tuple(T.ToTensor()(array[:, :, 0]).shape) == (1, 4, 5)
    assert T.ToTensor()(array.astype(np.float64)).dtype is eg.float64


def test_to_tensor_does_not_share_memory() -> None:
    array = np.zeros((2, 2), np.float32)
    tensor = T.ToTensor()(array)
    array[:] = 1
    assert tensor.sum().item() == 0


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3), (4, 5, 4)])
def test_images_and_tensors_go_there_and_back(shape: tuple[int, ...]) -> None:
    array = pixels(*shape)
    tensor = T.PILToTensor()(Image(array))
    assert tensor.dtype is eg.uint8
    np.testing.assert_array_equal(np.asarray(T.ToPILImage()(tensor)), array)
    np.testing.assert_array_equal(np.asarray(T.ToPILImage()(T.ToTensor()(array))), array)


@pytest.mark.parametrize(
    "name", [n for n in CASES if "erasing" not in n and n != "normalize" and "crop" not in n]
)
def test_images_give_images(name: str) -> None:
    """Of its kind, and the same for the same seed."""
    array = pixels(9, 11, 3)
    results = []
    for _ in range(2):
        eg.manual_seed(1)
        random.seed(1)
        results.append(CASES[name](T)(Image(array)))
    assert isinstance(results[0], Image)
    assert results[0] == results[1]


def test_geometry_of_images_is_that_of_tensors() -> None:
    array = pixels(9, 11, 3)
    for name in ("random_crop_padded", "horizontal_flip", "rotation", "pad_symmetric"):
        eg.manual_seed(1)
        image = CASES[name](T)(Image(array))
        eg.manual_seed(1)
        tensor = CASES[name](T)(T.PILToTensor()(Image(array)))
        np.testing.assert_array_equal(np.asarray(image), tensor.numpy().transpose(1, 2, 0))


def test_pillows_images_are_treated_alike() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")
    array = pixels(9, 11, 3)
    for name in ("usual", "resize", "rotation_bilinear", "colours", "grayscale"):
        eg.manual_seed(2)
        theirs = CASES[name](T)(pillow.fromarray(array))
        eg.manual_seed(2)
        ours = CASES[name](T)(Image(array))
        assert isinstance(theirs, pillow.Image)
        np.testing.assert_array_equal(np.asarray(theirs), np.asarray(ours))


def test_grey_values_of_images_are_pillows() -> None:
    """round(0.299 R + 0.587 G + 0.114 B) in fixed point."""
    array = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], np.uint8)
    grey = T.Grayscale()(Image(array))
    np.testing.assert_array_equal(np.asarray(grey), [[76, 150, 29, 255]])
    assert np.asarray(T.Grayscale(3)(Image(array))).shape == (1, 4, 3)


# -- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_enlarging_needs_no_antialiasing(mode: str) -> None:
    """A linear ramp stays one; antialiasing changes nothing where nothing shrinks (bilinear)."""
    ramp = eg.arange(8.0).expand(1, 4, 8)
    large = F.resize(ramp, [4, 16], mode)
    inner = large[0, 0, 4:12]
    np.testing.assert_allclose(inner.numpy(), np.arange(4, 12) / 2 - 0.25, atol=1e-6)
    if mode == "bilinear":
        aliased = F.resize(ramp, [4, 16], mode, antialias=False)
        np.testing.assert_allclose(large.numpy(), aliased.numpy(), atol=1e-6)


def test_antialiased_halving_of_a_constant_keeps_it() -> None:
    image = eg.full((3, 8, 8), 0.3)
    np.testing.assert_allclose(F.resize(image, 4).numpy(), 0.3, atol=1e-6)


def test_gradients_go_through() -> None:
    image = eg.rand(3, 6, 6, requires_grad=True)
    F.resize(F.normalize(F.rotate(image, 30.0, "bilinear"), [0.5], [0.5]), [3, 4]).sum().backward()
    assert image.grad is not None and image.grad.abs().sum().item() > 0


@pytest.mark.parametrize("shift", [-0.5, -0.2, 0.0, 0.3, 0.5])
def test_hue_is_that_of_the_standard_library(shift: float) -> None:
    import colorsys

    image = np.random.default_rng(0).random((3, 4, 4))
    image[:, 0, 0] = 0.5  # grey has no hue
    found = F.adjust_hue(eg.tensor(image), shift).numpy()
    for row, column in np.ndindex(4, 4):
        hue, saturation, value = colorsys.rgb_to_hsv(*image[:, row, column])
        expected = colorsys.hsv_to_rgb((hue + shift) % 1.0, saturation, value)
        np.testing.assert_allclose(found[:, row, column], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        ("uint8", "float32", 255, 1.0),
        ("float32", "uint8", 1.0, 255),
        ("float32", "uint8", 0.5, 127),
        ("uint8", "int16", 255, 255 * 128),
        ("int16", "uint8", 32767, 255),
        ("float32", "float64", 0.5, 0.5),
    ],
)
def test_convert_image_dtype(source: str, target: str, value: Any, expected: Any) -> None:
    image = eg.full((1, 2, 2), value, dtype=getattr(eg, source))
    found = T.ConvertImageDtype(getattr(eg, target))(image)
    assert found.dtype is getattr(eg, target)
    assert found[0, 0, 0].item() == expected


# -- the second generation ------------------------------------------------------------------------


def test_v2_pipeline_of_a_sample() -> None:
    pipeline = v2.Compose([v2.ToImage(), v2.RandomCrop(4), v2.ToDtype(eg.float32, scale=True)])
    array = pixels(6, 6, 3)
    image, label = pipeline(Image(array), 7)
    assert label == 7
    assert tuple(image.shape) == (3, 4, 4) and image.dtype is eg.float32
    assert image.min().item() >= 0 and image.max().item() <= 1
    alone = pipeline(Image(array))
    assert isinstance(alone, eg.Tensor)


def test_v2_transforms_the_image_inside_dicts_and_passes_on_the_rest() -> None:
    boxes = eg.zeros(2, 4)
    sample = {"boxes": boxes, "picture": [Image(pixels(6, 6, 3))], "name": "a"}
    found = v2.CenterCrop(2)(sample)
    assert found["boxes"] is boxes and found["name"] == "a"
    assert found["picture"][0].size == (2, 2)


def test_v2_to_tensor_says_that_it_is_old() -> None:
    with pytest.warns(UserWarning, match=r"`ToTensor\(\)` is deprecated"):
        transform = v2.ToTensor()
    assert tuple(transform(Image(pixels(2, 3))).shape) == (1, 2, 3)


# -- use ------------------------------------------------------------------------------------------


def test_transforms_are_modules_and_can_be_pickled() -> None:
    stages = nn.Sequential(T.CenterCrop(4), T.Normalize([0.5], [0.5]))
    again = pickle.loads(pickle.dumps(stages))
    image = eg.rand(1, 6, 6)
    np.testing.assert_array_equal(stages(image).numpy(), again(image).numpy())


def test_normalize_in_place_writes_to_its_argument() -> None:
    image = eg.ones(1, 2, 2)
    assert T.Normalize([1.0], [2.0], inplace=True)(image) is image
    assert image.sum().item() == 0
    kept = eg.ones(1, 2, 2)
    T.Normalize([1.0], [2.0])(kept)
    assert kept.sum().item() == 4


IMAGE = eg.zeros(3, 6, 6)
REFUSALS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: T.ToTensor()(IMAGE), TypeError, "PIL Image or ndarray"),
    (lambda: T.ToTensor()(np.zeros(3)), ValueError, "2/3 dimensional"),
    (lambda: T.PILToTensor()(np.zeros((2, 2))), TypeError, "PIL Image"),
    (lambda: T.ToPILImage()(eg.zeros(5, 2, 2)), ValueError, "4 channels"),
    (lambda: T.ToPILImage("L")(IMAGE), ValueError, "Should be RGB"),
    (lambda: T.ToPILImage()(eg.zeros(1, 2, 2, dtype=eg.int64)), TypeError, "int64"),
    (lambda: T.Normalize([0.5], [0.0])(IMAGE), ValueError, "division by zero"),
    (lambda: T.Normalize([0.5], [0.5])(IMAGE.to(eg.uint8)), TypeError, "float tensor"),
    (lambda: T.Normalize([0.5], [0.5])(Image(pixels(2, 2))), TypeError, "Tensor Image"),
    (lambda: T.Normalize([0.5] * 3, [0.5] * 3)(IMAGE[:1]), RuntimeError, "broadcast"),
    (lambda: T.RandomCrop(9)(IMAGE), ValueError, r"crop size \(9, 9\) is larger"),
    (lambda: v2.RandomCrop(9)(IMAGE), ValueError, r"crop size \(9, 9\) is larger"),
    (lambda: T.FiveCrop(9)(IMAGE), ValueError, "bigger than input"),
    (lambda: T.CenterCrop((1, 2, 3)), ValueError, "two dimensions"),
    (lambda: T.Pad((1, 2, 3)), ValueError, "1, 2, or 4"),
    (lambda: T.Pad(1, padding_mode="wrap"), ValueError, "Padding mode"),
    (lambda: F.pad(IMAGE, 1, fill=(1, 2)), ValueError, "2 values for 3 channels"),
    (lambda: T.Resize((3, 4), max_size=5)(IMAGE), ValueError, "max_size"),
    (lambda: T.Resize(5, max_size=5)(IMAGE), ValueError, "strictly greater"),
    (lambda: T.Resize(5, "bi")(IMAGE), TypeError, "InterpolationMode"),
    (lambda: T.Resize(5, T.InterpolationMode.LANCZOS)(IMAGE), ValueError, "lanczos"),
    (lambda: F.rotate(IMAGE, 5, "bicubic"), ValueError, "bicubic"),
    (lambda: F.rotate(IMAGE, 5, fill=[1.0, 2.0]), ValueError, "fill"),
    (lambda: F.affine(IMAGE, 0, [0, 0], 0.0, [0, 0]), ValueError, "scale"),
    (lambda: F.gaussian_blur(IMAGE, 4), ValueError, "odd"),
    (lambda: T.GaussianBlur(3, -1.0), ValueError, "sigma"),
    (lambda: T.ColorJitter(-1), ValueError, "non negative"),
    (lambda: T.ColorJitter(hue=0.7), ValueError, "hue values"),
    (lambda: F.adjust_hue(IMAGE, 0.7), ValueError, "hue_factor"),
    (lambda: T.RandomRotation(-1), ValueError, "positive"),
    (lambda: T.RandomRotation((1, 2, 3)), ValueError, "length 2"),
    (lambda: T.RandomAffine(0, translate=(2, 0)), ValueError, "translation"),
    (lambda: T.RandomErasing(value="noise"), ValueError, "random"),
    (lambda: T.RandomErasing(1.0, value=(1, 2))(IMAGE), ValueError, "single value or 3"),
    (lambda: T.Grayscale(2)(IMAGE), ValueError, "1 or 3"),
    (lambda: T.RandomHorizontalFlip(1.0)("picture"), TypeError, "Tensor image"),
    (lambda: T.Lambda(3), TypeError, "callable"),
    (lambda: T.RandomChoice(3), TypeError, "sequence"),
    (lambda: F.convert_image_dtype(IMAGE, eg.int64), RuntimeError, "safely"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), REFUSALS)
def test_refusals(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
