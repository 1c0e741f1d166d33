"""Samples of arithmetic and functions that compute each element by itself."""

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.testing.samples import (
    Array,
    between,
    booleans,
    complex_normal,
    integers,
    normal,
    positive,
    sample,
)

__all__: list[str] = []  # samples are registered, nothing is exported

inf, nan = np.inf, np.nan


def _named(name: str) -> Callable[..., object]:
    return lambda ns, *inputs: getattr(ns, name)(*inputs)


def _unary(name: str, reference: Callable[..., object], x: Array, **options: Any) -> None:
    call = _named(name)
    sample(name, call, x, reference=reference, **options)
    sample(name, call, np.array(x.flat[0]), reference=reference, **options)
    sample(name, call, x[:0], reference=reference, **options)


def _binary(
    name: str, reference: Callable[..., object], a: Array, b: Array, **options: Any
) -> None:
    """Of shapes (2, 3), whose parts make the broadcast, 0-d and empty samples."""
    call = _named(name)
    sample(name, call, a, b, reference=reference, **options)
    sample(name, call, a[:, :1], b[0], reference=reference, label="broadcast", **options)
    sample(name, call, np.array(a[0, 0]), b, reference=reference, label="scalar first", **options)
    sample(name, call, a, b[:0, None], reference=reference, label="empty", **options)


# -- casts and copies ---------------------------------------------------------------------------

sample("cast", lambda ns, x: x.to(ns.float32), normal(2, 3),
       reference=lambda x: x.astype(np.float32), smooth=False, dtypes=(),
       label="narrower")  # fmt: skip
sample("cast", lambda ns, x: x.to(ns.complex128), normal(2, 3),
       reference=lambda x: x.astype(complex), dtypes=(), label="complex")  # fmt: skip
sample("cast", lambda ns, x: x.to(ns.int32), normal(2, 3) * 3,
       reference=lambda x: x.astype(np.int32), label="truncated")  # fmt: skip
sample("cast", lambda ns, x: x.to(ns.bool), np.array([0.0, -0.0, nan, 0.3]), label="truth")
sample("cast", lambda ns, x: x.to(ns.uint8), integers(-300, 300, 5), label="wrapped")
sample("cast", lambda ns, x: x.to(ns.float64), booleans(3), label="from booleans")
sample("clone", lambda ns, x: x.clone(), normal(2, 3), reference=lambda x: x)
sample("clone", lambda ns, x: ns.clone(x), normal(), reference=lambda x: x)
sample("clone", lambda ns, x: ns.clone(x), complex_normal(2), reference=lambda x: x)
sample("clone", lambda ns, x: ns.clone(x), normal(0, 3), reference=lambda x: x)

# -- arithmetic ---------------------------------------------------------------------------------

_binary("add", np.add, normal(2, 3), normal(2, 3, seed=1))
_binary("sub", np.subtract, normal(2, 3), normal(2, 3, seed=1))
_binary("mul", np.multiply, normal(2, 3), normal(2, 3, seed=1))
_binary("div", np.divide, normal(2, 3), positive(2, 3))
for _row in ("add", "sub", "mul", "div"):
    sample(_row, _named(_row), complex_normal(2, 3), complex_normal(3, seed=2), label="complex")
    sample(_row, _named(_row), normal(2, 3), complex_normal(3), label="real and complex")
    sample(_row, _named(_row), normal(2, 3), 2.5, label="number")
    sample(_row, _named(_row), integers(1, 9, 2, 3), 3, label="integers")
sample("add", lambda ns, a, b: ns.add(a, b, alpha=0.5), normal(3), normal(3, seed=1), label="alpha")
sample("sub", lambda ns, a, b: ns.sub(a, b, alpha=2), normal(3), normal(2, 1), label="alpha")
sample("sub", lambda ns, a: 1.5 - a, normal(3), label="reflected")
sample("div", lambda ns, a: 1 / a, positive(3), label="reflected")
sample("add", lambda ns, a, b: a.clone().add_(b), normal(2, 3), normal(3, seed=1), label="in place")
sample("mul", lambda ns, a, b: a.clone().mul_(b), normal(2, 3), normal(3, seed=1), label="in place")

_divisors = np.array([[1.3, -0.7, 2.1], [0.9, 1.7, -1.9]])
_binary("floor_divide", np.floor_divide, normal(2, 3), _divisors, dtypes=())
_binary("remainder", np.remainder, normal(2, 3), _divisors, dtypes=())
_binary("fmod", np.fmod, normal(2, 3), _divisors, dtypes=())
sample("trunc_divide", lambda ns, a, b: ns.div(a, b, rounding_mode="trunc"), normal(2, 3),
       _divisors, reference=lambda a, b: np.trunc(a / b), dtypes=())  # fmt: skip
