"""Epilogues: random chains of elementwise ops over products and convolutions, with operands of
every index map. To the bit as loops of their own, near eager evaluation, on any number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import programs_of

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.codegen.elementwise_lanes import has_lanes
from evergrad.compiler.kernels.conv import select as conv_select
from evergrad.compiler.kernels.gemm import select
from evergrad.compiler.native import jit
from evergrad.compiler.passes import conv_epilogue
from evergrad.core.op import TABLE

pytestmark = [
    pytest.mark.usefixtures("made_anew"),
    pytest.mark.skipif(not jit.has_fma(), reason="no fused multiply-add on this processor"),
]

Chain = Callable[..., Any]

# Continuous ones, after which results are compared with eager mode.
_SMOOTH: dict[str, Chain] = {
    "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "elu": F.elu, "softplus": F.softplus,
    "hardswish": F.hardswish, "leaky_relu": F.leaky_relu, "tanh": eg.tanh, "sin": eg.sin,
    "cos": eg.cos, "sigmoid": eg.sigmoid, "abs": eg.abs, "neg": eg.neg, "erf": eg.erf,
    "atan": eg.atan, "asinh": eg.asinh, "log1p": lambda x: eg.log1p(x * x),
    "exp": lambda x: eg.exp(-x * x), "sqrt": lambda x: eg.sqrt(x * x + 1),
    "scaled": lambda x: x * 0.37 - 1.5, "clamp": lambda x: x.clamp(-0.7, 0.9),
    "rsqrt": lambda x: eg.rsqrt(x * x + 0.5), "hardtanh": F.hardtanh,
}  # fmt: skip
_OTHERS: dict[str, Chain] = {
    "floor": eg.floor, "sign": eg.sign, "round": eg.round, "frac": eg.frac, "log": eg.log,
    "exp2": eg.exp2, "expm1": eg.expm1, "tan": eg.tan, "acos": eg.acos, "atanh": eg.atanh,
    "lgamma": eg.lgamma, "reciprocal": eg.reciprocal, "nan_to_num": eg.nan_to_num,
    "chosen": lambda x: eg.where(x > 0.25, x, x * 2), "power": lambda x: x.abs().pow(1.3),
    "finite": lambda x: eg.where(eg.isfinite(x) & (x != 1), x, 0.5),
    "whole": lambda x: (x * 8).clamp(-99, 99).to(eg.int32) * 3 // 2 + x,
    "narrow": lambda x: x.bfloat16().to(x.dtype) + x.half().to(x.dtype),
    "wide": lambda x: (x.double() * 1.7).to(x.dtype),
}  # fmt: skip
_BINARY: dict[str, Chain] = {
    "add": eg.add, "sub": eg.sub, "mul": eg.mul, "maximum": eg.maximum, "minimum": eg.minimum,
    "hypot": eg.hypot, "lerp": lambda x, y: eg.lerp(x, y, 0.3), "reversed": lambda x, y: y - x,
    "addcmul": lambda x, y: eg.addcmul(x, x, y, value=0.5),
}  # fmt: skip
_OTHER_BINARY: dict[str, Chain] = {
    "div": eg.div, "atan2": eg.atan2, "fmod": eg.fmod, "remainder": eg.remainder,
    "copysign": eg.copysign, "chosen": lambda x, y: eg.where(y > 0, x, y), "fmax": eg.fmax,
    "xlogy": lambda x, y: eg.xlogy(y, x.abs()),
}  # fmt: skip


def _chain(source: Any, operands: int, smooth: bool) -> tuple[Chain, list[str]]:
    """One to six random ops on a value, and their names."""
    unary = _SMOOTH if smooth else _SMOOTH | _OTHERS
    binary = _BINARY if smooth else _BINARY | _OTHER_BINARY
    steps: list[tuple[Chain, int | None]] = []
    names = []
    for _ in range(source.integers(1, 7)):
        if source.random() < 0.5:
            names.append(str(source.choice(sorted(binary))))
            steps.append((binary[names[-1]], int(source.integers(operands))))
        else:
            names.append(str(source.choice(sorted(unary))))
            steps.append((unary[names[-1]], None))

    def chain(x: Any, *given: Any) -> Any:
        for function, number in steps:
            x = function(x) if number is None else function(x, given[number])
        return x

    return chain, names


def _normal(source: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    return eg.tensor(source.standard_normal(shape).astype(np.float32), dtype=dtype)


def _bits(value: Any) -> bytes:
    found = value.detach()
    if found.dtype in (eg.bfloat16, eg.float16):
        found = found.float()
    numbers = found.numpy()
    if numbers.dtype.kind == "f":  # of a NaN only that it is one
        numbers = np.where(np.isnan(numbers), np.asarray(np.nan, numbers.dtype), numbers)
    return numbers.tobytes()


def _same_for_threads(function: Chain, given: list[Any]) -> tuple[Any, Any]:
    """A compiled function and its result, the same for 1, 2 and 3 threads."""
    compiled, found = eg.compile(function), []
    for threads in (1, 2, 3):
        eg.set_num_threads(threads)
        compiled(*given)
        for program in programs_of(compiled):
            program.threads = threads
        found.append(_bits(compiled(*given)))
    assert found[0] == found[1] == found[2]
    return compiled, compiled(*given)


def _check(
    function: Chain, given: list[Any], apart: Callable[[], Any], is_fused: Callable[[str], bool],
    tolerance: float | None,
) -> None:  # fmt: skip
    compiled, result = _same_for_threads(function, given)
    labels = [i.label for program in programs_of(compiled) for i in program.instructions]
    assert any(map(is_fused, labels)), labels
    apart()
    alone = eg.compile(function)
    expected = alone(*given)
    labels = [i.label for program in programs_of(alone) for i in program.instructions]
    assert not any(map(is_fused, labels)), labels
    assert _bits(result) == _bits(expected)
    if tolerance is not None:
        exact = function(*given).double().numpy()
        np.testing.assert_allclose(result.double().numpy(), exact, rtol=tolerance, atol=tolerance)


_SIZES = [
    (1, 300, 77), (5, 33, 130), (16, 700, 65), (70, 17, 1), (64, 64, 64), (33, 65, 259),
    (257, 130, 51), (600, 40, 130), (2, 40, 1), (9, 5, 7), (300, 1100, 20), (130, 90, 1000),
]  # fmt: skip
_TOLERANCES = {eg.float32: 1e-3, eg.float64: 1e-9, eg.bfloat16: 0.2}


@pytest.mark.parametrize("dtype", list(_TOLERANCES), ids=str)
@pytest.mark.parametrize("size", range(len(_SIZES)))
def test_random_epilogues_of_products(
    size: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (m, k, n), kind = _SIZES[size], list(_TOLERANCES).index(dtype)
    source = np.random.default_rng([7, size, kind])
    smooth = bool((size + kind) % 2)
    shapes = [(m, n), (n,), (m, 1), (), (1, n), (1, 1)]
    chain, names = _chain(source, len(shapes), smooth)
    operands = [_normal(source, shape, dtype) for shape in shapes]
    x, w = _normal(source, (m, k), dtype), _normal(source, (k, n), dtype) / k**0.5

    def function(x: Any, w: Any, *operands: Any) -> Any:
        return chain(x @ w, *operands)

    def apart() -> None:
        monkeypatch.setattr(select, "_first_reader", lambda *given: None)

    try:
        _check(
            function, [x, w, *operands], apart,
            lambda label: " then " in label,
            _TOLERANCES[dtype] if smooth and dtype is not eg.bfloat16 else None,
        )  # fmt: skip
    except AssertionError as error:
        raise AssertionError(f"{names} of {m}x{k}x{n}") from error


_IMAGES = [
    ((2, 3, 9, 50), (6, 3, 3, 3), 1, "direct"), ((1, 8, 13, 9), (20, 4, 3, 3), 2, "output_lanes"),
    ((3, 40, 9, 49), (33, 40, 3, 3), 1, "winograd"),
    ((17, 5, 6, 7), (4, 5, 3, 3), 1, "batch_lanes"),
    ((2, 5, 60), (7, 5, 5), 1, "direct"), ((2, 6, 7, 60), (8, 6, 1, 1), 1, None),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [eg.float32, eg.float64], ids=str)
@pytest.mark.parametrize("image", range(len(_IMAGES)))
def test_random_epilogues_of_convolutions(
    image: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, weight, groups, algorithm = _IMAGES[image]
    if algorithm == "winograd" and dtype is not eg.float32:
        algorithm = "direct"
    if algorithm is not None:
        monkeypatch.setattr(conv_select, "_cheapest", lambda *given: algorithm)
    smooth = bool((image + (dtype is eg.float64)) % 2)
    source = np.random.default_rng([8, image, smooth])
    pixels = len(shape) - 2
    out = (shape[0], weight[0], *shape[2:])
    shapes = [out, (weight[0], *[1] * pixels), (), (1, weight[0], *[1] * pixels)]
    # On narrow images, and in float64, only cheap ops join a convolution.
    chain, names = _chain(source, len(shapes), smooth)
    operands = [_normal(source, given, dtype) for given in shapes]
    x, w = _normal(source, shape, dtype), _normal(source, weight, dtype) / 5
    convolve = F.conv2d if pixels == 2 else F.conv1d

    def function(x: Any, w: Any, *operands: Any) -> Any:
        plain = convolve(x, w, None, 1, weight[-1] // 2, 1, groups)
        return chain(F.relu(plain + operands[0]) - operands[1], *operands)

    def apart() -> None:
        monkeypatch.setattr(conv_epilogue, "fits", lambda *given: False)
        monkeypatch.setattr(select, "_first_reader", lambda *given: None)

    try:
        _check(
            function, [x, w, *operands], apart,
            lambda label: label.startswith("conv+add+relu+sub") or " then " in label,
            _TOLERANCES[dtype] if smooth else None,
        )  # fmt: skip
    except AssertionError as error:
        raise AssertionError(f"{names} of {shape}") from error


def test_every_name_in_chains_is_of_rows_with_lanes() -> None:
    """What random chains are made of: rows that an epilogue may hold."""
    known = {name for name in (*_SMOOTH, *_BINARY, *_OTHERS, *_OTHER_BINARY) if name in TABLE}
    assert len(known) > 30 and all(has_lanes(TABLE[name]) for name in known)


def _norm(x: Any, scale: Any) -> Any:
    return (x - scale) * (scale + 2)


_SUMS: dict[str, Any] = {
    "two": lambda f, s: F.relu(_norm(f(0), s) + _norm(f(1), s)),
    "the shortcut first": lambda f, s: F.relu(_norm(f(1), s) + _norm(f(0), s)),
    "plain": lambda f, s: f(0) + f(1),
    "three": lambda f, s: (f(0) + _norm(f(1), s)) * f(2).abs(),
    "one of itself": lambda f, s: F.relu(_norm(f(0), s)) + f(0),
    "in a row": lambda f, s: F.relu(F.relu(_norm(f(0), s) + f(1)) + f(2)),
    "read twice": lambda f, s: (lambda a, b: F.relu(a + b) + b * s)(_norm(f(0), s), f(1)),
}


@pytest.mark.parametrize("kind", ["convolutions", "products"])
@pytest.mark.parametrize("name", _SUMS)
def test_sums_of_several_results(name: str, kind: str) -> None:
    source = np.random.default_rng(9)
    if kind == "products":
        x, scale = _normal(source, (33, 40), eg.float32), _normal(source, (70,), eg.float32)
        weights = [_normal(source, (40, 70), eg.float32) / 6 for _ in range(3)]
        apply = eg.matmul
    else:
        x, scale = (
            _normal(source, (2, 5, 9, 50), eg.float32),
            _normal(source, (6, 1, 1), eg.float32),
        )
        weights = [_normal(source, (6, 5, 3, 3), eg.float32) / 7 for _ in range(3)]
        apply = functools.partial(F.conv2d, padding=1)

    def function(x: Any, scale: Any, *weights: Any) -> Any:
        return _SUMS[name](lambda n: apply(x, weights[n]), scale)

    compiled = eg.compile(function, fullgraph=True)
    found, expected = compiled(x, scale, *weights), function(x, scale, *weights)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-5, atol=2e-5)
