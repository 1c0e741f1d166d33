"""Random streams on raw NumPy arrays: the `Generator` and the distributions it can draw.

This module owns the state of a generator and the map from its random words to numbers. It knows
nothing of tensors, tracing or the default generator: every draw returns a fresh NumPy array.

Two algorithms share one interface.

`mt19937` (the default) gives the numbers PyTorch gives on CPU for the same seed and the same
sequence of calls, bit for bit. That fixes choices which would otherwise look arbitrary: how many
words a draw consumes, which word is the high one, where a product and a sum are fused. Known
differences, none of which moves the stream (but for a rejection decided by a last bit):
- `standard_gamma` of float32 is computed in float64 and agrees to about 5e-6;
- `multinomial` without replacement breaks ties by index, PyTorch in no promised order (they occur
  with float16 and bfloat16, or with fewer positive weights than samples);
- PyTorch's own last bits depend on the processor; matched are its kernels for x86 with AVX2;
- 1 in about 2^29 exponential, cauchy or log_normal float32 draws may differ in the last bit.

`philox` (Philox4x32-10) is counter based. A call that draws `n` numbers owns the counters
`offset ... offset + blocks - 1`, where `offset` is the state at the call, and moves the offset past
them. Word `k` of the call is word `k % 4` of the block with counter `offset + k // 4`, so the value
at element `i` depends on (seed, offset, i) alone. Setting `Generator.offset` goes back to a call,
or into the middle of it, to compute a mask or a part of it again:

| draw                                            | words of element i              |
|-------------------------------------------------|---------------------------------|
| uniform in float32, float16, bfloat16           | word i                          |
| uniform in float64, exponential, cauchy,        | words 2i (high) and 2i + 1      |
| geometric, bernoulli of a scalar                |                                 |
| bernoulli of an array                           | as uniform in the array's dtype |
| integers, range below 2^28 (otherwise 64 bits)  | word i (otherwise 2i, 2i + 1)   |
| normal, log_normal                              | those of the pair (i, i ^ 1)    |
| poisson, binomial, standard_gamma               | counter offset + i, round above |

For the last row the attempts of the rejection method are numbered in the upper 64 bits of the
128-bit counter. `randperm` sorts 64-bit words, and with them the permutation depends on `n` too.
"""

from __future__ import annotations

import math
import operator
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = int | Sequence[int]

DEFAULT_SEED = 67280421310721
"""The seed of a generator nobody has seeded; PyTorch's."""

_SIGNIFICAND_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_WIDE_RANGE = 1 << 28  # from this range on, PyTorch takes 64 random bits per integer
_CHUNK = 1 << 14  # elements per pass of the long elementwise chains: they stay in cache


# Exact arithmetic -----------------------------------------------------------------------------
#
# PyTorch's kernels are compiled with fused multiply-add, so `r * (b - a) + a` rounds once.


def _fma32(a: Array, b: Array | np.float32, c: Array | np.float32) -> Array:
    """`a * b + c` of float32 operands rounded once: the product is exact in float64."""
    product = a.astype(np.float64)
    product *= b
    product += c
    return product.astype(np.float32)


