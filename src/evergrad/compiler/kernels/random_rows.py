"""Rows for random numbers in programs: words of a generator, which other equations turn into
numbers; masks as packed bits, or as positions in a counter-based stream.

``chance`` (1 with one probability) takes 64 random bits per element, for any element type. So a
mask may be stored as bits (``chance_bits``) or, from a counter-based generator (Philox), not at
all: ``stream_position`` returns the generator's position and advances it past the mask, and
``counted_chance`` computes the mask from there at each use. Only :mod:`.passes.lower_random` and
the recognition of attention emit these rows.

``random_words`` are the next words of a Mersenne twister, of 32 bits or of 64; ``row`` and
``drawn`` are the row that it replaces and its number of elements. ``normal_blocks`` makes normal
numbers of them, 16 of 16 words; ``normal_singles`` takes words as it needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes, exact
from evergrad.core.dtypes import dtype
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.rng.bit_generators import (
    Philox,
    normals_of,
    permutation_of,
    philox_chances,
    unit,
)
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.rng.generator import Generator
from evergrad.core.row_facts import Builder, Value, expensive, lowered, numpy_evaluates
from evergrad.core.shapes import Shape, TensorType, tensor_type

if TYPE_CHECKING:
    from evergrad.core.types import Array

# Rows of a matrix whose elements in one column are the bits of one word.
ROWS_OF_A_WORD = 32


def source_of(generator: Generator | None) -> Generator:
    """The generator itself, or the calling thread's default."""
    return default_generator() if generator is None else generator


def is_counted(generator: Generator | None) -> bool:
    return source_of(generator).algorithm == Philox.name