sample("floor_divide", lambda ns, a, b: ns.div(a, b, rounding_mode="floor"), integers(-9, 9, 5), 4)
sample("trunc_divide", lambda ns, a: ns.div(a, 4, rounding_mode="trunc"), integers(-9, 9, 5))
sample("remainder", lambda ns, a: a % -4, integers(-9, 9, 5), label="integers")
sample("fmod", lambda ns, a: ns.fmod(a, -4), integers(-9, 9, 5), label="integers")

_binary("pow", np.power, positive(2, 3), normal(2, 3))
sample("pow", lambda ns, x: x**3, normal(2, 3), reference=lambda x: x**3, label="cube")
sample("pow", lambda ns, x: x**-2, positive(2, 3), reference=lambda x: x**-2.0, label="negative")
sample("pow", lambda ns, x: 1.5**x, normal(2, 3), reference=lambda x: 1.5**x, label="base")
sample("pow", lambda ns, x: ns.pow(x, 2.5), positive(3), reference=lambda x: x**2.5, label="number")
sample("pow", lambda ns, a, b: ns.pow(a, b), np.zeros(5), np.array([0.0, 0.5, 1.0, 2.0, 3.0]),
       smooth=False, label="of zero")  # fmt: skip
sample("pow", lambda ns, x: ns.pow(x, 0), normal(3), label="to the zero")
sample("pow", lambda ns, x: x**0.0, np.array([0.0, inf, nan]), smooth=False, label="any to zero")
sample(
    "pow", lambda ns, a, b: ns.pow(a, b), integers(-3, 4, 6), integers(0, 4, 6), label="integers"
)
sample("pow", lambda ns, a, b: ns.pow(a, b), complex_normal(3), complex_normal(3, seed=2),
       label="complex")  # fmt: skip
sample("pow", lambda ns, x: x**2.5, complex_normal(3), label="complex to a number")
sample("square", lambda ns, x: x**2, normal(2, 3), reference=np.square, label="as a power")
_unary("square", np.square, normal(2, 3))
_unary("neg", np.negative, normal(2, 3))
_unary("reciprocal", lambda x: 1 / x, positive(2, 3))

# -- complex numbers ----------------------------------------------------------------------------

sample("conj", lambda ns, z: ns.conj(z).clone(), complex_normal(2, 3), reference=np.conj)
sample("conj", lambda ns, z: ns.conj_physical(z), complex_normal(), reference=np.conj)
sample("conj", lambda ns, z: ns.conj_physical(z), complex_normal(0, 2), reference=np.conj)
_unary("abs", np.abs, normal(2, 3))
sample("abs", lambda ns, x: abs(x), np.array([-0.0, 0.0, -inf, nan]), smooth=False, label="edges")
sample("abs_complex", lambda ns, z: ns.abs(z), complex_normal(2, 3), reference=np.abs)
sample("abs_complex", lambda ns, z: ns.abs(z), np.array([0j, 1j]), smooth=False, label="at zero")
_unary("sgn", np.sign, normal(2, 3))
sample("sgn", lambda ns, z: ns.sgn(z), complex_normal(2, 3), reference=lambda z: z / np.abs(z))
sample("sgn", lambda ns, z: ns.sgn(z), np.array([0j, 2j]), smooth=False, label="at zero")
_unary("sign", np.sign, normal(2, 3))

# -- functions ----------------------------------------------------------------------------------

