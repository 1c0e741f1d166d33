"""Infinities, NaN, signed zeros and subnormal numbers in many spellings: no algebraic identity,
flag of LLVM or reduction may treat them as ordinary numbers.

Every spelling is compiled alone and below sums, where an unsound identity of the optimizer shows
only after the loop is vectorized, and compared with eager evaluation and with PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

INF, NAN = math.inf, math.nan
# Columns of four rows: sums over rows meet one special value, sums over a row several.
SPECIAL = [INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 1e-30, -1e-30, 0.5, 80.0, -80.0, 1e-40,
           -1e-42, 1e-45]  # fmt: skip
ORDINARY = [1.0, -1.0, 2.5, -3.5, 0.5, 3.0, -2.0, 1.25, 0.75, -0.25, 4.0, -1.5, 2.0, 0.125, -6.0,
            1.75, -0.5]  # fmt: skip

Spelling = Callable[[Any, Any], Any]  # of a namespace and a tensor
SPELLINGS: dict[str, dict[str, Spelling]] = {
    "differences": {
        "x - x": lambda m, x: x - x,
        "x + -x": lambda m, x: x + (-x),
        "x - x * 1": lambda m, x: x - x * 1,
        "x - (x + 0)": lambda m, x: x - (x + 0),
        "2 x - x - x": lambda m, x: 2 * x - x - x,
        "(x + 1) - x": lambda m, x: (x + 1) - x,
        "-(-x)": lambda m, x: -m.neg(x),
        "0 - x": lambda m, x: 0 - x,
        "x - 0": lambda m, x: x - 0,
        "x + 0": lambda m, x: x + 0,
        "x + 0.0": lambda m, x: x + 0.0,
        "-0.0 + x": lambda m, x: -0.0 + x,
        "x + zeros": lambda m, x: x + m.zeros_like(x),
        "x - x.flip": lambda m, x: x - x.flip(0),
        "sub alpha": lambda m, x: m.sub(x, x, alpha=1),
        "add alpha 0": lambda m, x: m.add(x, x, alpha=0),
    },
    "products": {
        "x * 0": lambda m, x: x * 0,
        "0.0 * x": lambda m, x: 0.0 * x,
        "x * zeros": lambda m, x: x * m.zeros_like(x),
        "x * -0.0": lambda m, x: x * -0.0,
        "x * 1": lambda m, x: x * 1,
        "x * ones": lambda m, x: x * m.ones_like(x),
        "x * -1": lambda m, x: x * -1,
        "x * mask": lambda m, x: x * (x > 0),
        "x * (x == x)": lambda m, x: x * (x == x).float(),
        "sign * abs": lambda m, x: x.sign() * x.abs(),
        "addcmul 0": lambda m, x: m.addcmul(x, x, x, value=0),
        "x * 2 * 0.5": lambda m, x: x * 2 * 0.5,
        "lerp 0": lambda m, x: m.lerp(x, x.flip(0), 0.0),
        "lerp 1": lambda m, x: m.lerp(x, x.flip(0), 1.0),
    },
    "quotients": {
        "x / x": lambda m, x: x / x,
        "0 / x": lambda m, x: 0 / x,
        "x / 1": lambda m, x: x / 1,
        "x / -1": lambda m, x: x / -1,
        "x / 2": lambda m, x: x / 2,
        "x / 3": lambda m, x: x / 3,
        "x / 0": lambda m, x: x / 0,
        "x / inf": lambda m, x: x / INF,
        "1 / (1 / x)": lambda m, x: 1 / (1 / x.clamp(-1e3, 1e3)),
        "x * (1 / x)": lambda m, x: x * (1 / x),
        "x % 1": lambda m, x: (x % 1).abs(),
        "x // x": lambda m, x: x // x,
        "fmod": lambda m, x: m.fmod(x, 2),
        "addcdiv 0": lambda m, x: m.addcdiv(x, x, x, value=0),
    },
    "powers": {
        "x**0": lambda m, x: x**0,
        "x**zeros": lambda m, x: x.pow(m.zeros_like(x)),
        "x**1": lambda m, x: x**1,
        "x**2": lambda m, x: x**2,
        "x**3": lambda m, x: x**3,
        "x**0.5": lambda m, x: x**0.5,
        "x**-1": lambda m, x: x.clamp(-1e3, 1e3) ** -1,
        "x**inf": lambda m, x: x**INF,
        "x**nan": lambda m, x: x**NAN,
        "1**x": lambda m, x: 1**x,
        "0**x": lambda m, x: 0.0**x,
        "x**x": lambda m, x: x**x,
        "sqrt(x**2)": lambda m, x: x.square().sqrt(),
        "sqrt(x)**2": lambda m, x: x.sqrt() ** 2,
        "rsqrt": lambda m, x: x.rsqrt(),
    },
    "selections": {
        "where x == x": lambda m, x: m.where(x == x, x, m.zeros_like(x)),
        "where x != x": lambda m, x: m.where(x != x, m.ones_like(x), x),
        "where x > 0": lambda m, x: m.where(x > 0, x, -x),
        "where x < 0": lambda m, x: m.where(x < 0, -x, x),
        "where x >= 0": lambda m, x: m.where(x >= 0, x, m.zeros_like(x)),
        "where not x > 0": lambda m, x: m.where(~(x > 0), m.zeros_like(x), x),
        "where same": lambda m, x: m.where(x > 0, x, x),
        "x == x": lambda m, x: (x == x).float(),
        "x < x": lambda m, x: (x < x).float(),
        "not x <= flipped": lambda m, x: (~(x <= x.flip(0))).float(),
        "masked_fill": lambda m, x: x.masked_fill(x.isnan(), 2.0),
        "nan_to_num": lambda m, x: x.nan_to_num(1.0, 2.0, 3.0),
        "isfinite": lambda m, x: x.isfinite().float(),
        "copysign": lambda m, x: m.copysign(m.ones_like(x), m.where(x.isnan(), 1.0, x)),
        "signbit": lambda m, x: m.signbit(m.where(x.isnan(), 1.0, x)).float(),
        "heaviside": lambda m, x: m.heaviside(x, x.flip(0)),
    },
    "extremes": {
        "maximum": lambda m, x: m.maximum(x, x.flip(0)),
        "minimum": lambda m, x: m.minimum(x, x.flip(0)),
        "maximum of itself": lambda m, x: m.maximum(x, x),
        "maximum of opposites": lambda m, x: m.maximum(x, -x),
        "fmax": lambda m, x: m.fmax(x, x.flip(0)),
        "fmin": lambda m, x: m.fmin(x, x.flip(0)),
        "clamp": lambda m, x: x.clamp(-1, 1),
        "clamp to infinity": lambda m, x: x.clamp(-INF, INF),
        "clamp by nan": lambda m, x: x.clamp(NAN, 1.0),
        "clamp swapped": lambda m, x: x.clamp(1, -1),
        "clamp min": lambda m, x: x.clamp(min=0),
        "clamp max": lambda m, x: x.clamp(max=0),
        "relu": lambda m, x: x.relu(),
        "relu6": lambda m, x: m.nn.functional.relu6(x),
        "amax": lambda m, x: x.amax(0, keepdim=True) + 0 * x,
        "cummax": lambda m, x: x.cummax(0)[0],
    },
    "functions": {
        "exp": lambda m, x: x.exp(),
        "log": lambda m, x: x.log(),
        "log(exp)": lambda m, x: x.exp().log(),
        "log1p": lambda m, x: x.log1p(),
        "expm1": lambda m, x: x.expm1(),
        "tanh": lambda m, x: x.tanh(),
        "sigmoid": lambda m, x: x.sigmoid(),
        "logsigmoid": lambda m, x: m.nn.functional.logsigmoid(x),
        "softplus": lambda m, x: m.nn.functional.softplus(x),
        "silu": lambda m, x: m.nn.functional.silu(x),
        "elu": lambda m, x: m.nn.functional.elu(x),
        "leaky": lambda m, x: m.nn.functional.leaky_relu(x, 0.0),
        "erf": lambda m, x: x.erf(),
        "atan2": lambda m, x: m.atan2(x, x.flip(0)),
        "hypot": lambda m, x: m.hypot(x, x.flip(0)),
        "logaddexp": lambda m, x: m.logaddexp(x, x.flip(0)),
        "xlogy": lambda m, x: m.xlogy(x, x.flip(0)),
        "floor": lambda m, x: x.floor(),
        "round": lambda m, x: x.round(),
        "double": lambda m, x: x.double().float(),
    },
}  # fmt: skip
# Where one zero is as good as the other: IEEE 754 leaves the sign of an extreme of two zeros open,
# and eager mode gives NumPy's.
ANY_ZERO = {"extremes"}
# More accurate here: PyTorch multiplies by a reciprocal, which is infinite for subnormal numbers.
REFINED = {"0 / x"}
TINY = float(np.finfo(np.float32).tiny)


def matrix() -> Any:
    """Every special value alone in its column, all of them in a row."""
    rows = np.array([SPECIAL, ORDINARY, ORDINARY[::-1], ORDINARY], np.float32)
    return np.ascontiguousarray(rows)


def assert_same(found: Any, expected: Any, name: str, signs: bool = False) -> None:
    """Equal in infinities, NaN and signs of zeros; subnormal results may be flushed to zero, and
    sums are off by roundings."""
    found, expected = (np.asarray(v, np.float64).reshape(-1) for v in (found, expected))
    least = 1e-5 if found.size < matrix().size else TINY
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=least, err_msg=name)
    zeros = (found == 0) & (expected == 0) & signs
    same = np.signbit(found[zeros]) == np.signbit(expected[zeros])
    assert same.all(), f"{name}: a zero of the other sign"


def spelled(kind: str, namespace: Any, x: Any) -> list[Any]:
    """Every spelling, its sums over each dimension and the whole, and its largest element."""
    made = []
    for spelling in SPELLINGS[kind].values():
        value = spelling(namespace, x)
        made += [value, value.sum(0), value.sum(1), value.sum(), value.mean(), value.amax()]
    return made


def names(kind: str) -> list[str]:
    forms = ("", ".sum(0)", ".sum(1)", ".sum()", ".mean()", ".amax()")
    return [f"{name}{form}" for name in SPELLINGS[kind] for form in forms]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", SPELLINGS)
def test_special_values(kind: str, torch: ModuleType) -> None:
    x = matrix()
    compiled = eg.compile(lambda x: spelled(kind, eg, x))(eg.tensor(x))
    eager = spelled(kind, eg, eg.tensor(x))
    peers = spelled(kind, torch, torch.from_numpy(x))
    for name, *values in zip(names(kind), compiled, eager, peers, strict=True):
        found, expected, peer = (v.numpy() for v in values)
        assert_same(found, expected, f"compiled {name}", signs=kind not in ANY_ZERO)
        if name.split(".")[0] not in REFINED:
            assert_same(expected, peer, f"eager {name}")


SUBNORMAL: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: x * 1e-10,
    "sum": lambda x: (x * 1e-10).sum(),
    "difference": lambda x: x * 1e-10 - x * 3e-11,
    "square": lambda x: x * x,
    "norm": lambda x: (x * 1e-10).norm() * 1e30,
    "mean": lambda x: (x * 1e-10).mean(0),
    "decay": lambda x: x * 1e-10 * 0.9 + 1e-41,
    "product of matrices": lambda x: (x * 1e-10) @ x.T.relu().sign(),
    "quotient": lambda x: x / 1e9,
    "half": lambda x: (x.half() * 1e-7).float(),
}


@pytest.mark.parametrize("name", SUBNORMAL)
def test_subnormal_numbers(name: str, torch: ModuleType) -> None:
    """They were flushed to zero in programs, and kept by eager mode and PyTorch."""
    x = np.logspace(-33, -22, 40 * 8, dtype=np.float32).reshape(40, 8)
    program = SUBNORMAL[name]
    expected = program(torch.from_numpy(x)).numpy()
    before = eg.get_num_threads()
    for run in (program, eg.compile(program)):
        for threads in (1, 2):
            eg.set_num_threads(threads)
            found = run(eg.tensor(x)).numpy()
            eg.set_num_threads(before)
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=6e-45)


def test_subnormal_numbers_are_flushed_on_demand() -> None:
    x = eg.full((1 << 16,), 1e-30)
    ways = (lambda x: x * 1e-10, eg.compile(lambda x: x * 1e-10))
    try:
        assert eg.set_flush_denormal(True)
        assert [float(way(x).amax()) for way in ways] == [0.0, 0.0]
    finally:
        assert eg.set_flush_denormal(False)
    assert all(float(way(x).amax()) > 9e-41 for way in ways)


SUMS: dict[str, Callable[[Any], Any]] = {
    "x - x": lambda x: x - x, "x + -x": lambda x: x + -x, "2x - x - x": lambda x: 2 * x - x - x,
    "x * 3 - x * 3": lambda x: x * 3 - x * 3, "(x + 1) - x": lambda x: (x + 1) - x,
    "x - (x + 1)": lambda x: x - (x + 1), "x * 0": lambda x: x * 0, "x / x": lambda x: x / x,
    "x * -1 + x": lambda x: x * -1 + x, "x * 0.5 - x / 2": lambda x: x * 0.5 - x / 2,
}  # fmt: skip
REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda y: y.sum(), "sum(0)": lambda y: y.sum(0), "sum(1)": lambda y: y.sum(1),
    "mean": lambda y: y.mean(), "norm": lambda y: y.norm(), "cumsum": lambda y: y.cumsum(1)[:, -1],
    "var": lambda y: y.var(), "logsumexp": lambda y: y.logsumexp(1), "prod": lambda y: y.prod(),
    "softmax": lambda y: y.softmax(1).sum(1),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3000)])
def test_terms_do_not_cancel_in_reductions(shape: tuple[int, int], dtype: str) -> None:
    """LLVM looked through the additions of a sum that may be reordered and cancelled ``x - x``,
    although that subtraction itself allows no such thing: 0 instead of NaN."""

    def step(x: Any) -> list[Any]:
        return [reduce(f(x)) for f in SUMS.values() for reduce in REDUCTIONS.values()]

    compiled = eg.compile(step)
    for special in (INF, -INF, NAN):
        x = eg.ones(shape)
        x[1, shape[1] // 2] = special
        x = x.to(getattr(eg, dtype))
        every = [f"{reduction} of {f}" for f in SUMS for reduction in REDUCTIONS]
        for name, a, b in zip(every, compiled(x), step(x), strict=True):
            a, b = (v.double().numpy() for v in (a, b))
            np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2, err_msg=f"{name} {special}")


@pytest.mark.parametrize("special", [INF, -INF, NAN])
def test_gradients_keep_special_values(special: float) -> None:
    """The derivative of ``(x - x) * x`` is ``x - x``, and it is summed over a broadcast."""

    def step(w: Any, x: Any) -> Any:
        y = (x * w - x * w + w) * x
        return eg.autograd.grad(y.sum(), w)[0]

    x = eg.ones(64, 5)
    x[3, 2] = special
    w = eg.ones(5, requires_grad=True)
    expected, found = step(w, x).numpy(), eg.compile(step)(w, x).numpy()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.isnan(expected).sum() == 1
