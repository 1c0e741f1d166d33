"""Samples of comparisons, logic, bits, and what kind of number an element is."""

from collections.abc import Callable

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.check import CHECK
from evergrad.testing.samples import booleans, complex_normal, integers, normal, sample

__all__: list[str] = []  # samples are registered, nothing is exported

inf, nan = np.inf, np.nan


def _named(name: str) -> Callable[..., object]:
    return lambda ns, *inputs: getattr(ns, name)(*inputs)


# -- comparisons --------------------------------------------------------------------------------

_TIES = np.array([1.0, -0.5, nan, inf, 0.0])
_COMPARISONS: dict[str, Callable[..., object]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
for _name, _function in _COMPARISONS.items():
    sample(_name, _named(_name), _TIES, _TIES[:, None], reference=_function, label="broadcast")
    sample(_name, _named(_name), _TIES, -0.5, reference=_function, label="number")
    sample(_name, _named(_name), integers(0, 5, 6), integers(0, 5, 6, seed=1), label="integers")
    sample(_name, _named(_name), integers(0, 5, 6), 2.5, label="integers and a fraction")
    sample(_name, _named(_name), np.array([44, 255], np.uint8), 300, label="wrapped number")
    sample(_name, _named(_name), booleans(4), 2, label="booleans and a number")
    sample(_name, _named(_name), normal(), normal(0, 2), reference=_function, label="empty")
for _name in ("eq", "ne"):
    sample(_name, _named(_name), complex_normal(3), complex_normal(2, 1), label="complex")
    sample(_name, _named(_name), normal(3), 1j, label="real and complex")
sample("eq", lambda ns, a: a == 1.0, _TIES, label="operator")
sample("lt", lambda ns, a: 1 > a, normal(2, 3), label="reflected")  # noqa: SIM300
sample("lt", lambda ns, a, b: a.clone().less_(b), normal(3), normal(3, seed=1), label="in place")

# -- logic --------------------------------------------------------------------------------------

_LOGIC: dict[str, Callable[..., object]] = {
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
_TRUTH = np.array([0.0, 1.5, nan, -0.0])
for _name, _function in _LOGIC.items():
    sample(_name, _named(_name), _TRUTH, _TRUTH[:, None], reference=_function, label="broadcast")
    sample(_name, _named(_name), booleans(2, 3), integers(0, 2, 3), reference=_function)
sample("logical_not", lambda ns, x: ns.logical_not(x), _TRUTH, reference=np.logical_not)
sample("logical_not", lambda ns, x: ns.logical_not(x), np.array([0j, 1j]))

_BITS: dict[str, Callable[..., object]] = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip
for _name, _function in _BITS.items():
    sample(_name, _named(_name), integers(-9, 9, 5), integers(-9, 9, 3, 1), reference=_function)
    sample(_name, _named(_name), booleans(5), booleans(5, seed=1), reference=_function)
    sample(_name, _named(_name), integers(0, 9, 5), 300, reference=_function, label="number")
sample("bitwise_and", lambda ns, a: 6 & a, integers(-9, 9, 5), label="reflected")
sample("bitwise_xor", lambda ns, a, b: a.clone().bitwise_xor_(b), integers(-9, 9, 5), booleans(5))
sample("bitwise_not", lambda ns, x: ~x, integers(-9, 9, 5), reference=np.invert)
sample("bitwise_not", lambda ns, x: ns.bitwise_not(x), booleans(5), reference=np.invert)
for _name in ("bitwise_left_shift", "bitwise_right_shift"):
    sample(_name, _named(_name), integers(-9, 9, 5), np.array([0, 1, 3, 63, 70]))
    sample(_name, _named(_name), integers(-9, 9, 5), 2, label="number")
sample("bitwise_left_shift", lambda ns, a: 1 << a, np.array([0, 3, 8]), label="reflected")

# -- what kind of number ------------------------------------------------------------------------

_KINDS = np.array([0.0, -0.0, 1.5, -2.0, inf, -inf, nan])
_QUESTIONS: dict[str, Callable[..., object]] = {
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "isposinf": np.isposinf,
    "isneginf": np.isneginf, "signbit": np.signbit,
}  # fmt: skip
for _name, _function in _QUESTIONS.items():
    sample(_name, _named(_name), _KINDS, reference=_function)
    sample(_name, _named(_name), integers(-3, 3, 4), reference=_function, label="integers")
    sample(_name, _named(_name), normal(0), reference=_function)
for _name in ("isnan", "isinf", "isfinite"):
    sample(_name, _named(_name), np.array([1 + 1j, complex(nan, 0), complex(0, inf)]))

sample("isin", lambda ns, x, among: ns.isin(x, among), integers(0, 9, 2, 3), integers(0, 9, 4),
       reference=np.isin)  # fmt: skip
sample("isin", lambda ns, x, among: ns.isin(x, among, invert=True), np.array([1.0, nan, 2.0]),
       np.array([nan, 2.0]), label="inverted")  # fmt: skip
sample("isin", lambda ns, x: ns.isin(x, 3), integers(0, 5, 6), label="number")
sample("eq", lambda ns, x, y: ns.isclose(x, y, equal_nan=True), np.array([1.0, nan, inf, 2.0]),
       np.array([1.0 + 1e-7, nan, inf, 2.1]), dtypes=(), label="isclose")  # fmt: skip

# -- checks -------------------------------------------------------------------------------------


def _checked(ns: object, condition: Tensor, *shown: object) -> object:
    message = ("found ", *((("tensor(", False, None),) * len(shown)))
    return bind(CHECK, condition, *shown, error="ValueError", message=message)


sample("check", _checked, np.array(True), torch=False, reference=lambda c: c)
sample("check", _checked, np.array(True), normal(3), torch=False, reference=lambda c, x: c)