_REAL_LINE: dict[str, Callable[..., object]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "sin": np.sin, "cos": np.cos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
_POSITIVE: dict[str, Callable[..., object]] = {
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p,
}  # fmt: skip
_INSIDE: dict[str, Callable[..., object]] = {
    "asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh, "tan": np.tan,
}  # fmt: skip
for _name, _function in _REAL_LINE.items():
    _unary(_name, _function, normal(2, 3))
for _name, _function in _POSITIVE.items():
    _unary(_name, _function, positive(2, 3))
for _name, _function in _INSIDE.items():
    _unary(_name, _function, between(-0.9, 0.9, 2, 3))
_unary("acosh", np.arccosh, positive(2, 3, low=1.3))
for _name in (*_REAL_LINE, *_POSITIVE, *_INSIDE, "acosh", "reciprocal", "square", "neg"):
    sample(_name, _named(_name), complex_normal(2, 3), label="complex")
for _name in ("exp", "tanh", "sigmoid", "sin", "log", "sqrt", "atan"):
    sample(_name, _named(_name), np.array([0.0, -0.0, inf, -inf, nan]), smooth=False, label="edges")
sample("sigmoid", lambda ns, x: ns.sigmoid(x), np.array([-800.0, 800.0, -30.0, 30.0]), label="far")

_binary("atan2", np.arctan2, normal(2, 3), normal(2, 3, seed=1))
_binary("hypot", np.hypot, normal(2, 3), normal(2, 3, seed=1))
sample("hypot", _named("hypot"), np.array([1e200]), np.array([1e200]), label="large", torch=False,
       reference=np.hypot, dtypes=(), smooth=False)  # fmt: skip

# -- rounding and choosing ----------------------------------------------------------------------

for _name, _function in {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}.items():
    _unary(_name, _function, normal(2, 3))
    sample(_name, _named(_name), np.array([inf, -inf, nan, -0.5]), smooth=False, label="edges")
_unary("frac", lambda x: x - np.trunc(x), normal(2, 3))
_unary("round", np.rint, normal(2, 3))
sample("round", lambda ns, x: ns.round(x), np.array([0.5, 1.5, 2.5, -0.5]), smooth=False,
       reference=np.rint, label="ties")  # fmt: skip
sample("round", lambda ns, x: ns.round(x, decimals=2), normal(2, 3), dtypes=(), label="decimals")
sample("round", lambda ns, x: ns.round(x, decimals=-1), normal(2, 3) * 30, dtypes=(), label="tens")
_unary("relu", lambda x: np.maximum(x, 0), normal(2, 3))
sample("relu", lambda ns, x: ns.relu(x), np.array([0.0, -0.0, nan]), smooth=False, label="edges")

for _name, _function in {
    "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin,
}.items():  # fmt: skip
    _binary(_name, _function, normal(2, 3), normal(2, 3, seed=1))
    sample(_name, _named(_name), np.array([1.0, nan, 2.0]), np.array([1.0, 2.0, nan]), smooth=False,
           label="ties and NaN")  # fmt: skip

sample("where", lambda ns, c, a, b: ns.where(c, a, b), booleans(2, 3), normal(2, 3),
       normal(2, 3, seed=1), reference=np.where)  # fmt: skip
sample("where", lambda ns, c, a, b: ns.where(c, a, b), booleans(2, 1), normal(3), normal(),
       reference=np.where, label="broadcast")  # fmt: skip
sample("where", lambda ns, c, a: ns.where(c, a, 0), booleans(2, 3), normal(2, 3), label="number")
sample("where", lambda ns, c, a, b: a.where(c, b), booleans(3), complex_normal(3), normal(3),
       torch=False, reference=lambda c, a, b: np.where(c, a, b), dtypes=(),
       label="method, real and complex")  # fmt: skip
sample("where", lambda ns, c, a: ns.where(c, a, ns.tensor([inf, nan, -inf], dtype=a.dtype)),
       np.array([True, True, True]), normal(3), label="not finite where not taken")  # fmt: skip
sample("where", lambda ns, c, a, b: ns.where(c, a, b), booleans(0, 3), normal(0, 3), normal(3))

sample("clamp", lambda ns, x: ns.clamp(x, -0.5, 0.7), normal(2, 3),
       reference=lambda x: np.clip(x, -0.5, 0.7))  # fmt: skip
sample("clamp", lambda ns, x: x.clip(0, 1), np.array([0.0, 1.0, nan, inf]), smooth=False,
       label="edges")  # fmt: skip
sample("clamp_min", lambda ns, x: ns.clamp(x, min=0.1), normal(2, 3),
       reference=lambda x: np.maximum(x, 0.1))  # fmt: skip
sample("clamp_max", lambda ns, x: ns.clamp(x, max=0.1), normal(2, 3),
       reference=lambda x: np.minimum(x, 0.1))  # fmt: skip
for _name in ("clamp_min", "clamp_max"):
    sample(_name, _named(_name), normal(2, 3), normal(3, seed=1), label="tensor bound")
    sample(_name, _named(_name), np.array([1.0, nan]), np.array([1.0, 2.0]), smooth=False,
           label="on the bound")  # fmt: skip
sample("clamp_min", lambda ns, x, a, b: ns.clamp(x, a, b), normal(2, 3), normal(3) - 1,
       normal(2, 1) + 2, label="two tensor bounds")  # fmt: skip
