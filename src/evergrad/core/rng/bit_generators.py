"""Bit generators: the Mersenne Twister and the counter-based Philox, with one interface.

A bit generator gives words of 32 and 64 bits, and what each algorithm computes from them in its own
way: normals, permutations, and numbers one at a time for rejection sampling.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from evergrad import config
from evergrad.core.exact import CHUNK, Array, box_muller, libm
from evergrad.extension import ExtensionPoint

WIDE_PERMUTATION = 0xFFFFFFFF // 20  # from this length on, a permutation takes 64-bit words

_normal_blocks: ExtensionPoint[..., Any] = ExtensionPoint("normal_blocks")
_permuted: ExtensionPoint[..., Any] = ExtensionPoint("permuted")
# From so many numbers on kernels compute them, with the same bits.
_LEAST_NATIVE = 16
# Of so few numbers Python's are quicker than arrays, and of so few words raw ones.
_FEW = 32
_FEW_WORDS = 1 << 12
_LOW53 = (1 << 53) - 1
_HIGH, _LOW24 = np.uint64(32), np.uint32((1 << 24) - 1)
_STEP24 = np.float32(2.0**-24)


def unit64(words: Array) -> Array:
    """The low 53 of 64 bits as a float64 in [0, 1). Overwrites the words."""
    words &= np.uint64((1 << 53) - 1)
    uniforms = words.astype(np.float64)
    uniforms *= 2.0**-53
    return uniforms


def unit(words: Array, dtype: np.dtype[np.generic]) -> Array:
    """Uniforms in [0, 1): 53 bits of words64 for float64, 24 bits of words32 else."""
    if dtype == np.float64:
        return unit64(words)
    words &= _LOW24
    uniforms = words.astype(np.float32)
    uniforms *= _STEP24
    return uniforms


def normals_of(uniforms: Array, n: int) -> Array:
    """Normals of uniforms in blocks of 16: numbers j and j + 8 from uniforms j and j + 8. The last
    16 come from the last 16 uniforms, which are fresh if `n` is no multiple of 16."""
    tail = 0 if n % 16 == 0 else 16
    whole = n - n % 16
    blocks = np.concatenate([uniforms[:whole], uniforms[len(uniforms) - tail :]])
    blocks = blocks.reshape(-1, 2, 8)
    cos, sin = box_muller(blocks[:, 0], blocks[:, 1])
    samples = np.stack([cos, sin], axis=1).reshape(-1)
    if tail == 0:
        return samples
    # They overwrite part of the block before.
    return np.concatenate([samples[: n - 16], samples[-16:]])


def normal_words(n: int, itemsize: int) -> int:
    """The words (of 64 bits for float64, else of 32) of `n` normals, 16 or more."""
    tail = 0 if n % 16 == 0 else 16
    return n - n % 16 + tail if itemsize == 2 else n + tail  # 16-bit numbers block by block


def permutation_of(words: Array) -> list[int]:
    """Forward Fisher-Yates: element i is swapped with i + word % (n - i)."""
    n = len(words) + 1
    steps = np.arange(n - 1, dtype=np.uint64)
    partners = steps + words % (np.uint64(n) - steps)
    order = list(range(n))
    for i, j in enumerate(partners.tolist()):
        order[i], order[j] = order[j], order[i]
    return order


class Scalars(Protocol):
    """Uniforms and normals one at a time, for rejection sampling."""

    def uniform(self) -> float: ...

    def normal(self) -> float: ...


# -- mt19937 ------------------------------------------------------------------------------------


class MersenneTwister:
    """mt19937 seeded from one word, and the sine PyTorch caches for the next single normal."""

    name = "mt19937"
    code = 0

    def __init__(self, seed: int) -> None:
        # RandomState, unlike numpy's Generator, promises never to change its streams.
        self.state: np.random.RandomState = np.random.RandomState(seed & 0xFFFFFFFF)
        self.spare: float | None = None

    @cached_property
    def memory(self) -> Array:
        """The 624 words of the state and the position, as an alias of NumPy's memory. Copying them
        is much faster than ``get_state`` and ``set_state``."""
        address = self.state._bit_generator.ctypes.state_address
        return np.ctypeslib.as_array((ctypes.c_uint32 * 625).from_address(address))

    def _raw(self, n: int) -> Array:
        """Words of 32 bits in 64, of which few take half the time."""
        words: Array = self.state._bit_generator.random_raw(n)
        return words

    def words32(self, n: int) -> Array:
        if n < _FEW_WORDS:
            return self._raw(n).astype(np.uint32)
        return self.state.randint(0, 1 << 32, size=n, dtype=np.uint32)

    def few_units64(self, n: int) -> list[float]:
        """``unit64`` of the next words, as numbers."""
        words = self._raw(2 * n).tolist()
        return [
            (((high << 32) | low) & _LOW53) * 2.0**-53
            for high, low in zip(words[::2], words[1::2], strict=True)
        ]

    def words64(self, n: int) -> Array:
        """Two words each, the first in the high half."""
        if n < _FEW_WORDS:
            words = self._raw(2 * n)
            high = words[::2] << _HIGH
            high |= words[1::2]
            return high
        return self.state.randint(0, 1 << 64, size=n, dtype=np.uint64)

    def double_normals(self, n: int) -> Array:
        """Normals sampled one by one in float64, the spare sine first."""
        fresh = n if self.spare is None else n - 1
        pairs = (fresh + 1) // 2
        if n < _FEW:
            return self._few_normals(n, pairs)
        uniforms = unit64(self.words64(2 * pairs)).reshape(pairs, 2)
        length = np.sqrt(-2.0 * libm(math.log1p, -uniforms[:, 1]))
        theta = 2.0 * math.pi * uniforms[:, 0]
        samples = np.empty(2 * pairs + 1)
        samples[1::2] = length * libm(math.cos, theta)
        samples[2::2] = length * libm(math.sin, theta)
        if self.spare is None:
            samples = samples[1:]
        else:
            samples[0] = self.spare
        self.spare = float(samples[n]) if len(samples) > n else None
        return samples[:n]

    def _few_normals(self, n: int, pairs: int) -> Array:
        uniforms = self.few_units64(2 * pairs)
        samples = [] if self.spare is None else [self.spare]
        for first, second in zip(uniforms[::2], uniforms[1::2], strict=True):
            length = math.sqrt(-2.0 * math.log1p(-second))
            theta = 2.0 * math.pi * first
            samples.append(length * math.cos(theta))
            samples.append(length * math.sin(theta))
        self.spare = samples.pop() if len(samples) > n else None
        return np.array(samples, np.float64)

    def normals(self, n: int, dtype: np.dtype[np.generic], singly: bool = False) -> Array:
        """Standard normals; float32 for every dtype but float64, and float64 for few of any.

        ``singly`` samples any number of them as fewer than 16 are.
        """
        if n < 16 or singly:
            return self.double_normals(n)
        count = normal_words(n, dtype.itemsize)
        if dtype == np.float64:
            return normals_of(unit64(self.words64(count)), n)
        words = self.words32(count)
        found = _normal_blocks(words, n) if n >= _LEAST_NATIVE and config.EAGER_KERNELS else None
        return normals_of(unit(words, dtype), n) if found is None else found

    def permutation(self, n: int) -> list[int] | Array:
        if n < 2:
            return list(range(n))
        if n >= WIDE_PERMUTATION:
            return permutation_of(self.words64(n - 1))
        words = self.words32(n - 1)
        found = _permuted(words) if n >= _LEAST_NATIVE and config.EAGER_KERNELS else None
        return permutation_of(words) if found is None else found

    def sample(self, n: int, one: Callable[[int, Scalars], float]) -> list[float]:
        scalars = _MersenneTwisterScalars(self)
        samples = [one(i, scalars) for i in range(n)]
        scalars.close()
        return samples

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


class _MersenneTwisterScalars:
    """Float64 uniforms of a twister one by one, read ahead in bulk; `close` rewinds the rest."""

    def __init__(self, twister: MersenneTwister) -> None:
        self.twister = twister
        self.start = twister.state.get_state(legacy=True)
        self.ready: list[float] = []
        self.used = 0

    def uniform(self) -> float:
        if self.used == len(self.ready):
            ahead = max(64, min(len(self.ready), 1 << 16))
            self.ready.extend(unit64(self.twister.words64(ahead)).tolist())
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


# -- philox -------------------------------------------------------------------------------------

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


def philox_chances(key: int, offset: int, keep: float, numbers: Array) -> Array:
    """Whether the elements of a stream at ``numbers`` (uint64) are below ``keep``; two elements
    take one block, the first of them that at ``offset``. All arguments are taken modulo 2^64."""
    counters = numbers.reshape(-1) // np.uint64(2) + np.uint64(offset % (1 << 64))
    words = philox4x32(counters, 0, key % (1 << 64)).astype(np.uint64)
    pairs = words[:, 0::2] << _HALF | words[:, 1::2]
    chosen = np.take_along_axis(pairs, (numbers.reshape(-1, 1) % np.uint64(2)).astype(np.int64), 1)
    return (unit64(chosen[:, 0]) < keep).reshape(numbers.shape)


class Philox:
    """Philox4x32-10: the seed is the key, the offset counts the blocks consumed."""

    name = "philox"
    code = 1

    def __init__(self, seed: int) -> None:
        self.key = seed
        self.offset: int = 0

    def blocks(self, count: int, high: int = 0, start: int | None = None) -> Array:
        """The (count, 4) words from counter `start` on; without a start they are consumed."""
        if start is None:
            start = self.offset
            self.offset = (self.offset + count) % (1 << 64)
        words = np.empty((count, 4), np.uint32)
        for first in range(0, count, CHUNK):
            part = np.arange(first, min(first + CHUNK, count), dtype=np.uint64)
            words[first : first + CHUNK] = philox4x32(part + np.uint64(start), high, self.key)
        return words

    def words32(self, n: int) -> Array:
        return self.blocks(-(-n // 4)).reshape(-1)[:n]

    def words64(self, n: int) -> Array:
        words = self.words32(2 * n).astype(np.uint64)
        return words[0::2] << _HALF | words[1::2]

    def double_normals(self, n: int) -> Array:
        return self.normals(n, np.dtype(np.float64))

    def normals(self, n: int, dtype: np.dtype[np.generic], singly: bool = False) -> Array:
        """Elements 2j and 2j + 1 are the cosine and the sine of one Box-Muller pair."""
        even = n + n % 2
        words = self.words64(even) if dtype == np.float64 else self.words32(even)
        uniforms = unit(words, dtype)
        samples = np.stack(box_muller(uniforms[0::2], uniforms[1::2]), axis=1)
        return samples.reshape(-1)[:n]

    def permutation(self, n: int) -> list[int] | Array:
        return np.argsort(self.words64(n), kind="stable")

    def sample(self, n: int, one: Callable[[int, Scalars], float]) -> list[float]:
        samples: list[float] = []
        for first in range(0, n, CHUNK):
            start = (self.offset + first) % (1 << 64)
            scalars = _PhiloxScalars(self, start, min(CHUNK, n - first))
            for i in range(first, first + scalars.count):
                scalars.move_to(i - first)
                samples.append(one(i, scalars))
        self.offset = (self.offset + n) % (1 << 64)
        return samples

    def pack(self) -> bytes:
        return struct.pack("<Q", self.offset)

    def unpack(self, packed: bytes) -> None:
        (self.offset,) = struct.unpack("<Q", packed)


class _PhiloxScalars:
    """Float64 uniforms per element: two in each round, and the round is the counter's high half."""

    def __init__(self, philox: Philox, start: int, count: int) -> None:
        self.philox, self.start, self.count = philox, start, count
        self.rounds: list[list[float]] = []
        self.move_to(0)

    def move_to(self, element: int) -> None:
        self.element = element
        self.used = 0

    def uniform(self) -> float:
        attempt, which = divmod(self.used, 2)
        if attempt == len(self.rounds):
            # The high half starts at 1: round 0 is for distributions without rejection.
            words = self.philox.blocks(self.count, high=attempt + 1, start=self.start)
            wide = words.reshape(-1).astype(np.uint64)
            self.rounds.append(unit64(wide[0::2] << _HALF | wide[1::2]).tolist())
        self.used += 1
        return self.rounds[attempt][2 * self.element + which]

    def normal(self) -> float:
        theta = 2.0 * math.pi * self.uniform()
        return math.sqrt(-2.0 * math.log1p(-self.uniform())) * math.cos(theta)
