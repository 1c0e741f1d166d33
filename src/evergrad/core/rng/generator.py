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
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evergrad.core.exact import SIGNIFICAND_BITS, Array, c_exp, c_log, converted, fma32, fma64, libm
from evergrad.core.rng.bit_generators import MersenneTwister, Philox, unit, unit64
from evergrad.core.rng.rejection import draw_binomial, draw_poisson, draw_standard_gamma

Shape = int | Sequence[int]

DEFAULT_SEED = 67280421310721
"""The seed of a generator nobody has seeded; PyTorch's."""

_WIDE_RANGE = 1 << 28  # from this range on, PyTorch takes 64 random bits per integer

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
        self._algorithm: type[MersenneTwister] | type[Philox]
        self._algorithm = MersenneTwister if algorithm == "mt19937" else Philox
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
        self._source: MersenneTwister | Philox = self._algorithm(self._seed)
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
        if not isinstance(self._source, Philox):
            raise RuntimeError("only a philox generator has an offset")
        return self._source.offset

    @offset.setter
    def offset(self, value: int) -> None:
        if not isinstance(self._source, Philox):
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
                drawn = fma32(drawn, narrow_high - narrow_low, narrow_low)
        drawn = converted(drawn, dtype)
        if dtype.itemsize == 2 or (low, high) != (0.0, 1.0):
            bounds = converted(np.array([low, high]), dtype)
            drawn[drawn == bounds[1]] = bounds[0]
        return drawn.reshape(shape)

    def normal(
        self, shape: Shape, dtype: np.dtype[Any], mean: float = 0.0, std: float = 1.0,
        singly: bool = False,
    ) -> Array:  # fmt: skip
        """Normal; of a complex dtype, each part with the variance `std**2 / 2`.

        PyTorch draws blocks where elements lie side by side, and `singly` where they do not.
        """
        shape = _shape(shape)
        dtype = np.dtype(dtype)
        if not std >= 0.0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        if dtype.kind == "c":
            real = np.dtype(f"f{dtype.itemsize // 2}")
            parts = self.normal((*shape, 2), real, 0.0, std / math.sqrt(2.0), singly)
            centred: Array = parts.view(dtype).reshape(shape)
            return centred if mean == 0.0 else centred + dtype.type(mean)
        drawn = self._source.normals(math.prod(shape), dtype, singly)
        if drawn.dtype == np.float64:
            drawn = fma64(drawn, std, mean)
        elif (mean, std) != (0.0, 1.0):
            drawn = fma32(drawn, np.float32(std), np.float32(mean))
        return converted(drawn, dtype).reshape(shape)

    def log_normal(
        self, shape: Shape, dtype: np.dtype[Any], mean: float = 1.0, std: float = 2.0
    ) -> Array:
        """The exponential of a normal drawn in float64."""
        shape = _shape(shape)
        if not std > 0.0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
        drawn = fma64(self._source.double_normals(math.prod(shape)), std, mean)
        with np.errstate(over="ignore"):
            powers = libm(c_exp, drawn) if dtype == np.float64 else np.exp(drawn)
        return converted(powers, np.dtype(dtype)).reshape(shape)

    def exponential(self, shape: Shape, dtype: np.dtype[Any], lambd: float = 1.0) -> Array:
        """Exponential with rate `lambd`."""
        shape = _shape(shape)
        if not lambd > 0.0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
        uniforms = -unit64(self._source.words64(math.prod(shape)))
        logs = libm(math.log1p, uniforms) if dtype == np.float64 else np.log1p(uniforms)
        return converted(-1.0 / lambd * logs, np.dtype(dtype)).reshape(shape)

    def cauchy(
        self, shape: Shape, dtype: np.dtype[Any], median: float = 0.0, sigma: float = 1.0
    ) -> Array:
        """Cauchy around `median` with half width `sigma`."""
        shape = _shape(shape)
        if not sigma > 0.0:
            raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
        uniforms = unit64(self._source.words64(math.prod(shape)))
        angles = math.pi * (uniforms - 0.5)
        slopes = libm(math.tan, angles) if dtype == np.float64 else np.tan(angles)
        return converted(fma64(slopes, sigma, median), np.dtype(dtype)).reshape(shape)

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
        if dtype.name in SIGNIFICAND_BITS:
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
        return converted(signed, dtype).reshape(shape)

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
            top = 1 << SIGNIFICAND_BITS[dtype.name]
        wide = dtype.itemsize == 8
        words = self._source.words64(n) if wide else self._source.words32(n)
        if top + 1 < 1 << (64 if wide else 32):
            words = words % words.dtype.type(top + 1)
        return converted(words, dtype).reshape(shape)

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
        return (unit64(self._source.words64(n)) < p).astype(dtype).reshape(shape)

    def geometric(self, p: float, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Trials up to and including the first success of probability `p`."""
        shape = _shape(shape)
        if not 0.0 < p < 1.0:
            raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
        logs = libm(c_log, unit64(self._source.words64(math.prod(shape))))
        return converted(np.ceil(logs / math.log1p(-p)), np.dtype(dtype)).reshape(shape)

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
            scores = probs / self._exponential_like(probs)
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
        drawn = self._source.sample(len(values), lambda i, random: draw_poisson(values[i], random))
        return converted(np.array(drawn).reshape(rates.shape), rates.dtype)

    def binomial(self, count: Array, prob: Array) -> Array:
        """Successes in `count` trials, in the dtype of `count`. One Python step per element."""
        counts = count.astype(np.float64).ravel().tolist()
        probs = prob.astype(np.float64).ravel().tolist()
        drawn = self._source.sample(
            len(counts), lambda i, random: draw_binomial(counts[i], probs[i], random)
        )
        return converted(np.array(drawn).reshape(count.shape), count.dtype)

    def standard_gamma(self, alpha: Array) -> Array:
        """Gamma of scale 1 with the given shapes, in their dtype. One Python step per element."""
        shapes = alpha.astype(np.float64).ravel().tolist()
        drawn = self._source.sample(
            len(shapes), lambda i, random: draw_standard_gamma(shapes[i], random)
        )
        smallest = _smallest_normal(alpha.dtype)
        return converted(np.maximum(np.array(drawn), smallest).reshape(alpha.shape), alpha.dtype)

    # Shared pieces

    def _unit_uniforms(self, n: int, dtype: np.dtype[Any]) -> Array:
        if dtype == np.float64:
            return unit64(self._source.words64(n))
        return unit(self._source.words32(n), dtype)

    def _exponential_like(self, rows: Array) -> Array:
        """Drawn in the order in which the elements of a matrix lie in memory."""
        if 0 < rows.strides[0] < rows.strides[1]:
            return self.exponential(rows.T.shape, rows.dtype).T
        return self.exponential(rows.shape, rows.dtype)

    def _multinomial_with_replacement(self, probs: Array, num_samples: int) -> Array:
        wide = probs.astype(np.float64 if probs.dtype == np.float64 else np.float32)
        cumulative = np.cumsum(wide, axis=1, dtype=wide.dtype)
        cumulative /= cumulative[:, -1:].copy()
        cumulative[:, -1] = 1
        uniforms = unit64(self._source.words64(len(probs) * num_samples))
        drawn = np.empty((len(probs), num_samples), np.int64)
        for row, targets in enumerate(uniforms.reshape(drawn.shape)):
            drawn[row] = np.searchsorted(cumulative[row].astype(np.float64), targets, side="left")
        return drawn


def _rebuild(device: str, algorithm: str, state: npt.NDArray[np.uint8]) -> Generator:
    return Generator(device, algorithm=algorithm).set_state(state)


def _representable_range(low: int, high: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """PyTorch's narrowing of [low, high) where a bound rounds to a float outside of it."""
    digits = SIGNIFICAND_BITS[dtype.name]

    def rounded(bound: int) -> int:
        return int(converted(np.array(bound, np.float64), dtype).astype(np.float64))

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
