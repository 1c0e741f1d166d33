"""Constants, ranges, windows and writes: PyTorch's values to the last bit, and its errors."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evergrad
from evergrad.core.interpret import interpret
from evergrad.core.traced_function import trace
from oracle import Call, assert_same

CALLS: list[Call] = [
    lambda ns: ns.zeros(2, 3),
    lambda ns: ns.zeros((2, 3), dtype=ns.int32),
    lambda ns: ns.zeros([]),
    lambda ns: ns.zeros(size=(2,)),
    lambda ns: ns.zeros(ns.tensor(2)),
    lambda ns: ns.zeros(2, requires_grad=True),
    lambda ns: ns.zeros(2, dtype=ns.int64, requires_grad=True),
    lambda ns: ns.zeros(2.0),
    lambda ns: ns.zeros(-1),
    lambda ns: ns.ones(2, out=ns.zeros(2, dtype=ns.int64)),
    lambda ns: ns.full((2,), 3),
    lambda ns: ns.full((2,), True),
    lambda ns: ns.full((2,), 1j),
    lambda ns: ns.full((2,), 1.5, dtype=ns.int64),
    lambda ns: ns.full((2,), -1, dtype=ns.uint8),
    lambda ns: ns.full((2,), 300, dtype=ns.uint8),
    lambda ns: ns.full((2,), float("nan"), dtype=ns.int64),
    lambda ns: ns.full((2,), float("inf")),
    lambda ns: ns.full((2,), 1e40),
    lambda ns: ns.full((2,), 2**40, dtype=ns.float16),
    lambda ns: ns.full((2,), 1 + 1j, dtype=ns.float32),
    lambda ns: ns.full((2,), 1 + 0j, dtype=ns.float32),
    lambda ns: ns.full((2,), ns.tensor(3.5)),
    lambda ns: ns.full((2,), ns.tensor(3.5, requires_grad=True)),
    lambda ns: ns.zeros_like(ns.ones(2, dtype=ns.int8)),
    lambda ns: ns.ones_like(ns.zeros(2, 0), dtype=ns.float64),
    lambda ns: ns.full_like(ns.zeros(2, dtype=ns.int64), 1.5),
    lambda ns: ns.scalar_tensor(3),
    lambda ns: ns.tensor([4]).new_full((2,), 1.5),
    lambda ns: ns.tensor([4]).new_zeros(2, 3),
    lambda ns: ns.tensor([4]).new_ones((2,), dtype=ns.float64),
    lambda ns: ns.tensor([4]).new_empty(2, 3).shape,
    lambda ns: ns.tensor([4]).new_tensor([1.5]),
    lambda ns: ns.tensor([4]).new_empty_strided((2, 3), (1, 2)).stride(),
    lambda ns: ns.empty_strided((2, 3), (1, 2)).stride(),
    lambda ns: ns.eye(2),
    lambda ns: ns.eye(2, 3, dtype=ns.bool),
    lambda ns: ns.eye(0),
    lambda ns: ns.eye(-1),
    lambda ns: ns.eye(2, -1),
    lambda ns: ns.arange(5),
    lambda ns: ns.arange(2, 9, 3),
    lambda ns: ns.arange(9, 2, -3),
    lambda ns: ns.arange(3.0),
    lambda ns: ns.arange(0.5, 3),
    lambda ns: ns.arange(end=3),
    lambda ns: ns.arange(ns.tensor(3)),
    lambda ns: ns.arange(0, 10, 2.5, dtype=ns.int64),
    lambda ns: ns.arange(0, 10, 2.5, dtype=ns.int32),
    lambda ns: ns.arange(5, 0),
    lambda ns: ns.arange(0, 1, 0),
    lambda ns: ns.arange(0, float("inf")),
    lambda ns: ns.arange(3, dtype=ns.bool),
    lambda ns: ns.linspace(0, 1, 0),
    lambda ns: ns.linspace(0, 1, 1),
    lambda ns: ns.linspace(0, 1, -1),
    lambda ns: ns.linspace(ns.tensor(0.0), ns.tensor(1.0), 3),
    lambda ns: ns.linspace(ns.tensor([0.0]), 1, 3),
    lambda ns: ns.linspace(0, 1j, 3),
    lambda ns: ns.linspace(0, 1j, 3, dtype=ns.float32),
    lambda ns: ns.complex(ns.tensor([1.0, 2]), ns.tensor(2.0)),
    lambda ns: ns.complex(ns.tensor([1.0]), ns.tensor([2.0], dtype=ns.float64)),
    lambda ns: ns.complex(ns.tensor([1]), ns.tensor([2])),
    lambda ns: ns.polar(ns.tensor([1]), ns.tensor([2])),
    lambda ns: ns.hann_window(0),
    lambda ns: ns.hann_window(1),
    lambda ns: ns.hann_window(-1),
    lambda ns: ns.hann_window(3, dtype=ns.int64),
    lambda ns: ns.vander(ns.tensor([1, 2, 3])),
    lambda ns: ns.vander(ns.tensor([1.0, 2, 3]), N=2, increasing=True),
    lambda ns: ns.vander(ns.tensor([1.0, 2, 3]), N=5),
    lambda ns: ns.vander(ns.tensor([1.0, 2, 3]), N=0),
    lambda ns: ns.vander(ns.tensor([[1.0]])),
    lambda ns: ns.vander(ns.tensor([1.0]), N=-1),
]


@pytest.mark.parametrize("call", CALLS)
def test_as_in_torch(torch: ModuleType, call: Call) -> None:
    assert_same(torch, call)


WRITES: list[Call] = [
    lambda ns: ns.zeros(2).fill_(3),
    lambda ns: ns.zeros(2, dtype=ns.int64).fill_(1.5),
    lambda ns: ns.zeros(2, dtype=ns.int64).fill_(ns.tensor(1.5)),
    lambda ns: ns.zeros(2, dtype=ns.uint8).fill_(ns.tensor(300)),
    lambda ns: ns.zeros(2, dtype=ns.uint8).fill_(300),
    lambda ns: ns.zeros(2).fill_(1 + 1j),
    lambda ns: ns.zeros(2).fill_(ns.tensor([1.0])),
    lambda ns: ns.fill(ns.zeros(2), 3),
    lambda ns: ns.ones(2).zero_(),
    lambda ns: ns.zeros(2).copy_(3),
    lambda ns: ns.zeros(2).copy_(ns.ones(3)),
    lambda ns: ns.zeros(2).copy_(ns.ones(2, 2)),
    lambda ns: ns.zeros(2, 3).copy_(ns.arange(3)),
    lambda ns: ns.zeros(2, dtype=ns.int8).copy_(ns.tensor([300.0, -1.5])),
    lambda ns: ns.zeros(2).copy_(ns.ones(2, requires_grad=True)),
    lambda ns: ns.zeros(2, requires_grad=True).fill_(1),
    lambda ns: ns.zeros(1).expand(3).fill_(1),
    lambda ns: ns.zeros(7, 3).fill_diagonal_(5),
    lambda ns: ns.zeros(9, 3).fill_diagonal_(5, wrap=True),
    lambda ns: ns.zeros(3, 7).fill_diagonal_(5, wrap=True),
    lambda ns: ns.zeros(3, 3, 3).fill_diagonal_(5),
    lambda ns: ns.zeros(3, 2, 3).fill_diagonal_(5),
    lambda ns: ns.zeros(3).fill_diagonal_(5),
    lambda ns: ns.zeros(2, 3).resize_(3, 2),
    lambda ns: ns.zeros(6).resize_(2),
    lambda ns: ns.zeros(2).resize_as_(ns.zeros(3, 4)).shape,
]


@pytest.mark.parametrize("call", WRITES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_writes_as_in_torch(torch: ModuleType, call: Call) -> None:
    assert_same(torch, call)


def test_copy_passes_gradients_through_casts_and_broadcasting() -> None:
    source = evergrad.tensor([1.0, 2.0], dtype=evergrad.float64, requires_grad=True)
    target = evergrad.zeros(3, 2).copy_(source)
    (target * evergrad.arange(6.0).reshape(3, 2)).sum().backward()
    assert source.grad.tolist() == [6.0, 9.0]
    assert source.grad.dtype is evergrad.float64


def test_a_filled_part_has_no_gradient() -> None:
    x = evergrad.ones(2, 2, requires_grad=True)
    y = x * 3
    y[0].fill_(5)
    y.sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0], [3.0, 3.0]]


# -- ranges of floats ---------------------------------------------------------------------------

FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")
bounds = st.integers(-10_000, 10_000).map(lambda n: n / 97)


@given(bounds, bounds, st.integers(0, 70), st.sampled_from((*FLOAT_NAMES, "int64", "int32")))
def test_linspace_to_the_last_bit(start: float, end: float, steps: int, name: str) -> None:
    torch = pytest.importorskip("torch")
    assert_same(torch, lambda ns: ns.linspace(start, end, steps, dtype=getattr(ns, name)))


@given(bounds, st.floats(0.01, 3), st.integers(0, 70), st.sampled_from(FLOAT_NAMES))
def test_arange_to_the_last_bit(start: float, step: float, count: int, name: str) -> None:
    torch = pytest.importorskip("torch")
    end = start + step * (count - 0.5) if count else start
    assert_same(torch, lambda ns: ns.arange(start, end, step, dtype=getattr(ns, name)))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_logspace(torch: ModuleType, name: str) -> None:
    tolerance = 1e-6 if name == "float32" else 1e-14
    assert_same(
        torch, lambda ns: ns.logspace(-2, 3, 23, dtype=getattr(ns, name)), tolerance=tolerance
    )
    assert_same(torch, lambda ns: ns.logspace(0, 7, 8, base=2, dtype=ns.int64))


def test_range_warns_and_includes_the_end(torch: ModuleType) -> None:
    with pytest.warns(UserWarning, match="range is deprecated"):
        assert evergrad.range(1, 4, 0.5).tolist() == [1, 1.5, 2, 2.5, 3, 3.5, 4]
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="inconsistent"):
        evergrad.range(4, 1)


# -- windows ------------------------------------------------------------------------------------

WINDOWS = ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window")


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("length", [2, 5, 16])
@pytest.mark.parametrize("periodic", [True, False])
def test_windows(torch: ModuleType, name: str, length: int, periodic: bool) -> None:
    for precision, tolerance in (("float32", 1e-6), ("float64", 1e-14)):
        assert_same(
            torch,
            lambda ns, p=precision: getattr(ns, name)(length, periodic, dtype=getattr(ns, p)),
            tolerance=tolerance,
        )


def test_window_parameters(torch: ModuleType) -> None:
    assert_same(torch, lambda ns: ns.hamming_window(5, True, 0.6, 0.4), tolerance=1e-6)
    assert_same(torch, lambda ns: ns.kaiser_window(5, False, 3.0), tolerance=1e-6)
    with pytest.raises(TypeError, match="unexpected keyword"):
        evergrad.hann_window(5, wrong=1)


# -- complex numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["complex", "polar"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_complex_and_its_gradient(torch: ModuleType, name: str, precision: str) -> None:
    def call(ns: Any) -> Any:
        dtype = getattr(ns, precision)
        a = ns.tensor([[0.5], [1.5]], dtype=dtype, requires_grad=True)
        b = ns.tensor([0.3, -2.0, 1.0], dtype=dtype, requires_grad=True)
        z = getattr(ns, name)(a, b)
        weights = ns.tensor([1 + 2j, 3 - 1j, -2j], dtype=z.dtype)
        (z * weights).real.sum().backward()
        return z.detach(), a.grad, b.grad

    assert_same(torch, call, tolerance=1e-6 if precision == "float32" else 1e-14)


def test_complex_keeps_infinite_parts_apart() -> None:
    z = evergrad.complex(evergrad.tensor(1.0), evergrad.tensor(float("inf")))
    assert z.real.item() == 1.0 and z.imag.item() == float("inf")


# -- programs -----------------------------------------------------------------------------------


def test_constants_of_a_program_are_made_anew_each_time() -> None:
    def program(x: Any) -> Any:
        total = evergrad.tensor([1.0, 2.0])
        total += x
        return total

    traced = trace(program, [evergrad.ones(2)._type])
    assert not traced.graph.captures and not traced.graph.writes
    for _ in range(2):
        (found,) = interpret(traced.graph, evergrad.tensor([10.0, 20.0]))
        np.testing.assert_array_equal(found.numpy(), [11.0, 22.0])
