"""Tensors made without dispatch: what a second call gives is what the first one gave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.rng import bit_generators
from evergrad.core.rng.bit_generators import MersenneTwister

CALLS = [
    lambda: eg.zeros(2, 3), lambda: eg.zeros((2, 3)), lambda: eg.zeros([2, 3]),
    lambda: eg.ones(eg.zeros(2, 3).shape), lambda: eg.zeros(()), lambda: eg.zeros(0, 2),
    lambda: eg.ones(3, dtype=eg.int64), lambda: eg.ones(3, dtype=eg.bool),
    lambda: eg.zeros(2, dtype=None, device="cpu"), lambda: eg.zeros(2, device=eg.ones(1).device),
    lambda: eg.ones(2, requires_grad=True), lambda: eg.ones(2, dtype=eg.bfloat16),
    lambda: eg.zeros_like(eg.ones(2, 3, dtype=eg.int32)), lambda: eg.ones_like(eg.ones(2).half()),
    lambda: eg.empty_like(eg.ones(4, 2).t()), lambda: eg.arange(5), lambda: eg.arange(5.0),
    lambda: eg.arange(1, 6, 2), lambda: eg.arange(1, 2, 0.25), lambda: eg.arange(3, dtype=eg.half),
    lambda: eg.arange(3, requires_grad=True, dtype=eg.float32), lambda: eg.arange(eg.tensor(4)),
    lambda: eg.eye(3), lambda: eg.eye(2, 3), lambda: eg.linspace(0, 1, 5),
    lambda: eg.linspace(0.0, -1, 3), lambda: eg.linspace(-0.0, -0.0, 2), lambda: eg.eye(True),
    lambda: eg.tensor([1.0, 2.0]), lambda: eg.tensor([[1, 2], [3, 4]]), lambda: eg.tensor([True]),
    lambda: eg.tensor([1, 2], dtype=eg.float64), lambda: eg.tensor(((1.5,), (2.5,))),
    lambda: eg.tensor([1e300, -1.0]), lambda: eg.tensor([1, 2.5, True]), lambda: eg.tensor([[]]),
]  # fmt: skip

REFUSED = [
    lambda: eg.zeros(-1), lambda: eg.zeros(1.0), lambda: eg.zeros("a"), lambda: eg.ones(2, a=3),
    lambda: eg.arange(5, 1), lambda: eg.eye(-2), lambda: eg.tensor([2**70]),
    lambda: eg.tensor([[1], [2, 3]]), lambda: eg.zeros(2, device="cuda"),
]  # fmt: skip


def described(x: Any) -> Any:
    return x.dtype, x.shape, x.detach().float().numpy().tobytes(), x.requires_grad, x.stride()


@pytest.mark.parametrize("default", [eg.float32, eg.float64])
def test_repeated_calls_give_the_same(default: Any) -> None:
    for call in CALLS:
        expected = described(call())
        assert [described(call()) for _ in range(3)] == [expected] * 3
    eg.set_default_dtype(default)
    try:
        assert eg.zeros(2).dtype is eg.rand(2).dtype is eg.arange(2.0).dtype is default
        assert eg.tensor([1.0]).dtype is eg.linspace(0, 1, 2).dtype is eg.eye(2).dtype is default
    finally:
        eg.set_default_dtype(eg.float32)


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_refusals_do_not_depend_on_earlier_calls(at: int) -> None:
    eg.zeros(1), eg.ones(2), eg.eye(2), eg.arange(5)
    for _ in range(3):
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            REFUSED[at]()


@pytest.mark.parametrize("make", [lambda: eg.arange(4), lambda: eg.zeros(4), lambda: eg.eye(2)])
def test_results_have_memory_of_their_own(make: Any) -> None:
    first = make()
    expected = first.tolist()
    first.fill_(7)
    made = [make() for _ in range(3)]
    made[0].add_(5)
    assert made[1].tolist() == made[2].tolist() == expected


def test_modes_apply() -> None:
    for _ in range(3):
        with eg.inference_mode():
            assert eg.zeros(3).is_inference() and eg.arange(3).is_inference()
            assert eg.rand(3).is_inference()
        with eg.device("meta"):
            assert eg.zeros(3).is_meta and eg.arange(3).is_meta and eg.rand(3).is_meta
        assert not eg.zeros(3).is_inference() and not eg.zeros(3).is_meta


def test_draws_follow_the_generator() -> None:
    draws = (
        lambda: eg.rand(5), lambda: eg.randn(5), lambda: eg.randn(4, 5), lambda: eg.randperm(7),
        lambda: eg.randint(0, 9, (4,)), lambda: eg.randint(9, (4,)),
        lambda: eg.randint(-3, 3, (2,)),
        lambda: eg.rand_like(eg.ones(2, 3)), lambda: eg.randn_like(eg.ones(6, 3).t()),
        lambda: eg.ones(3).uniform_(), lambda: eg.ones(20).normal_(), lambda: eg.rand(0),
    )  # fmt: skip

    def sequence() -> list[bytes]:
        eg.manual_seed(3)
        return [draw().numpy().tobytes() for _ in range(2) for draw in draws]

    assert sequence() == sequence() == sequence()
    own = eg.Generator().manual_seed(3)
    eg.manual_seed(3)
    assert eg.rand(5, generator=own).tolist() == eg.rand(5).tolist()


def test_few_words_are_those_of_many(monkeypatch: Any) -> None:
    """Raw words and Python's arithmetic give the bits of NumPy's draws, in any order of calls."""
    order = np.random.default_rng(1)
    calls = [(int(order.integers(4)), int(order.integers(40))) for _ in range(200)]

    def stream() -> list[bytes]:
        twister = MersenneTwister(5)
        names = (twister.words32, twister.words64, twister.double_normals, twister.permutation)
        return [np.asarray(names[which](n)).tobytes() for which, n in calls]

    few = stream()
    monkeypatch.setattr(bit_generators, "_FEW", 0)
    monkeypatch.setattr(bit_generators, "_FEW_WORDS", 0)
    assert few == stream()


def test_the_sign_of_a_zero_is_part_of_a_prepared_call() -> None:
    x = eg.tensor([-1.0, 1.0])
    for _ in range(4):
        assert (
            eg.nn.functional.threshold(x, 0.5, -0.0).numpy().tobytes()
            == np.array([-0.0, 1.0], np.float32).tobytes()
        )
        assert (
            eg.nn.functional.threshold(x, 0.5, 0.0).numpy().tobytes()
            == np.array([0.0, 1.0], np.float32).tobytes()
        )
