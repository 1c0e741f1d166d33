"""Integers and masks at their edges: values as PyTorch's, and no trap of the processor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

TYPES = ("uint8", "int8", "int16", "int32", "int64")


def edges(dtype: str) -> list[int]:
    i = np.iinfo(dtype)
    small = {-64, -8, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 15, 31, 63, 64, 100}
    return sorted({i.min, i.min + 1, i.max - 1, i.max} | {n for n in small if i.min <= n <= i.max})


def pairs(dtype: str) -> tuple[Any, Any]:
    a, b = np.meshgrid(*[np.array(edges(dtype), dtype)] * 2, indexing="ij")
    return a.ravel().copy(), b.ravel().copy()


OF_TWO = (
    "add", "sub", "mul", "bitwise_and", "bitwise_xor", "maximum", "lt", "floor_divide", "remainder",
    "fmod", "true_divide", "pow", "copysign", "bitwise_left_shift", "bitwise_right_shift",
)  # fmt: skip


def meets(name: str, a: Any, b: Any) -> Any:
    """The pairs for which C, and with it PyTorch, defines the result."""
    if "shift" in name:
        return b >= 0
    if name in ("floor_divide", "remainder", "fmod"):
        return (b != 0) & ((a != np.iinfo(a.dtype).min) | (b.astype(np.int64) != -1))
    return np.ones(len(a), bool)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", OF_TWO)
def test_edges_of_integers(name: str, dtype: str, torch: ModuleType) -> None:
    """A power of the least integer as exponent was an error of NumPy."""
    a, b = pairs(dtype)
    known = meets(name, a, b)
    a, b = a[known], b[known]
    expected = getattr(torch, name)(torch.from_numpy(a), torch.from_numpy(b))
    compiled = eg.compile(lambda a, b: getattr(eg, name)(a, b))
    for run in (getattr(eg, name), compiled, compiled):
        found = run(eg.from_numpy(a), eg.from_numpy(b))
        assert str(found.dtype).split(".")[-1] == str(expected.dtype).split(".")[-1]
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-7)


@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "gcd", "lcm"])
def test_the_least_integer_and_minus_one(name: str, dtype: str) -> None:
    """The processor's division traps there; the result wraps around, as that of ``neg``."""
    least = np.iinfo(dtype).min
    a, b = (eg.full((70,), n, dtype=getattr(eg, dtype)) for n in (least, -1))
    expected = {"floor_divide": least, "remainder": 0, "fmod": 0, "gcd": 1, "lcm": least}[name]
    compiled = eg.compile(lambda a, b: getattr(eg, name)(a, b))
    for run in (getattr(eg, name), compiled, compiled):
        assert set(run(a, b).tolist()) == {expected}


Function = Callable[[Any, Any, Any], Any]

# Of a mask and numbers.
DIFFERENCES: dict[str, Function] = {
    "mask - numbers": lambda ns, m, x: m - x,
    "numbers - mask": lambda ns, m, x: x - m,
    "mask - mask": lambda ns, m, x: m - m,
    "mask - 1": lambda ns, m, x: m - 1,
    "1 - mask": lambda ns, m, x: 1 - m,
    "1.5 - mask": lambda ns, m, x: 1.5 - m,
    "mask - True": lambda ns, m, x: m - True,
    "True - numbers": lambda ns, m, x: True - x,
    "numbers - True": lambda ns, m, x: x - True,
    "in place": lambda ns, m, x: x.clone().sub_(m),
    "operator in place": lambda ns, m, x: x.clone().__isub__(m),
    "sub": lambda ns, m, x: ns.sub(x, m),
    "subtract": lambda ns, m, x: x.subtract(m),
    "scaled": lambda ns, m, x: ns.sub(x, m, alpha=2),
    "scaled in place": lambda ns, m, x: x.clone().sub_(m, alpha=2),
    "rsub": lambda ns, m, x: ns.rsub(m, x),
    "rsub of a number": lambda ns, m, x: ns.rsub(m, 1),
    "out": lambda ns, m, x: ns.sub(x, m, out=x.clone()),
    "without dimensions": lambda ns, m, x: x - ns.tensor(True),
    "neg": lambda ns, m, x: -m,
    "of no elements": lambda ns, m, x: x[:0] - m[:0],
    "numbers": lambda ns, m, x: x - x,
    "mask + mask": lambda ns, m, x: m + m,
    "1 + mask": lambda ns, m, x: 1 + m,
    "xor": lambda ns, m, x: m ^ m,
    "cast": lambda ns, m, x: 1 - m.to(x.dtype),
}


@pytest.mark.parametrize("dtype", ["int64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_masks_are_not_subtracted(name: str, dtype: str, torch: ModuleType) -> None:
    """``1 - mask`` was a number here and an error in PyTorch."""

    def outcome(ns: Any, run: Any) -> Any:
        x = ns.tensor([3, 1, 2]).to(getattr(ns, dtype))
        try:
            found = run(ns, ns.tensor([True, False, True]), x)
        except RuntimeError:
            return "refused"
        return str(found.dtype).split(".")[-1], found.tolist()

    function = DIFFERENCES[name]
    expected = outcome(torch, function)
    compiled = eg.compile(lambda m, x: function(eg, m, x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for run in (function, lambda ns, m, x: compiled(m, x)):
            assert outcome(eg, run) == expected
