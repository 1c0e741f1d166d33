"""Random numbers inside compiled programs: those of eager mode and of PyTorch, without NumPy calls,
and the generator's state after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg
from evergrad.core.rng.default_generator import using_generator

from .steps import num_threads
from .test_lower_random import assert_same

FLOATS = ["float32", "float64", "float16", "bfloat16"]


def assert_native(function: Callable[..., Any], *given: Any, before: int = 0) -> None:
    assert calls_of(assert_same(function, "mt19937", *given, before=before)) == []


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 3, 16, 17, 33, 624, 4099])
def test_normals_and_uniforms(count: int, dtype: str) -> None:
    kind = getattr(eg, dtype)

    def draw() -> Any:
        made = [eg.randn(count, dtype=kind), eg.empty(count, dtype=kind).normal_(2.0, 3.0)]
        made += [eg.rand(count, dtype=kind), eg.empty(count, dtype=kind).uniform_(0.0, 5.0)]
        return tuple(x.double() for x in made)

    assert_native(draw, before=count)


@pytest.mark.parametrize("count", [1, 2, 51, 1000])
def test_integers_and_permutations(count: int) -> None:
    def draw() -> Any:
        return (
            eg.randint(0, 10, (count,)), eg.randint(-5, 7, (count, 2), dtype=eg.int32),
            eg.randint(0, 5000, (count,), dtype=eg.float16).float(), eg.randint(3, 9, (count,)),
            eg.randperm(count + 1), eg.randperm(count + 1, dtype=eg.float32),
            eg.empty(count, dtype=eg.int64).random_(), eg.empty(count, dtype=eg.uint8).random_(),
            eg.empty(count).random_(), eg.empty(count).uniform_(-3.0, 2.0),
        )  # fmt: skip

    assert_native(draw)


@pytest.mark.parametrize("count", [1, 51])
def test_numbers_by_probabilities(count: int) -> None:
    def draw(p: Any) -> Any:
        return (
            eg.bernoulli(p), eg.bernoulli(p.double()), eg.bernoulli(p.T), eg.multinomial(p, 1),
            eg.multinomial(p, 3), eg.multinomial(p.T, 1), eg.multinomial(p[0], 1, True),
            eg.multinomial(p.bfloat16(), 1), eg.empty(count).exponential_(2.0),
            eg.empty(count, dtype=eg.float16).exponential_().float(),
            eg.empty(count).log_normal_(1.0, 0.5), eg.randn_like(p.T), eg.rand_like(p.T),
        )  # fmt: skip

    assert_native(draw, eg.tensor(np.random.default_rng(count).random((count, 7), np.float32)))


def test_normals_around_tensors() -> None:
    """By NumPy: native code would round the product and the sum at once, eager code does not."""
    mean = eg.tensor(np.linspace(-3, 3, 40, dtype=np.float32).reshape(4, 10))
    compiled = eg.compile(lambda m: (eg.normal(m, m.abs()), eg.normal(m, 2.0)))
    found = []
    for function in (compiled, lambda m: (eg.normal(m, m.abs()), eg.normal(m, 2.0))):
        with using_generator(eg.Generator().manual_seed(3)):
            found.append([x.numpy() for x in function(mean)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_numbers_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def draw(lib: Any) -> Any:
        weights = lib.arange(1.0, 31.0).reshape(5, 6)
        return (
            lib.randn(3), lib.randn(70), lib.randn(2), lib.rand(9), lib.randint(0, 9, (20,)),
            lib.randperm(33), lib.multinomial(weights, 1), lib.multinomial(weights, 2),
            lib.randn(20, dtype=lib.float64), lib.bernoulli(weights / 40),
        )  # fmt: skip

    torch.manual_seed(5)
    expected = [draw(torch) for _ in range(3)]
    compiled = eg.compile(lambda: draw(eg))
    with using_generator(eg.Generator().manual_seed(5)):
        found = [compiled() for _ in range(3)]
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert calls_of(compiled) == []


def test_numbers_do_not_depend_on_threads() -> None:
    found = []
    for threads in (1, 2, 3):
        compiled = eg.compile(lambda: (eg.randn(100_003), eg.rand(50_001)))
        with num_threads(threads), using_generator(eg.Generator().manual_seed(1)):
            found.append([x.numpy() for x in compiled()])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("weights", [[[0.0, 0.0]], [[-1.0, 1.0]], [[float("nan"), 1.0]]])
def test_bad_probabilities_raise_eagers_error(weights: Any) -> None:
    generator = eg.Generator().manual_seed(1)
    compiled = eg.compile(lambda p: eg.multinomial(p, 1))
    with using_generator(generator):
        compiled(eg.tensor([[1.0, 2.0]]))
        before = generator.get_state().tolist()
        with pytest.raises(RuntimeError) as ours:
            compiled(eg.tensor(weights))
        assert generator.get_state().tolist() == before
    with pytest.raises(RuntimeError) as theirs:
        eg.multinomial(eg.tensor(weights), 1)
    assert str(ours.value) == str(theirs.value)


# -- integer division, which numbers in a range are made by -------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_integer_division(dtype: str) -> None:
    rng = np.random.default_rng(0)
    signs = 1 if dtype == "uint8" else rng.choice([-1, 1], 60)
    x = eg.tensor(rng.integers(-128, 127, 60)).to(getattr(eg, dtype))
    y = eg.tensor(rng.integers(1, 20, 60) * signs).to(getattr(eg, dtype))
    x[0] = int(eg.iinfo(x.dtype).min)
    y[0] = 1 if dtype == "uint8" else -1

    def divide(x: Any, y: Any) -> Any:
        rest = x // y, x % y, eg.fmod(x, y), eg.div(x, y, rounding_mode="trunc")
        return *rest, x // 3, x % 3, x // 1, x % 16, 7 % y, 7 // y

    compiled = eg.compile(divide)
    for ours, theirs in zip(compiled(x, y), divide(x, y), strict=True):
        assert ours.dtype is theirs.dtype
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert calls_of(compiled) == []
    y[7] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError: integer division or modulo by zero"):
        compiled(x, y)


@pytest.mark.parametrize("function", [lambda x: x % 0, lambda x: x // 0])
def test_division_of_integers_by_the_number_zero(function: Any) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        eg.compile(function)(eg.tensor([1, 2]))
    assert eg.compile(function)(eg.tensor([1.0])).shape == (1,)
