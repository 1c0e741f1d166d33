"""Random numbers in the cheapest form that gives those of eager evaluation.

Draws from a Mersenne twister become words, which a kernel generates, and elementwise equations of
them, which fuse with what reads the numbers. Masks are stored as bytes. From a counter-based
generator masks are not stored at all but computed from a stream position at each use; its other
numbers are left to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from evergrad.compiler.kernels.random_rows import (
    COUNTED_CHANCE,
    NORMAL_BLOCKS,
    NORMAL_SINGLES,
    PERMUTED,
    RANDOM_WORDS,
    STREAM_POSITION,
    is_counted,
)
from evergrad.compiler.passes.rewriter import rewrite, specialize
from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import dtype
from evergrad.core.exact import SIGNIFICAND_BITS
from evergrad.core.op import Op
from evergrad.core.rng.bit_generators import WIDE_PERMUTATION, normal_words
from evergrad.core.rng.generator import WIDE_RANGE, representable_range
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import constant
from evergrad.ops.rows.elementwise.basic import CAST, exp, log1p, where
from evergrad.ops.rows.movement.views import permute, reshape
from evergrad.ops.rows.random.draws import (
    ANY_INTEGERS,
    BERNOULLI,
    CHANCE,
    EXPONENTIAL,
    INTEGERS,
    LOG_NORMAL,
    MULTINOMIAL,
    NORMAL,
    PERMUTATION,
    UNIFORM,
    integer_limits,
)
from evergrad.ops.rows.reduce.extrema import argmax
from evergrad.ops.rows.reduce.sort import topk
from evergrad.ops.rows.reduce.sums import any as any_of

_FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
_NARROW_WORD = 0xFFFFFFFF
# Fewer normal numbers than this are drawn one by one.
_LEAST_BLOCKS = 16
# Rows whose arguments are tensors; those of others are numbers.
_OF_TENSORS = (BERNOULLI, MULTINOMIAL)


def lower_random(graph: Graph) -> Graph:
    """The graph with random numbers that kernels draw and loops compute."""
    if not any(eqn.op is CHANCE or eqn.op in WORD_DRAWS for eqn in graph.equations):
        return graph
    return rewrite(graph, lambda trace, eqn, args, env: _lowered(trace, eqn, args))


def _lowered(trace: Trace, eqn: Equation, args: Args) -> Sequence[Var] | None:
    if not eqn.outs[0].type.numel:
        return None
    if eqn.op is CHANCE:
        return _mask(trace, eqn)
    rule = WORD_DRAWS.get(eqn.op)
    if rule is None or is_counted(eqn.attrs["generator"]):
        return None
    if any(isinstance(a, Var) for a in args) and eqn.op not in _OF_TENSORS:
        return None  # a number that the program is given
    operands = [fresh(a, a.type) if isinstance(a, Var) else a for a in args]
    found = rule(_Draw(eqn), *operands)
    return None if found is None else (found._value,)


# -- masks --------------------------------------------------------------------------------------


def _mask(trace: Trace, eqn: Equation) -> Sequence[Var] | None:
    size, dtype, generator = (eqn.attrs[name] for name in ("size", "dtype", "generator"))
    (keep,) = eqn.args
    if is_counted(generator):
        start = _emit(trace, STREAM_POSITION, (), count=prod(size), generator=generator)
        return _emit(trace, COUNTED_CHANCE, start, keep=keep, size=size, dtype=dtype)
    if dtype is dtypes.bool_:
        return None
    mask = _emit(trace, CHANCE, (keep,), size=size, dtype=dtypes.bool_, generator=generator)
    return _emit(trace, CAST, mask, dtype=dtype)


def _emit(trace: Trace, op: Op, args: Sequence[object], **attrs: object) -> tuple[Var, ...]:
    return trace.emit(specialize(op, *args, **attrs), tuple(args), None)


# -- words and uniforms -------------------------------------------------------------------------


class _Draw:
    """What an equation draws: its words, and uniforms and normals made of them."""

    def __init__(self, eqn: Equation) -> None:
        self.type = eqn.outs[0].type
        self.attrs = eqn.attrs
        self.source = {
            "row": eqn.op.name, "drawn": self.type.numel, "generator": eqn.attrs["generator"]
        }  # fmt: skip

    def words(self, count: int, is_wide: bool) -> Tensor:
        kind = dtypes.int64 if is_wide else dtypes.int32
        made: Tensor = bind(RANDOM_WORDS, count=count, dtype=kind, **self.source)
        return made

    def wide_words(self, count: int) -> Tensor:
        """Words of 64 bits, stored with the high half first."""
        words = self.words(count, True)
        return (words << 32) | ((words >> 32) & _NARROW_WORD)

    def units(self, count: int, kind: dtype) -> Tensor:
        """Uniforms in [0, 1): of 53 bits for float64, of 24 bits in float32 else."""
        if kind is dtypes.float64:
            bits = self.wide_words(count) & ((1 << 53) - 1)
            return cast(bits, dtypes.float64) * 2.0**-53
        return cast(self.words(count, False) & 0xFFFFFF, dtypes.float32) * 2.0**-24

    def exponentials(self, count: int, kind: dtype, rate: float) -> Tensor:
        logs = log1p(-self.units(count, dtypes.float64))
        return _converted(logs * (-1.0 / rate), kind)

    def normals(self, count: int, kind: dtype, mean: float, std: float, singly: bool) -> Tensor:
        if count < _LEAST_BLOCKS or singly:
            singles = bind(NORMAL_SINGLES, count=count, mean=mean, std=std, **self.source)
            return _converted(singles, kind)
        is_wide = kind is dtypes.float64
        words = self.words(normal_words(count, kind.itemsize), is_wide)
        return _converted(bind(NORMAL_BLOCKS, words, count=count, mean=mean, std=std), kind)


def _converted(x: Tensor, kind: dtype) -> Tensor:
    """To 16 bits by way of float32, as eager evaluation converts."""
    if kind.itemsize == 2 and x.dtype is dtypes.float64:
        x = cast(x, dtypes.float32)
    return x if x.dtype is kind else cast(x, kind)


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x._type.shape == shape else reshape(x, shape)


def _rounded(value: float, kind: dtype) -> float:
    narrow = np.float32(value) if kind.itemsize == 2 else value
    return float(np.asarray(narrow).astype(kind.np))


# -- the rows -----------------------------------------------------------------------------------


def _uniform(draw: _Draw, low: float, high: float) -> Tensor | None:
    kind, count = draw.type.dtype, draw.type.numel
    is_unit = (low, high) == (0.0, 1.0)
    if kind not in _FLOATS or low > high or (kind is dtypes.float64 and low != 0.0):
        return None  # the product and the sum of float64 are rounded once
    samples = draw.units(count, kind)
    if not is_unit:
        span = high - low
        if kind is not dtypes.float64:
            span, low_32 = float(np.float32(high) - np.float32(low)), float(np.float32(low))
            samples = cast(cast(samples, dtypes.float64) * span + low_32, dtypes.float32)
        else:
            samples = samples * span
    samples = _converted(samples, kind)
    if kind.itemsize == 2 or not is_unit:
        bounds = _rounded(low, kind), _rounded(high, kind)
        samples = where(samples == bounds[1], constant((), bounds[0], kind), samples)
    return _shaped(samples, draw.type.shape)


def _normal(draw: _Draw, mean: float, std: float, singly: bool = False) -> Tensor | None:
    kind, count = draw.type.dtype, draw.type.numel
    if kind not in _FLOATS or not std >= 0.0:
        return None
    return _shaped(draw.normals(count, kind, mean, std, singly), draw.type.shape)


def _log_normal(draw: _Draw, mean: float, std: float) -> Tensor | None:
    kind = draw.type.dtype
    if kind is dtypes.float64 or kind not in _FLOATS or not std > 0.0:
        return None  # float64 takes the C library's exponential
    normals = draw.normals(draw.type.numel, dtypes.float64, mean, std, True)
    return _shaped(_converted(exp(normals), kind), draw.type.shape)


def _exponential(draw: _Draw, rate: float) -> Tensor | None:
    kind = draw.type.dtype
    if kind is dtypes.float64 or kind not in _FLOATS or not rate > 0.0:
        return None  # float64 takes the C library's logarithm
    return _shaped(draw.exponentials(draw.type.numel, kind, rate), draw.type.shape)


def _integers(draw: _Draw, low: int, high: int) -> Tensor | None:
    kind = draw.type.dtype
    if kind.np.name in SIGNIFICAND_BITS:
        low, high = representable_range(low, high, kind.np)
    if not 0 < high - low < WIDE_RANGE or kind.is_complex:
        return None  # a remainder of unsigned words of 64 bits
    words = cast(draw.words(draw.type.numel, False), dtypes.int64) & _NARROW_WORD
    found = words % (high - low) + low
    return _shaped(_converted(found, kind), draw.type.shape)


def _any_integers(draw: _Draw) -> Tensor | None:
    kind = draw.type.dtype
    if kind is dtypes.int64:
        found = draw.wide_words(draw.type.numel) & ((1 << 63) - 1)
    elif kind.itemsize < 8 and not kind.is_complex:
        digits = SIGNIFICAND_BITS.get(kind.np.name)
        top = integer_limits(kind)[1] if digits is None else 1 << digits
        words = cast(draw.words(draw.type.numel, False), dtypes.int64) & _NARROW_WORD
        found = words % (top + 1)
    else:
        return None
    return _shaped(_converted(found, kind), draw.type.shape)


def _permutation(draw: _Draw) -> Tensor | None:
    count = draw.type.numel
    if not 1 < count < WIDE_PERMUTATION:
        return None
    return cast(bind(PERMUTED, draw.words(count - 1, False)), draw.type.dtype)


def _bernoulli(draw: _Draw, p: Tensor) -> Tensor | None:
    require(
        (p >= 0) & (p <= 1), RuntimeError,
        lambda: "bernoulli expects every probability to be in [0, 1]",
    )  # fmt: skip
    units = draw.units(draw.type.numel, p.dtype).reshape(draw.type.shape)
    return cast(units < cast(p, units.dtype), draw.type.dtype)


def _multinomial(draw: _Draw, probs: Tensor) -> Tensor | None:
    count, replacement = draw.attrs["count"], draw.attrs["replacement"]
    rows, categories = probs._type.shape
    is_one = count == 1
    if probs.dtype is dtypes.float64 or (replacement and not is_one) or not 0 < count <= categories:
        return None
    message = "invalid multinomial distribution"
    require((probs >= 0) & (probs < float("inf")), RuntimeError, lambda: message)
    require(any_of(probs > 0, 1), RuntimeError, lambda: message)
    strides = probs.layout_array().strides
    if 0 < strides[0] < strides[1]:  # drawn in the order of memory
        drawn = draw.exponentials(rows * categories, probs.dtype, 1.0)
        drawn = permute(drawn.reshape(categories, rows), (1, 0))
    else:
        drawn = draw.exponentials(rows * categories, probs.dtype, 1.0).reshape(rows, categories)
    scores = probs / drawn
    if is_one:
        return argmax(scores, 1, keepdim=True)
    found: Tensor = topk(scores, count, 1).indices
    return found


# For a row: a function of the draw and the row's arguments, or ``None`` to leave it to NumPy.
WORD_DRAWS: dict[Op, Callable[..., Tensor | None]] = {
    UNIFORM: _uniform,
    NORMAL: _normal,
    LOG_NORMAL: _log_normal,
    EXPONENTIAL: _exponential,
    INTEGERS: _integers,
    ANY_INTEGERS: _any_integers,
    PERMUTATION: _permutation,
    BERNOULLI: _bernoulli,
    MULTINOMIAL: _multinomial,
}