def packed_shape(size: Shape) -> Shape:
    """The shape of the words that hold the bits of a batch of matrices."""
    *lead, rows, columns = size
    return (*lead, -(-rows // ROWS_OF_A_WORD), columns)


# -- bits ---------------------------------------------------------------------------------------


def pack(mask: Array) -> Array:
    """Bit r of a word is the element of row r of its block of rows, in the word's column."""
    *lead, rows, columns = mask.shape
    blocks = -(-rows // ROWS_OF_A_WORD)
    whole = np.zeros((*lead, blocks * ROWS_OF_A_WORD, columns), np.bool_)
    whole[..., :rows, :] = mask
    bits = np.packbits(
        whole.reshape(*lead, blocks, ROWS_OF_A_WORD, columns), axis=-2, bitorder="little"
    )
    words = np.ascontiguousarray(np.moveaxis(bits, -2, -1)).view("<i4")
    return words.reshape(packed_shape(mask.shape))


def unpack(words: Any, size: Shape) -> Array:
    """The mask that :func:`pack` made into words."""
    bits = (words[..., None, :] >> np.arange(ROWS_OF_A_WORD, dtype=np.int32)[:, None]) & 1
    result: Array = bits.reshape(*size[:-2], -1, size[-1])[..., : size[-2], :]
    return result


def _draw_bits(keep: float, *, size: Shape, generator: Generator | None) -> object:
    return pack(source_of(generator).bernoulli(keep, size))


def _mask_of_bits(words: object, *, size: Shape, dtype: dtype) -> object:
    return unpack(words, size).astype(dtype.np)


# -- positions ----------------------------------------------------------------------------------


def blocks_of(count: int) -> int:
    """By how much so many elements advance a counter: two elements take one block."""
    return -(-count // 2)


def as_signed(number: int) -> int:
    """64 bits as a signed number, their form in graphs."""
    return number - (1 << 64) if number >> 63 else number


def _position(*, count: int, generator: Generator | None) -> tuple[Array, ...]:
    source = source_of(generator)
    found = Generator.initial_seed(source), source.offset
    source.offset += blocks_of(count)
    return tuple(np.asarray(as_signed(number), np.int64) for number in found)


def counted_mask(key: Any, offset: Any, keep: float, size: Shape) -> Array:
    numbers = np.arange(prod(size), dtype=np.uint64)
    return philox_chances(int(key), int(offset), keep, numbers).reshape(size)


def _counted(key: object, offset: object, *, keep: float, size: Shape, dtype: dtype) -> Any:
    return counted_mask(key, offset, keep, size).astype(dtype.np)


# -- words --------------------------------------------------------------------------------------


def _draw_words(*, count: int, dtype: dtype, row: str, drawn: int, generator: Any) -> Array:
    source = source_of(generator)._source
    if dtype is dtypes.int32:
        return source.words32(count).view(np.int32)
    # Two contiguous words, the high one first.
    return source.words32(2 * count).view(np.int64)


def _words_type(*, count: int, dtype: dtype, row: str, drawn: int, generator: object) -> TensorType:
    return tensor_type((count,), dtype)


def _singles(*, count: int, mean: float, std: float, row: str, drawn: int, generator: Any) -> Array:
    return exact.fma64(source_of(generator)._source.double_normals(count), std, mean)


def _singles_type(
    *, count: int, mean: float, std: float, row: str, drawn: int, generator: object
) -> TensorType:
    return tensor_type((count,), dtypes.float64)


def _blocks(words: Any, *, count: int, mean: float, std: float) -> Array:
    if words.dtype == np.int64:
        uniforms = unit(np.bitwise_or(words << 32, words >> 32 & 0xFFFFFFFF).view(np.uint64),
                        np.dtype(np.float64))  # fmt: skip
        return exact.fma64(normals_of(uniforms, count), std, mean)
    samples = normals_of(unit(words.view(np.uint32).copy(), np.dtype(np.float32)), count)
    if (mean, std) == (0.0, 1.0):
        return samples
    return exact.fma32(samples, np.float32(std), np.float32(mean))


def _blocks_type(words: TensorType, *, count: int, mean: float, std: float) -> TensorType:
    is_wide = words.dtype is dtypes.int64
    return tensor_type((count,), dtypes.float64 if is_wide else dtypes.float32)


def _permuted(words: Any) -> Array:
    return np.asarray(permutation_of(words.view(np.uint32)))


def _permuted_type(words: TensorType) -> TensorType:
    return tensor_type((words.shape[0] + 1,), dtypes.int64)


# -- the rows -----------------------------------------------------------------------------------


def _row(
    name: str, type: Any, evaluate: Callable[..., object], doc: str, outputs: int = 1, **named: Any
) -> Op:
    return Op(
        name, family="custom", type=type, eval=evaluate, vjp=NONDIFFERENTIABLE, jvp=None,
        batch=None, outputs=outputs, upcast=False, doc=doc, **named,
    )  # fmt: skip


def _bits_type(keep: object, *, size: Shape, generator: Generator | None) -> TensorType:
    return tensor_type(packed_shape(size), dtypes.int32)


def _mask_type(*args: object, size: Shape, dtype: dtype, **attrs: object) -> TensorType:
    return tensor_type(size, dtype)


def _position_type(*, count: int, generator: Generator | None) -> tuple[TensorType, TensorType]:
    return tensor_type((), dtypes.int64), tensor_type((), dtypes.int64)


CHANCE_BITS = _row(
    "chance_bits", _bits_type, _draw_bits, "1 with one probability for all, as bits.", random=True,
    emit=lowered("kernels.random_masks"),
)  # fmt: skip
MASK_OF_BITS = _row("mask_of_bits", _mask_type, _mask_of_bits, "Bits as elements.",
                    emit=numpy_evaluates("attention reads the bits"))  # fmt: skip
STREAM_POSITION = _row(
    "stream_position", _position_type, _position,
    "Seed and offset of a counter-based generator, which is advanced.", 2, random=True,
    emit=lowered("kernels.random_masks"),
)  # fmt: skip


def _emit_counted(b: Builder, seed: Value, offset: Value, number: Value) -> Value:
    return b.cast_bool(b.random_bit(seed, offset, number, b.attrs["keep"]))


COUNTED_CHANCE = _row(
    "counted_chance", _mask_type, _counted, "1 with one probability for all, from a position.",
    emit=expensive(_emit_counted, numbered=True),
)  # fmt: skip

RANDOM_WORDS = _row(
    "random_words", _words_type, _draw_words, "The next words of a generator.", random=True,
    emit=lowered("kernels.random_numbers"),
)  # fmt: skip
NORMAL_BLOCKS = _row(
    "normal_blocks", _blocks_type, _blocks, "Normal numbers of random words, in blocks of 16.",
    emit=lowered("kernels.random_numbers"),
)  # fmt: skip
NORMAL_SINGLES = _row(
    "normal_singles", _singles_type, _singles, "Normal numbers drawn one by one.", random=True,
    emit=lowered("kernels.random_numbers"),
)  # fmt: skip
PERMUTED = _row(
    "permuted", _permuted_type, _permuted, "The permutation of random words.",
    emit=lowered("kernels.random_numbers"),
)  # fmt: skip
