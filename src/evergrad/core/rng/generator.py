"""Random sampling on NumPy arrays: the `Generator` and its distributions.

This module owns the map from the random words of a bit generator to numbers. It depends on no
tensors, traces or default generators: every sample is a new NumPy array.

Two algorithms share one interface.

`mt19937` (the default) gives the numbers PyTorch gives on CPU for the same seed and the same
sequence of calls, bit for bit. That fixes choices which would otherwise look arbitrary: how many
words a sample consumes, which word is the high one, where a product and a sum are fused. Known
differences, none of which shifts the stream (but for a rejection decided by a last bit):
- `standard_gamma` of float32 is computed in float64 and agrees to about 5e-6;
- `multinomial` without replacement breaks ties by index, PyTorch in no promised order (they occur
  with float16 and bfloat16, or with fewer positive weights than samples);
- PyTorch's own last bits depend on the processor; matched are its kernels for x86 with AVX2;
- 1 in about 2^29 exponential, cauchy or log_normal float32 samples may differ in the last bit.

`philox` (Philox4x32-10) is counter based. A call that samples `n` numbers uses the counters
`offset ... offset + blocks - 1`, where `offset` is the state at the call, and advances the offset
past them. Word `k` of the call is word `k % 4` of the block with counter `offset + k // 4`, so the
value at element `i` depends on (seed, offset, i) alone. Setting `Generator.offset` goes back to a
call, or into the middle of it, to recompute a mask or a part of it:

| distribution                                    | words of element i              |
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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evergrad.core.exact import SIGNIFICAND_BITS, Array, c_exp, c_log, converted, fma32, fma64, libm
from evergrad.core.rng.bit_generators import unit, unit64
from evergrad.core.rng.rejection import sample_binomial, sample_poisson, sample_standard_gamma
from evergrad.core.rng.seeded_stream import SeededStream

Shape = int | Sequence[int]

WIDE_RANGE = 1 << 28  # from this range on, PyTorch takes 64 random bits per integer


def _shape(shape: Shape) -> tuple[int, ...]:
    if shape.__class__ is tuple:
        return shape
    return (shape,) if isinstance(shape, int) else tuple(shape)


class Generator(SeededStream):
    """A stream of random numbers with PyTorch's methods; samples are NumPy arrays.

    >>> Generator().manual_seed(0).uniform((2,), np.dtype(np.float32))
    array([0.4962566, 0.7682218], dtype=float32)

    A generator is not synchronised: it must not be used by several threads at once.
    """

    def __repr__(self) -> str:
        return f"<evergrad.Generator device={self.device} algorithm={self.algorithm}>"

    def __reduce__(self) -> tuple[Callable[[str, str, Array], Generator], tuple[str, str, Array]]:
        return _rebuild, (self.device, self.algorithm, self.get_state())

    # Continuous distributions

    def uniform(
        self, shape: Shape, dtype: np.dtype[np.generic], low: float = 0.0, high: float = 1.0
    ) -> Array:
        """Uniform in [low, high). A number that rounds up to `high` becomes `low`."""
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
        samples = self._unit_uniforms(n, dtype)
        if low == 0.0 and high == 1.0 and samples.dtype is dtype:
            return samples.reshape(shape)
        if (low, high) != (0.0, 1.0):
            if dtype == np.float64:
                samples = fma64(samples, high - low, low)
            else:
                narrow_low, narrow_high = np.float32(low), np.float32(high)
                samples = fma32(samples, narrow_high - narrow_low, narrow_low)
        samples = converted(samples, dtype)
        if dtype.itemsize == 2 or (low, high) != (0.0, 1.0):
            bounds = converted(np.array([low, high]), dtype)
            samples[samples == bounds[1]] = bounds[0]
        return samples.reshape(shape)

    def normal(
        self, shape: Shape, dtype: np.dtype[np.generic], mean: float = 0.0, std: float = 1.0,
        singly: bool = False,
    ) -> Array:  # fmt: skip
        """Normal; of a complex dtype, each part with the variance `std**2 / 2` around `mean`.

        PyTorch samples contiguous tensors in blocks, and others one by one (`singly`).
        """
        shape = _shape(shape)
        dtype = np.dtype(dtype)
        if not std >= 0.0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        if dtype.kind == "c":
            real = np.dtype(f"f{dtype.itemsize // 2}")
            parts = self.normal((*shape, 2), real, mean, std / math.sqrt(2.0), singly)
            paired: Array = parts.view(dtype).reshape(shape)
            return paired
        samples = self._source.normals(math.prod(shape), dtype, singly)
        if samples.dtype == np.float64:
            samples = samples + 0.0 if (mean, std) == (0.0, 1.0) else fma64(samples, std, mean)
        elif (mean, std) != (0.0, 1.0):
            samples = fma32(samples, np.float32(std), np.float32(mean))
        return converted(samples, dtype).reshape(shape)

    def log_normal(
        self, shape: Shape, dtype: np.dtype[np.generic], mean: float = 1.0, std: float = 2.0
    ) -> Array:
        """The exponential of a normal sampled in float64."""
        shape = _shape(shape)
        if not std > 0.0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
        samples = fma64(self._source.double_normals(math.prod(shape)), std, mean)
        with np.errstate(over="ignore"):
            powers = libm(c_exp, samples) if dtype == np.float64 else np.exp(samples)
        return converted(powers, np.dtype(dtype)).reshape(shape)

    def exponential(self, shape: Shape, dtype: np.dtype[np.generic], lambd: float = 1.0) -> Array:
        """Exponential with rate `lambd`."""
        shape = _shape(shape)
        if not lambd > 0.0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
        uniforms = -unit64(self._source.words64(math.prod(shape)))
        logs = libm(math.log1p, uniforms) if dtype == np.float64 else np.log1p(uniforms)
        return converted(-1.0 / lambd * logs, np.dtype(dtype)).reshape(shape)

    def cauchy(
        self, shape: Shape, dtype: np.dtype[np.generic], median: float = 0.0, sigma: float = 1.0
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

    def randint(self, low: int, high: int, shape: Shape, dtype: np.dtype[np.generic]) -> Array:
        """Integers in [low, high), as any dtype; ranges may reach 2**64."""
        shape = _shape(shape)
        span = high - low
        if span <= 0:
            raise RuntimeError(
                f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
            )
        dtype = np.dtype(dtype)
        if dtype.name in SIGNIFICAND_BITS:
            low, high = representable_range(low, high, dtype)
            span = high - low
        n = math.prod(shape)
        if span < WIDE_RANGE:
            words = self._source.words32(n)
            words %= np.uint32(span)
            words = words.astype(np.uint64)
            if low == 0 and dtype == np.int64:
                return words.view(np.int64).reshape(shape)
        else:
            words = self._source.words64(n)
        if span < 1 << 64:
            words %= np.uint64(span)
            words += np.uint64(low % (1 << 64))  # wraps as two's complement
        signed = words if low >= 1 << 63 or high > 1 << 63 else words.view(np.int64)
        return converted(signed, dtype).reshape(shape)

    def random_full(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Integers of `random_()`: all from 0 up that the dtype represents without a gap."""
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

    def randperm(self, n: int, dtype: np.dtype[np.generic] | type = np.int64) -> Array:
        """A permutation of 0 ... n - 1."""
        return np.asarray(self._source.permutation(n)).astype(dtype)

    def bernoulli(
        self, p: float | Array, shape: Shape, dtype: np.dtype[np.generic] | type = np.bool_
    ) -> Array:
        """1 with probability `p`, else 0. An array `p` has the shape already.

        The uniform compared with a scalar `p` has 53 bits; with an array it has as many as the
        array's dtype has, so the dtype of `p` decides how many words are consumed.
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

    def geometric(self, p: float, shape: Shape, dtype: np.dtype[np.generic]) -> Array:
        """Trials up to and including the first success of probability `p`."""
        shape = _shape(shape)
        if not 0.0 < p < 1.0:
            raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
        logs = libm(c_log, unit64(self._source.words64(math.prod(shape))))
        return converted(np.ceil(logs / math.log1p(-p)), np.dtype(dtype)).reshape(shape)

    def multinomial(self, probs: Array, num_samples: int, replacement: bool = False) -> Array:
        """`num_samples` categories for each row of a weight matrix: (n, k) to (n, num_samples).

        One sample, or samples without replacement, are the largest of weight / exponential;
        samples with replacement are found in the cumulative sum by binary search.
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
        """Counts with the given rates, in the rates' dtype. One Python call per element."""
        if not np.all(rates >= 0):
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
        values = rates.astype(np.float64).ravel().tolist()
        samples = self._source.sample(
            len(values), lambda i, random: sample_poisson(values[i], random)
        )
        return converted(np.array(samples).reshape(rates.shape), rates.dtype)

    def binomial(self, count: Array, prob: Array) -> Array:
        """Successes in `count` trials, in the dtype of `count`. One Python call per element."""
        counts = count.astype(np.float64).ravel().tolist()
        probs = prob.astype(np.float64).ravel().tolist()
        samples = self._source.sample(
            len(counts), lambda i, random: sample_binomial(counts[i], probs[i], random)
        )
        return converted(np.array(samples).reshape(count.shape), count.dtype)

    def standard_gamma(self, alpha: Array) -> Array:
        """Gamma of scale 1 with the given shapes, in their dtype. One Python call per element."""
        shapes = alpha.astype(np.float64).ravel().tolist()
        samples = self._source.sample(
            len(shapes), lambda i, random: sample_standard_gamma(shapes[i], random)
        )
        smallest = _smallest_normal(alpha.dtype)
        return converted(np.maximum(np.array(samples), smallest).reshape(alpha.shape), alpha.dtype)

    # Shared helpers

    def _unit_uniforms(self, n: int, dtype: np.dtype[np.generic]) -> Array:
        if dtype == np.float64:
            return unit64(self._source.words64(n))
        return unit(self._source.words32(n), dtype)

    def _exponential_like(self, rows: Array) -> Array:
        """Exponentials for a matrix, sampled in its memory order."""
        if 0 < rows.strides[0] < rows.strides[1]:
            return self.exponential(rows.T.shape, rows.dtype).T
        return self.exponential(rows.shape, rows.dtype)

    def _multinomial_with_replacement(self, probs: Array, num_samples: int) -> Array:
        wide = probs.astype(np.float64 if probs.dtype == np.float64 else np.float32)
        cumulative = np.cumsum(wide, axis=1, dtype=wide.dtype)
        cumulative /= cumulative[:, -1:].copy()
        cumulative[:, -1] = 1
        uniforms = unit64(self._source.words64(len(probs) * num_samples))
        samples = np.empty((len(probs), num_samples), np.int64)
        for row, targets in enumerate(uniforms.reshape(samples.shape)):
            samples[row] = np.searchsorted(cumulative[row].astype(np.float64), targets, side="left")
        return samples


def _rebuild(device: str, algorithm: str, state: npt.NDArray[np.uint8]) -> Generator:
    return Generator(device, algorithm=algorithm).set_state(state)


def representable_range(low: int, high: int, dtype: np.dtype[np.generic]) -> tuple[int, int]:
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
    """The least sample: what underflows is raised to it, so that its logarithm is finite."""
    if dtype.name == "bfloat16":
        return float(np.finfo(np.float32).smallest_normal)
    return float(np.finfo(dtype).smallest_normal)
