"""Element types: promotion, limits and defaults, against PyTorch's tables."""

from __future__ import annotations

import itertools
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.core import dtypes
from oracle import Call, assert_equal, assert_same, outcome

NAMES = [t.name for t in dtypes.ALL]
NUMBERS: dict[str, Any] = {"number bool": True, "number int": 2, "number float": 2.0,
                           "number complex": 1 + 1j}  # fmt: skip
# Tensors with a dimension, tensors without, numbers.
KINDS = [*(f"{n} 1-d" for n in NAMES), *(f"{n} 0-d" for n in NAMES), *NUMBERS]


def operand(ns: Any, kind: str) -> Any:
    if kind in NUMBERS:
        return NUMBERS[kind]
    name, rank = kind.split()
    return ns.ones((2,) if rank == "1-d" else (), dtype=getattr(ns, name))


PAIRS = [(a, b) for a, b in itertools.product(KINDS, KINDS) if a not in NUMBERS or b not in NUMBERS]

FUNCTIONS: dict[str, Any] = {
    "add": lambda ns, a, b: a + b,
    "sub": lambda ns, a, b: a - b,
    "mul": lambda ns, a, b: a * b,
    "div": lambda ns, a, b: a / b,
    "floor_divide": lambda ns, a, b: a // b,
    "remainder": lambda ns, a, b: a % b,
    "pow": lambda ns, a, b: ns.pow(a, b),
    "eq": lambda ns, a, b: a == b,
    "lt": lambda ns, a, b: a < b,
    "bitwise_and": lambda ns, a, b: a & b,
    "maximum": lambda ns, a, b: ns.maximum(a, b),
    "atan2": lambda ns, a, b: ns.atan2(a, b),
    "where": lambda ns, a, b: ns.where(ns.ones(2, dtype=ns.bool), a, b),
    "result_type": lambda ns, a, b: ns.ones(1, dtype=ns.result_type(a, b)),
    "stack": lambda ns, a, b: ns.stack([a, b]),
    "in place": lambda ns, a, b: a.add_(b),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_promotion(torch: ModuleType, name: str) -> None:
    """Wherever PyTorch gives a result, its element type is the same.

    Not compared: what PyTorch refuses (here more is taken), and its complex32.
    """
    function = FUNCTIONS[name]
    for a, b in PAIRS:
        expected = outcome(torch, lambda ns, a=a, b=b: function(ns, operand(ns, a), operand(ns, b)))
        if isinstance(expected, Exception) or expected.dtype is torch.complex32:
            continue
        found = function(evergrad, operand(evergrad, a), operand(evergrad, b))
        assert f"torch.{found.dtype.name}" == str(expected.dtype), f"{name} of {a} and {b}"


@pytest.mark.parametrize("name", ["add", "sub"])
def test_alpha_does_not_change_the_type(torch: ModuleType, name: str) -> None:
    """The scaled sum is formed in the type in which its two terms meet."""
    kinds = [k for k in KINDS if k.split()[0] in ("bool", "uint8", "int64", "float16", "float32")]
    for a, b, alpha in itertools.product(kinds, [*kinds, *NUMBERS], (2, 0.5)):

        def call(ns: Any, a: str = a, b: str = b, alpha: float = alpha) -> Any:
            return getattr(ns, name)(operand(ns, a), operand(ns, b), alpha=alpha)

        expected = outcome(torch, call)
        if not isinstance(expected, Exception) and expected.dtype is not torch.complex32:
            assert_equal(call(evergrad), expected)


def test_a_number_can_be_the_dividend(torch: ModuleType) -> None:
    for values in ([1.5, -2.5], [2, -3]):
        for mode in ("trunc", "floor", None):
            assert_same(
                torch, lambda ns, v=values, m=mode: ns.div(-7, ns.tensor(v), rounding_mode=m)
            )


def test_promote_types_and_can_cast(torch: ModuleType) -> None:
    for a, b in itertools.product(NAMES, NAMES):
        ours = getattr(evergrad, a), getattr(evergrad, b)
        theirs = getattr(torch, a), getattr(torch, b)
        if torch.promote_types(*theirs) is not torch.complex32:
            assert f"torch.{evergrad.promote_types(*ours).name}" == str(
                torch.promote_types(*theirs)
            )
        assert evergrad.can_cast(*ours) == torch.can_cast(*theirs), (a, b)


@pytest.mark.parametrize("name", NAMES)
def test_properties_and_limits(torch: ModuleType, name: str) -> None:
    ours, theirs = getattr(evergrad, name), getattr(torch, name)
    for question in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
        assert getattr(ours, question) == getattr(theirs, question)
    for change in ("to_real", "to_complex") if ours.category >= dtypes.FLOATING else ():
        converted = getattr(theirs, change)()
        if converted is not torch.complex32:
            assert f"torch.{getattr(ours, change)().name}" == str(converted)
    for kind, fields in (
        ("finfo", ("bits", "eps", "max", "min", "tiny", "smallest_normal", "dtype")),
        ("iinfo", ("bits", "max", "min", "dtype")),
    ):
        assert_same(
            torch,
            lambda ns, k=kind, f=fields: [
                getattr(getattr(ns, k)(getattr(ns, name)), field) for field in f
            ],
        )


def test_aliases(torch: ModuleType) -> None:
    for alias, found in dtypes.ALIASES.items():
        assert str(getattr(torch, alias)) == f"torch.{found.name}"
        assert getattr(evergrad, alias) is found
    assert evergrad.bool is dtypes.bool_


def test_pickled_types_stay_themselves() -> None:
    for found in dtypes.ALL:
        assert pickle.loads(pickle.dumps(found)) is found


QUESTIONS: list[Call] = [
    lambda ns: ns.result_type(ns.tensor([1]), 1.5),
    lambda ns: ns.result_type(1, 1.5),
    lambda ns: ns.result_type(ns.tensor([1]), ns.tensor(1.5)),
    lambda ns: ns.result_type("a", 1),
    lambda ns: ns.is_tensor(3),
    lambda ns: ns.is_tensor(ns.ones(1)),
    lambda ns: ns.numel(ns.ones(2, 3)),
    lambda ns: ns.numel(3),
    lambda ns: ns.is_floating_point(ns.ones(1)),
    lambda ns: ns.is_floating_point(3),
    lambda ns: ns.is_complex(ns.ones(1)),
    lambda ns: ns.set_default_dtype(ns.int32),
    lambda ns: ns.finfo(ns.int32),
    lambda ns: ns.iinfo(ns.float32),
    lambda ns: ns.get_default_dtype(),
    # Python's types, wherever an element type is taken
    lambda ns: [ns.finfo(float).eps, ns.finfo(complex).dtype, ns.iinfo(int).max],
    lambda ns: ns.finfo(int),
    lambda ns: ns.iinfo(float),
    lambda ns: ns.iinfo(bool),
    lambda ns: [ns.promote_types(float, int), ns.can_cast(float, int), ns.can_cast(int, float)],
    lambda ns: ns.ones(2).view(int),
    lambda ns: ns.ones(2).type(int),
    lambda ns: ns.nn.Linear(2, 2).to(float).weight.dtype,
    lambda ns: ns.nn.Linear(2, 2).to(dtype=float).bias.dtype,
    lambda ns: ns.nn.Linear(2, 2).to(int),
    lambda ns: [ns.finfo(float) == ns.finfo(ns.float64), ns.finfo(float) == ns.finfo(ns.float32)],
    lambda ns: [ns.iinfo(int) == ns.iinfo(ns.int64), ns.iinfo(int) == ns.iinfo(ns.int8)],
    lambda ns: {ns.finfo(float): 1},
]


@pytest.mark.parametrize("call", QUESTIONS)
def test_questions_as_in_torch(torch: ModuleType, call: Call) -> None:
    assert_same(torch, call)


def test_numpy_numbers_count_as_numbers() -> None:
    assert evergrad.result_type(evergrad.ones(1), np.float64(2)) is evergrad.float32


def test_the_default_type_can_change_at_any_time() -> None:
    integers = evergrad.tensor([1, 2])
    assert (integers + 0.5).dtype is evergrad.float32
    evergrad.set_default_dtype(evergrad.float64)
    try:
        assert (integers + 0.5).dtype is evergrad.float64
        assert evergrad.tensor([1.5]).dtype is evergrad.float64
        assert evergrad.tensor([1j]).dtype is evergrad.complex128
        assert evergrad.zeros(1).dtype is evergrad.get_default_dtype() is evergrad.float64
        with pytest.warns(UserWarning, match="deprecated"):
            evergrad.set_default_tensor_type("torch.HalfTensor")
        assert evergrad.rand(1).dtype is evergrad.float16
    finally:
        evergrad.set_default_dtype(evergrad.float32)
    assert (integers + 0.5).dtype is evergrad.float32