def _split(a: Array) -> tuple[Array, Array]:
    """Two halves of 26 bits whose sum is `a` (Veltkamp)."""
    scaled = a * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def fma64(a: Array, b: float, c: float | Array) -> Array:
    """`a * b + c` of float64 operands rounded once (Dekker's product, Knuth's sum)."""
    if b == 1.0 or not np.any(c):
        return a * b + c
    factor = np.asarray(b, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        product = a * factor
        a_high, a_low = _split(a)
        b_high, b_low = _split(factor)
        product_error = a_low * b_low - (
            ((product - a_high * b_high) - a_low * b_high) - a_high * b_low
        )
        total = product + c
        back = total - product
        total_error = (product - (total - back)) + (c - back)
        fused: Array = total + (total_error + product_error)
    # Splitting overflows near the largest numbers; there the plain sum has to do.
    return np.where(np.isfinite(fused), fused, total)


def _libm(function: Callable[[float], float], values: Array) -> Array:
    """`function` of the C library, elementwise: NumPy's vector code differs in the last bit."""
    flat = map(function, values.ravel().tolist())
    return np.fromiter(flat, np.float64, count=values.size).reshape(values.shape)


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """Float results as `dtype`; to 16 bits by way of float32, as C++ converts."""
    if dtype.itemsize == 2 and dtype.name in _SIGNIFICAND_BITS:
        values = values.astype(np.float32, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype, copy=False)


# Box-Muller -----------------------------------------------------------------------------------

_LOG_POLYNOMIAL = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_SIN_POLYNOMIAL = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS_POLYNOMIAL = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_PI_OVER_4 = (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8)


def _horner32(coefficients: Sequence[float], x: Array) -> Array:
    """The polynomial with the highest coefficient first, each step a float32 fused multiply-add.

    `x` holds float32 values in float64, and so does the result: keeping the wide type between the
    steps saves half of the conversions.
    """
    value = np.full_like(x, np.float32(coefficients[0]))
    narrow = np.empty(x.shape, np.float32)
    for coefficient in coefficients[1:]:
        value *= x
        value += np.float32(coefficient)
        narrow[...] = value
        value[...] = narrow
    return value


def _log32(x: Array) -> Array:
    """Cephes `logf` on float32 in (0, 1], with the roundings of PyTorch's vector code."""
    mantissa, exponent = np.frexp(x)
    below = mantissa < np.float32(math.sqrt(0.5))
    power = (exponent - below).astype(np.float32)
    m = (mantissa - np.float32(1)) + np.where(below, mantissa, np.float32(0))
    square = m * m
    y = _horner32(_LOG_POLYNOMIAL, m.astype(np.float64)).astype(np.float32) * m
    y = _fma32(y, square, power * np.float32(-2.12194440e-4))
    y = _fma32(square, np.float32(-0.5), y)
    return _fma32(power, np.float32(0.693359375), m + y)


def _sincos32(x: Array) -> tuple[Array, Array]:
    """Cephes `sinf` and `cosf` on float32 in [0, 2 pi), rounded as PyTorch's vector code does."""
    octant = (x * np.float32(4 / math.pi)).astype(np.int32)
    octant += octant & 1
    turns = octant.astype(np.float32)
    for part in _PI_OVER_4:
        x = _fma32(turns, np.float32(-part), x)
    square = x * x
    wide = square.astype(np.float64)
    sine = _horner32(_SIN_POLYNOMIAL, wide).astype(np.float32) * square
    sine = _fma32(sine, x, x)
    cosine = _horner32(_COS_POLYNOMIAL, wide).astype(np.float32) * square
    cosine = _fma32(cosine, square, square * np.float32(-0.5)) + np.float32(1)
    swap = (octant & 2) != 0
    sin = np.where(swap, cosine, sine)
    cos = np.where(swap, sine, cosine)
    sin *= 1 - ((octant & 4) >> 1).astype(np.float32)
    cos *= 1 - ((octant + 2 & 4) >> 1).astype(np.float32)
    return sin, cos


def _box_muller(radius: Array, angle: Array) -> tuple[Array, Array]:
    """Two independent normals from two uniforms in [0, 1), in the uniforms' precision.

    Both precisions use arithmetic that does not depend on the machine's vector unit.
    """
    radius, angle = np.ascontiguousarray(radius), np.ascontiguousarray(angle)
    if radius.dtype == np.float64:
        length = np.sqrt(-2.0 * _libm(math.log, 1.0 - radius))
        theta = 2.0 * math.pi * angle
        return length * _libm(math.cos, theta), length * _libm(math.sin, theta)
    first, second = np.empty(radius.size, np.float32), np.empty(radius.size, np.float32)
    for start in range(0, radius.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        length = np.sqrt(np.float32(-2) * _log32(np.float32(1) - radius.reshape(-1)[part]))
        sin, cos = _sincos32(np.float32(2 * math.pi) * angle.reshape(-1)[part])
        np.multiply(length, cos, out=first[part])
        np.multiply(length, sin, out=second[part])
    return first.reshape(radius.shape), second.reshape(radius.shape)


# Sources of words -----------------------------------------------------------------------------


class _Scalars(Protocol):
    """Uniforms and normals one at a time, for methods that reject."""

    def uniform(self) -> float: ...

    def normal(self) -> float: ...


class _Twister:
    """mt19937 seeded from one word, and the sine PyTorch keeps for the next lone normal."""

    name = "mt19937"
    code = 0

    def __init__(self, seed: int) -> None:
        # RandomState, unlike numpy's Generator, promises never to change its streams.
        self.state = np.random.RandomState(seed & 0xFFFFFFFF)
        self.spare: float | None = None

    def words32(self, n: int) -> Array:
        return self.state.randint(0, 1 << 32, size=n, dtype=np.uint32)

    def words64(self, n: int) -> Array:
        """Two words each, the first in the high half."""
        return self.state.randint(0, 1 << 64, size=n, dtype=np.uint64)

    def double_normals(self, n: int) -> Array:
        """Normals drawn one by one in float64, the spare sine first."""
        fresh = n if self.spare is None else n - 1
        pairs = (fresh + 1) // 2
        uniforms = _unit64(self.words64(2 * pairs)).reshape(pairs, 2)
        length = np.sqrt(-2.0 * _libm(math.log1p, -uniforms[:, 1]))
        theta = 2.0 * math.pi * uniforms[:, 0]
        drawn = np.empty(2 * pairs + 1)
        drawn[1::2] = length * _libm(math.cos, theta)
        drawn[2::2] = length * _libm(math.sin, theta)
        if self.spare is None:
            drawn = drawn[1:]
        else:
            drawn[0] = self.spare
        self.spare = float(drawn[n]) if len(drawn) > n else None
        return drawn[:n]

    def normals(self, n: int, dtype: np.dtype[Any]) -> Array:
        """Standard normals; float32 for every dtype but float64, and float64 for few of any."""
        if n < 16:
            return self.double_normals(n)
        tail = 0 if n % 16 == 0 else 16
        whole = n - n % 16
        if dtype.itemsize == 2:  # 16-bit numbers are drawn block by block
            uniforms = _unit(self.words32(whole + tail), dtype)
        else:
            count = n + tail
            words = self.words64(count) if dtype == np.float64 else self.words32(count)
            uniforms = _unit(words, dtype)
        blocks = np.concatenate([uniforms[:whole], uniforms[len(uniforms) - tail :]])
        blocks = blocks.reshape(-1, 2, 8)
        cos, sin = _box_muller(blocks[:, 0], blocks[:, 1])
        drawn = np.stack([cos, sin], axis=1).reshape(-1)
        if tail == 0:
            return drawn
        # The last 16 numbers come from fresh uniforms and overwrite part of the block before.
        return np.concatenate([drawn[: n - 16], drawn[-16:]])

    def permutation(self, n: int) -> list[int] | Array:
        """Forward Fisher-Yates: element i changes places with i + word % (n - i)."""
        if n < 2:
            return list(range(n))
        words = self.words32(n - 1) if n < 0xFFFFFFFF // 20 else self.words64(n - 1)
        steps = np.arange(n - 1, dtype=np.uint64)
        partners = steps + words % (np.uint64(n) - steps)
        order = list(range(n))
        for i, j in enumerate(partners.tolist()):
            order[i], order[j] = order[j], order[i]
        return order

    def sample(self, n: int, one: Callable[[int, _Scalars], float]) -> list[float]:
        scalars = _TwisterScalars(self)
        drawn = [one(i, scalars) for i in range(n)]
        scalars.close()
        return drawn

    def pack(self) -> bytes:
        _, key, position, _, _ = self.state.get_state(legacy=True)
        spare = 0.0 if self.spare is None else self.spare
        words = np.asarray(key, dtype="<u4").tobytes()
        return struct.pack("<?dI", self.spare is not None, spare, position) + words

    def unpack(self, packed: bytes) -> None:
        has_spare, spare, position = struct.unpack_from("<?dI", packed)
        key = np.frombuffer(packed, dtype="<u4", offset=struct.calcsize("<?dI"))
        self.state.set_state(("MT19937", key.astype(np.uint32), position, 0, 0.0))
        self.spare = spare if has_spare else None


class _TwisterScalars:
    """Float64 uniforms of a twister one by one, read ahead in bulk and given back on `close`."""

    def __init__(self, twister: _Twister) -> None:
        self.twister = twister
        self.start = twister.state.get_state(legacy=True)
        self.ready: list[float] = []
        self.used = 0

    def uniform(self) -> float:
        if self.used == len(self.ready):
            ahead = max(64, min(len(self.ready), 1 << 16))
            self.ready.extend(_unit64(self.twister.words64(ahead)).tolist())
        self.used += 1
        return self.ready[self.used - 1]

    def normal(self) -> float:
        spare = self.twister.spare
        if spare is not None:
            self.twister.spare = None
            return spare
        theta = 2.0 * math.pi * self.uniform()
        length = math.sqrt(-2.0 * math.log1p(-self.uniform()))
        self.twister.spare = length * math.sin(theta)
        return length * math.cos(theta)

    def close(self) -> None:
        self.twister.state.set_state(self.start)
        self.twister.words64(self.used)


_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(low: Array, high: int, key: int) -> Array:
    """Ten rounds of Philox on 128-bit counters `high << 64 | low`: (n,) uint64 to (n, 4) uint32."""
    c0, c1 = low & _LOW_WORD, low >> _HALF
    c2 = np.full_like(low, high & 0xFFFFFFFF)
    c3 = np.full_like(low, high >> 32)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        first, second = c0 * _PHILOX_MULTIPLIERS[0], c2 * _PHILOX_MULTIPLIERS[1]
        c0 = (second >> _HALF) ^ c1 ^ np.uint64(k0)
        c2 = (first >> _HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & _LOW_WORD, first & _LOW_WORD
        k0, k1 = (k0 + _PHILOX_WEYL[0]) & 0xFFFFFFFF, (k1 + _PHILOX_WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


class _Philox:
    """Philox4x32-10: the seed is the key, the offset counts the blocks handed out."""

    name = "philox"
    code = 1

    def __init__(self, seed: int) -> None:
        self.key = seed
        self.offset = 0

    def blocks(self, count: int, high: int = 0, start: int | None = None) -> Array:
        """The (count, 4) words from counter `start` on; without a start they are consumed."""
        if start is None:
            start = self.offset
            self.offset = (self.offset + count) % (1 << 64)
        words = np.empty((count, 4), np.uint32)
        for first in range(0, count, _CHUNK):
            part = np.arange(first, min(first + _CHUNK, count), dtype=np.uint64)
            words[first : first + _CHUNK] = philox4x32(part + np.uint64(start), high, self.key)
        return words

    def words32(self, n: int) -> Array:
        return self.blocks(-(-n // 4)).reshape(-1)[:n]

    def words64(self, n: int) -> Array:
        words = self.words32(2 * n).astype(np.uint64)
        return words[0::2] << _HALF | words[1::2]

    def double_normals(self, n: int) -> Array:
        return self.normals(n, np.dtype(np.float64))

    def normals(self, n: int, dtype: np.dtype[Any]) -> Array:
        """Elements 2j and 2j + 1 are the cosine and the sine of one Box-Muller pair."""
        even = n + n % 2
        words = self.words64(even) if dtype == np.float64 else self.words32(even)
        uniforms = _unit(words, dtype)
        drawn = np.stack(_box_muller(uniforms[0::2], uniforms[1::2]), axis=1)
        return drawn.reshape(-1)[:n]

    def permutation(self, n: int) -> list[int] | Array:
        return np.argsort(self.words64(n), kind="stable")

    def sample(self, n: int, one: Callable[[int, _Scalars], float]) -> list[float]:
        drawn: list[float] = []
        for first in range(0, n, _CHUNK):
            start = (self.offset + first) % (1 << 64)
            scalars = _PhiloxScalars(self, start, min(_CHUNK, n - first))
            for i in range(first, first + scalars.count):
                scalars.move_to(i - first)
                drawn.append(one(i, scalars))
        self.offset = (self.offset + n) % (1 << 64)
        return drawn

    def pack(self) -> bytes:
        return struct.pack("<Q", self.offset)

    def unpack(self, packed: bytes) -> None:
        (self.offset,) = struct.unpack("<Q", packed)


class _PhiloxScalars:
    """Float64 uniforms per element: two in each round, and the round is the counter's high half."""

    def __init__(self, philox: _Philox, start: int, count: int) -> None:
        self.philox, self.start, self.count = philox, start, count
        self.rounds: list[list[float]] = []
        self.move_to(0)

    def move_to(self, element: int) -> None:
        self.element = element
        self.used = 0

    def uniform(self) -> float:
        turn, which = divmod(self.used, 2)
        if turn == len(self.rounds):
            # The high half starts at 1: round 0 belongs to the draws that do not reject.
            words = self.philox.blocks(self.count, high=turn + 1, start=self.start)
            wide = words.reshape(-1).astype(np.uint64)
            self.rounds.append(_unit64(wide[0::2] << _HALF | wide[1::2]).tolist())
        self.used += 1
        return self.rounds[turn][2 * self.element + which]

    def normal(self) -> float:
        theta = 2.0 * math.pi * self.uniform()
        return math.sqrt(-2.0 * math.log1p(-self.uniform())) * math.cos(theta)


def _unit64(words: Array) -> Array:
    """The low 53 of 64 bits as a float64 in [0, 1). Overwrites the words."""
    words &= np.uint64((1 << 53) - 1)
    uniforms = words.astype(np.float64)
    uniforms *= 2.0**-53
    return uniforms


def _unit(words: Array, dtype: np.dtype[Any]) -> Array:
    """Uniforms in [0, 1): 53 bits of words64 for float64, 24 bits of words32 else."""
    if dtype == np.float64:
        return _unit64(words)
    words &= np.uint32((1 << 24) - 1)
    uniforms = words.astype(np.float32)
    uniforms *= np.float32(2.0**-24)
    return uniforms


# Methods that reject --------------------------------------------------------------------------


def _poisson(rate: float, random: _Scalars) -> float:
    """Products of uniforms below 10, Hörmann's transformed rejection PTRS from there on."""
    if rate == 0.0:
        return 0.0
    if rate < 10.0:
        limit, product, count = math.exp(-rate), random.uniform(), 0
        while product > limit:
            product *= random.uniform()
            count += 1
        return float(count)
    root, log_rate = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    accept = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u, v = random.uniform() - 0.5, random.uniform()
        margin = 0.5 - abs(u)
        if margin == 0.0:
            continue
        k = math.floor((2.0 * a / margin + b) * u + rate + 0.43)
        if margin >= 0.07 and v <= accept:
            return float(k)
        if k < 0 or (margin < 0.013 and v > margin):
            continue
        score = _log(v) + math.log(inverse_alpha) - math.log(a / (margin * margin) + b)
        if score <= -rate + k * log_rate - math.lgamma(k + 1):
            return float(k)


_STIRLING_TAIL = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def _stirling_tail(k: float) -> float:
    """What Stirling's formula leaves out of log(k!)."""
    if k <= 9:
        return _STIRLING_TAIL[int(k)]
    square = (k + 1.0) * (k + 1.0)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0)


def _binomial(count: float, prob: float, random: _Scalars) -> float:
    """Geometric gaps for a small mean, Hörmann's transformed rejection BTRS for a large one."""
    if count <= 0.0 or prob <= 0.0:
        return 0.0
    if prob >= 1.0:
        return count
    if prob > 0.5:
        return count - _binomial(count, 1.0 - prob, random)
    if math.isnan(count) or math.isnan(prob):
        return math.nan
    if count * prob >= 10.0:
        return _binomial_btrs(count, prob, random)
    total, successes, log_miss = 0.0, 0, math.log1p(-prob)
    while True:
        gap = _log(random.uniform()) / log_miss
        total += math.ceil(gap) if gap < math.inf else gap
        if total > count:
            return float(successes)
        successes += 1


def _binomial_btrs(count: float, prob: float, random: _Scalars) -> float:
    spread = math.sqrt(count * prob * (1.0 - prob))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    c = count * prob + 0.5
    accept = 0.92 - 4.2 / b
    odds = prob / (1.0 - prob)
    alpha = (2.83 + 5.1 / b) * spread
    mode = math.floor((count + 1.0) * prob)
    while True:
        u, v = random.uniform() - 0.5, random.uniform()
        margin = 0.5 - abs(u)
        if margin == 0.0:
            continue
        k = math.floor((2.0 * a / margin + b) * u + c)
        if margin >= 0.07 and v <= accept:
            return float(k)
        if k < 0 or k > count:
            continue
        score = _log(v * alpha / (a / (margin * margin) + b))
        bound = (
            (mode + 0.5) * math.log((mode + 1.0) / (odds * (count - mode + 1.0)))
            + (count + 1.0) * math.log((count - mode + 1.0) / (count - k + 1.0))
            + (k + 0.5) * math.log(odds * (count - k + 1.0) / (k + 1.0))
            + _stirling_tail(mode)
            + _stirling_tail(count - mode)
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        if score <= bound:
            return float(k)


def _standard_gamma(alpha: float, random: _Scalars) -> float:
    """Marsaglia and Tsang's method; shapes below 1 are boosted from alpha + 1."""
    scale = 1.0
    if alpha < 1.0:
        if alpha == 0.0:
            return 0.0
        scale = math.pow(1.0 - random.uniform(), 1.0 / alpha)
        alpha += 1.0
    d = alpha - float(np.float32(1.0 / 3.0))
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = random.normal()
        y = 1.0 + c * x
        if y <= 0.0:
            continue
        v = y * y * y
        u = 1.0 - random.uniform()
        square = x * x
        if u < 1.0 - 0.0331 * square * square:
            return scale * d * v
        if math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v


# The generator --------------------------------------------------------------------------------

_HEADER = struct.Struct("<8sBQ")
_MAGIC = b"evergrad"


def _check_seed(seed: int) -> int:
    try:
        value = operator.index(seed)
    except TypeError:
        raise TypeError(f"manual_seed expects an int, but got {type(seed).__name__}") from None
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"manual_seed expects a seed in [-2**63, 2**64), but got {value}")
    return value % (1 << 64)


def _shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class Generator:
    """A stream of random numbers with PyTorch's methods, and draws that return NumPy arrays.

    >>> Generator().manual_seed(0).uniform((2,), np.dtype(np.float32))
    array([0.4962566, 0.7682218], dtype=float32)

    A generator belongs to its user: draws from several threads at once are not synchronised.
    """

    def __init__(self, device: object = "cpu", *, algorithm: str = "mt19937") -> None:
        if str(device) != "cpu":
            raise RuntimeError(f"Generator only exists for device 'cpu', but got {device!s}")
        if algorithm not in ("mt19937", "philox"):
            raise ValueError(f"algorithm must be 'mt19937' or 'philox', but got {algorithm!r}")
        self.device = "cpu"
        self._algorithm: type[_Twister] | type[_Philox]
        self._algorithm = _Twister if algorithm == "mt19937" else _Philox
        self.manual_seed(DEFAULT_SEED)

    def __repr__(self) -> str:
        return f"<evergrad.Generator device={self.device} algorithm={self.algorithm}>"

    # Seed and state

    @property
    def algorithm(self) -> str:
        return self._algorithm.name

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` again. Negative seeds count back from 2**64."""
        self._seed = _check_seed(seed)
        self._source: _Twister | _Philox = self._algorithm(self._seed)
        return self

    def seed(self) -> int:
        """Take a fresh seed from the operating system and return it."""
        self.manual_seed(int.from_bytes(os.urandom(8)))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> npt.NDArray[np.uint8]:
        """The whole state as bytes, in a private layout that `set_state` understands."""
        packed = _HEADER.pack(_MAGIC, self._algorithm.code, self._seed) + self._source.pack()
        return np.frombuffer(packed, dtype=np.uint8).copy()

    def set_state(self, state: npt.ArrayLike) -> Generator:
        """Continue from what `get_state` gave; the algorithm has to be the same."""
        array = np.asarray(state)
        if array.dtype != np.uint8:
            raise TypeError(f"expected the generator state as uint8, but got {array.dtype}")
        packed = array.tobytes()
        expected = len(self.get_state())
        if len(packed) != expected or not packed.startswith(_MAGIC):
            raise RuntimeError(
                f"Expected a {self.algorithm} generator state of size {expected} "
                f"but found the input RNG state size to be {len(packed)}"
            )
        _, _, seed = _HEADER.unpack_from(packed)
        self.manual_seed(seed)
        self._source.unpack(packed[_HEADER.size :])
        return self

    def clone_state(self) -> Generator:
        """A new generator at the same point of the same stream."""
        return Generator(self.device, algorithm=self.algorithm).set_state(self.get_state())

    def __copy__(self) -> Generator:
        return self.clone_state()

    def __deepcopy__(self, memo: dict[int, Any]) -> Generator:
        return self.clone_state()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.device, self.algorithm, self.get_state())

    @property
    def offset(self) -> int:
        """Blocks of counter space handed out so far (philox)."""
        if not isinstance(self._source, _Philox):
            raise RuntimeError("only a philox generator has an offset")
        return self._source.offset

    @offset.setter
    def offset(self, value: int) -> None:
        if not isinstance(self._source, _Philox):
            raise RuntimeError("only a philox generator has an offset")
        self._source.offset = operator.index(value) % (1 << 64)

    # Continuous distributions

    def uniform(
        self, shape: Shape, dtype: np.dtype[Any], low: float = 0.0, high: float = 1.0
    ) -> Array:
        """Uniform in [low, high). What rounds up to `high` becomes `low`."""
        shape = _shape(shape)
        dtype = np.dtype(dtype)
        if low > high:
            raise RuntimeError(
                f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
            )
        if dtype.kind == "c":
            real = np.dtype(f"f{dtype.itemsize // 2}")
            return self.uniform((*shape, 2), real, low, high).view(dtype).reshape(shape)
        n = math.prod(shape)
        drawn = self._unit_uniforms(n, dtype)
        if (low, high) != (0.0, 1.0):
            if dtype == np.float64:
                drawn = fma64(drawn, high - low, low)
            else:
                narrow_low, narrow_high = np.float32(low), np.float32(high)
                drawn = _fma32(drawn, narrow_high - narrow_low, narrow_low)
        drawn = _cast(drawn, dtype)
        if dtype.itemsize == 2 or (low, high) != (0.0, 1.0):
            bounds = _cast(np.array([low, high]), dtype)
            drawn[drawn == bounds[1]] = bounds[0]
        return drawn.reshape(shape)

    def normal(
        self, shape: Shape, dtype: np.dtype[Any], mean: float = 0.0, std: float = 1.0
    ) -> Array:
        """Normal; of a complex dtype, each part with the variance `std**2 / 2`."""
        shape = _shape(shape)
        dtype = np.dtype(dtype)
        if not std >= 0.0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        if dtype.kind == "c":
            real = np.dtype(f"f{dtype.itemsize // 2}")
            parts = self.normal((*shape, 2), real, 0.0, std / math.sqrt(2.0))
            centred: Array = parts.view(dtype).reshape(shape)
            return centred if mean == 0.0 else centred + dtype.type(mean)
        drawn = self._source.normals(math.prod(shape), dtype)
        if drawn.dtype == np.float64:
            drawn = fma64(drawn, std, mean)
        elif (mean, std) != (0.0, 1.0):
            drawn = _fma32(drawn, np.float32(std), np.float32(mean))
        return _cast(drawn, dtype).reshape(shape)

    def log_normal(
        self, shape: Shape, dtype: np.dtype[Any], mean: float = 1.0, std: float = 2.0
    ) -> Array:
        """The exponential of a normal drawn in float64."""
        shape = _shape(shape)
        if not std > 0.0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
        drawn = fma64(self._source.double_normals(math.prod(shape)), std, mean)
        with np.errstate(over="ignore"):
            powers = _libm(_exp, drawn) if dtype == np.float64 else np.exp(drawn)
        return _cast(powers, np.dtype(dtype)).reshape(shape)

    def exponential(self, shape: Shape, dtype: np.dtype[Any], lambd: float = 1.0) -> Array:
        """Exponential with rate `lambd`."""
        shape = _shape(shape)
        if not lambd > 0.0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
        uniforms = -_unit64(self._source.words64(math.prod(shape)))
        logs = _libm(math.log1p, uniforms) if dtype == np.float64 else np.log1p(uniforms)
        return _cast(-1.0 / lambd * logs, np.dtype(dtype)).reshape(shape)

    def cauchy(
        self, shape: Shape, dtype: np.dtype[Any], median: float = 0.0, sigma: float = 1.0
    ) -> Array:
        """Cauchy around `median` with half width `sigma`."""
        shape = _shape(shape)
        if not sigma > 0.0:
            raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
        uniforms = _unit64(self._source.words64(math.prod(shape)))
        angles = math.pi * (uniforms - 0.5)
        slopes = _libm(math.tan, angles) if dtype == np.float64 else np.tan(angles)
        return _cast(fma64(slopes, sigma, median), np.dtype(dtype)).reshape(shape)

    # Discrete distributions

    def randint(self, low: int, high: int, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Integers in [low, high), as any dtype; ranges may reach 2**64."""
        shape = _shape(shape)
        span = high - low
        if span <= 0:
            raise RuntimeError(
                f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
            )
        dtype = np.dtype(dtype)
        if dtype.name in _SIGNIFICAND_BITS:
            low, high = _representable_range(low, high, dtype)
            span = high - low
        n = math.prod(shape)
        if span < _WIDE_RANGE:
            words = (self._source.words32(n) % np.uint32(span)).astype(np.uint64)
        else:
            words = self._source.words64(n)
        if span < 1 << 64:
            words %= np.uint64(span)
            words += np.uint64(low % (1 << 64))  # wraps as two's complement
        signed = words if low >= 1 << 63 or high > 1 << 63 else words.view(np.int64)
        return _cast(signed, dtype).reshape(shape)

    def random_full(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """What `random_()` draws: every integer from 0 the dtype holds without a gap."""
        shape = _shape(shape)
        dtype = np.dtype(dtype)
        n = math.prod(shape)
        if dtype.kind == "b":
            top = 1
        elif dtype.kind in "iu":
            top = int(np.iinfo(dtype).max)
        else:
            top = 1 << _SIGNIFICAND_BITS[dtype.name]
        wide = dtype.itemsize == 8
        words = self._source.words64(n) if wide else self._source.words32(n)
        if top + 1 < 1 << (64 if wide else 32):
            words = words % words.dtype.type(top + 1)
        return _cast(words, dtype).reshape(shape)

    def randperm(self, n: int, dtype: np.dtype[Any] | type = np.int64) -> Array:
        """A permutation of 0 ... n - 1."""
        return np.asarray(self._source.permutation(n)).astype(dtype)

    def bernoulli(
        self, p: float | Array, shape: Shape, dtype: np.dtype[Any] | type = np.bool_
    ) -> Array:
        """1 with probability `p`, else 0. An array `p` has the shape already.

        The uniform compared with a scalar `p` has 53 bits; with an array it has as many as the
        array's dtype asks for, so the dtype of `p` is part of the stream.
        """
        shape = _shape(shape)
        n = math.prod(shape)
        if isinstance(p, np.ndarray):
            if not np.all((p >= 0) & (p <= 1)):
                raise RuntimeError("bernoulli expects every probability to be in [0, 1]")
            uniforms = self._unit_uniforms(n, p.dtype).reshape(shape)
            return (uniforms < p.astype(uniforms.dtype, copy=False)).astype(dtype)
        if not 0.0 <= p <= 1.0:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
        return (_unit64(self._source.words64(n)) < p).astype(dtype).reshape(shape)

    def geometric(self, p: float, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Trials up to and including the first success of probability `p`."""
        shape = _shape(shape)
        if not 0.0 < p < 1.0:
            raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
        logs = _libm(_log, _unit64(self._source.words64(math.prod(shape))))
        return _cast(np.ceil(logs / math.log1p(-p)), np.dtype(dtype)).reshape(shape)

    def multinomial(self, probs: Array, num_samples: int, replacement: bool = False) -> Array:
        """`num_samples` categories for each row of weights: (rows, k) to (rows, num_samples).

        One sample, or samples without replacement, are the largest of weight / exponential;
        samples with replacement are looked up in the row's cumulative sum.
        """
        categories = probs.shape[1]
        if num_samples <= 0:
            raise RuntimeError("cannot sample n_sample <= 0 samples")
        if not replacement and num_samples > categories:
            raise RuntimeError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
            )
        if not np.all((probs >= 0) & (probs < np.inf)):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not np.all(np.any(probs > 0, axis=1)):
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        if replacement and num_samples > 1:
            return self._multinomial_with_replacement(probs, num_samples)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            scores = probs / self.exponential(probs.shape, probs.dtype)
        if num_samples == 1:
            best: Array = np.argmax(scores, axis=1, keepdims=True)
            return best.astype(np.int64)
        order = np.argsort(-scores, axis=1, kind="stable")
        return order[:, :num_samples].astype(np.int64)

    def poisson(self, rates: Array) -> Array:
        """Counts with the given rates, in the rates' dtype. One Python step per element."""
        if not np.all(rates >= 0):
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
        values = rates.astype(np.float64).ravel().tolist()
        drawn = self._source.sample(len(values), lambda i, random: _poisson(values[i], random))
        return _cast(np.array(drawn).reshape(rates.shape), rates.dtype)

    def binomial(self, count: Array, prob: Array) -> Array:
        """Successes in `count` trials, in the dtype of `count`. One Python step per element."""
        counts = count.astype(np.float64).ravel().tolist()
        probs = prob.astype(np.float64).ravel().tolist()
        drawn = self._source.sample(
            len(counts), lambda i, random: _binomial(counts[i], probs[i], random)
        )
        return _cast(np.array(drawn).reshape(count.shape), count.dtype)

    def standard_gamma(self, alpha: Array) -> Array:
        """Gamma of scale 1 with the given shapes, in their dtype. One Python step per element."""
        shapes = alpha.astype(np.float64).ravel().tolist()
        drawn = self._source.sample(
            len(shapes), lambda i, random: _standard_gamma(shapes[i], random)
        )
        smallest = _smallest_normal(alpha.dtype)
        return _cast(np.maximum(np.array(drawn), smallest).reshape(alpha.shape), alpha.dtype)

    # Shared pieces

    def _unit_uniforms(self, n: int, dtype: np.dtype[Any]) -> Array:
        if dtype == np.float64:
            return _unit64(self._source.words64(n))
        return _unit(self._source.words32(n), dtype)

    def _multinomial_with_replacement(self, probs: Array, num_samples: int) -> Array:
        wide = probs.astype(np.float64 if probs.dtype == np.float64 else np.float32)
        cumulative = np.cumsum(wide, axis=1, dtype=wide.dtype)
        cumulative /= cumulative[:, -1:].copy()
        cumulative[:, -1] = 1
        uniforms = _unit64(self._source.words64(len(probs) * num_samples))
        drawn = np.empty((len(probs), num_samples), np.int64)
        for row, targets in enumerate(uniforms.reshape(drawn.shape)):
            drawn[row] = np.searchsorted(cumulative[row].astype(np.float64), targets, side="left")
        return drawn


def _rebuild(device: str, algorithm: str, state: npt.NDArray[np.uint8]) -> Generator:
    return Generator(device, algorithm=algorithm).set_state(state)


def _representable_range(low: int, high: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """PyTorch's narrowing of [low, high) where a bound rounds to a float outside of it."""
    digits = _SIGNIFICAND_BITS[dtype.name]

    def rounded(bound: int) -> int:
        return int(_cast(np.array(bound, np.float64), dtype).astype(np.float64))

    def spacing(bound: int) -> int:
        return 1 << max(0, abs(bound).bit_length() - digits)

    if high <= rounded(high - 1) < 1 << 63:
        high = rounded(high - 1) - spacing(high - 1)
    if rounded(low + 1) < low:
        low = rounded(low + 1) + spacing(low + 1)
    return low, high


def _smallest_normal(dtype: np.dtype[Any]) -> float:
    """Draws that underflow stop here, so that their logarithm is finite."""
    if dtype.name == "bfloat16":
        return float(np.finfo(np.float32).smallest_normal)
    return float(np.finfo(dtype).smallest_normal)
