"""In-place forms by native loops: the bits of the forms that make a new tensor."""

from typing import Any

import numpy as np
import pytest

import evergrad as eg

UNARY = ("abs", "neg", "relu", "sigmoid", "rsqrt", "square", "sin", "log1p", "frac", "sign")
BINARY = ("add", "sub", "mul", "div", "atan2", "fmod", "remainder", "hypot", "copysign")
SHAPES = ((7,), (40, 200), (3, 5, 1100))


def numbers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Any:
    return eg.tensor((np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype))


def check(name: str, x: Any, *others: Any) -> None:
    expected = getattr(x.clone(), name)(*others)
    version = x._version
    assert getattr(x, name + "_")(*others) is x
    assert x._version == version + 1
    assert x.numpy().tobytes() == expected.contiguous().numpy().tobytes(), name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_argument(shape: tuple[int, ...], dtype: Any) -> None:
    for name in UNARY:
        check(name, numbers(shape, dtype))
        wide = numbers((*shape, 2), dtype)
        check(name, wide[..., 0])
    check("clamp", numbers(shape, dtype), -0.5, 1)
    check("clamp", numbers(shape, dtype), float("nan"), 1.0)
    check("clip", numbers(shape, dtype), None, 0.25)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_arguments(shape: tuple[int, ...]) -> None:
    for name in BINARY:
        other = numbers(shape, seed=1)
        check(name, numbers(shape), other)
        check(name, numbers(shape), 0.75)
        check(name, numbers(shape), eg.tensor(1.5))
        check(name, numbers(shape), other[:1])
        check(name, numbers(shape), other[..., :1])
        check(name, numbers(shape), numbers((*shape, 3), seed=2)[..., 1])


def test_arguments_that_overlap_the_target() -> None:
    for name in BINARY:
        x = numbers((60, 100))
        check(name, x, x)
        check(name, numbers((100, 100)), numbers((100, 100)).t())
        x = numbers((60, 100))
        expected = getattr(x[1:].clone(), name)(x[:-1].clone())
        getattr(x[1:], name + "_")(x[:-1])
        assert eg.equal(x[1:], expected)


def test_several_arguments() -> None:
    a, b = numbers((80, 90), seed=1), numbers((80, 90), seed=2)
    check("addcmul", numbers((80, 90)), a, b)
    check("lerp", numbers((80, 90)), a, 0.3)
    check("addcmul", numbers((80, 90)), a[:1], b)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.int8, np.uint8])
def test_integers_are_held_between_bounds_and_chosen(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    array = np.array(
        [limits.min, limits.min + 1, 0, 1, 5, 60, limits.max - 1, limits.max] * 9, dtype
    )
    array, other = array.reshape(8, 9), array[::-1].reshape(8, 9)
    x, y = eg.tensor(array), eg.tensor(other)
    assert np.array_equal(x.clamp(2, 50).numpy(), np.clip(array, 2, 50))
    assert np.array_equal(x.clamp(min=3).numpy(), np.maximum(array, 3))
    assert np.array_equal(x.clamp_max(limits.max).numpy(), array)
    mask = x > y
    assert np.array_equal(eg.where(mask, x, y).numpy(), np.maximum(array, other))
    filled = np.where(mask.numpy(), limits.max, array)
    assert np.array_equal(x.masked_fill(mask, int(limits.max)).numpy(), filled)
    check("clamp", x.clone(), 2, 50)
    check("clamp", x.t().contiguous().t(), 2, 50)


def test_writes_keep_the_memory() -> None:
    x = numbers((1 << 18,))
    address = x.data_ptr()
    x.clamp_(-1, 1).abs_().div_(2.0)
    assert x.data_ptr() == address
    assert float(x.min()) >= 0 and float(x.max()) <= 0.5
