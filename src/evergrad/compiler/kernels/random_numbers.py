"""Lowerings of random words and of the numbers that are made of them.

Words of a Mersenne twister are drawn one after the other by a kernel of one chunk; what follows
from them is computed in parallel.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

from evergrad.compiler.codegen import normals, rng
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.random_rows import (
    NORMAL_BLOCKS,
    NORMAL_SINGLES,
    PERMUTED,
    RANDOM_WORDS,
    is_counted,
)
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation

# About the operations that a normal number takes.
_WORK = 64


def _words_of(number: float) -> int:
    """The bits of a float64, as a number of a kernel."""
    (word,) = struct.unpack("<q", struct.pack("<d", number))
    return int(word)


@lowers(RANDOM_WORDS)
def lower_words(lowering: Lowering, eqn: Equation) -> bool:
    generator, (out,) = eqn.attrs["generator"], eqn.outs
    if is_counted(generator) or not out.type.numel:
        return False
    made = rng.random_words()
    kernel = Kernel(made.name, made.ir, made.helpers)
    kernel.numbers = [out.type.nbytes // 4]
    kernel.scratch = rng.PIECE_BYTES
    state = lowering.rng_state(generator)
    lowering.add_kernel("random_words", kernel, [], [state, out], out.type.nbytes)
    return True


@lowers(NORMAL_SINGLES)
def lower_singles(lowering: Lowering, eqn: Equation) -> bool:
    attrs = eqn.attrs
    numbers = [attrs["count"], _words_of(attrs["mean"]), _words_of(attrs["std"])]
    kernel = with_numbers(normals.singles(), numbers, (), 1, rng.PIECE_BYTES)
    state = lowering.rng_state(attrs["generator"])
    lowering.add_kernel("normal_singles", kernel, [], [state, eqn.outs[0]], _WORK * attrs["count"])
    return True


@lowers(NORMAL_BLOCKS)
def lower_blocks(lowering: Lowering, eqn: Equation) -> bool:
    (words,), (out,) = eqn.args, eqn.outs
    count, mean, std = (eqn.attrs[name] for name in ("count", "mean", "std"))
    blocks = count // normals.BLOCK
    per_chunk = items_per_chunk(blocks, _WORK * normals.BLOCK)
    tail = words.type.numel - normals.BLOCK if count % normals.BLOCK else 0
    is_wide = words.type.dtype is dtypes.int64
    made = normals.blocks64() if is_wide else normals.blocks32((mean, std) == (0.0, 1.0))
    numbers = [blocks, per_chunk, count, tail, _words_of(mean), _words_of(std)]
    kernel = with_numbers(made, numbers, (), -(-blocks // per_chunk))
    lowering.add_kernel("normal_blocks", kernel, [words], [out], _WORK * count)
    return True


@cache
def permuted_ir() -> Kernel:
    """The permutation of words of 32 bits by forward Fisher-Yates."""
    ir = KernelBuilder(Vector("i64", 1, 8), ("words", "out"), ("count",))
    with ir.loop(ir["count"]) as i:
        ir.store(i, ir.at(ir["out"], i))
    with ir.loop(ir.sub(ir["count"], 1)) as i:
        address = ir.op(f"getelementptr i32, ptr {ir['words']}, i64 {i}")
        word = ir.op(f"zext i32 {ir.op(f'load i32, ptr {address}')} to i64")
        partner = ir.add(i, ir.op(f"urem i64 {word}, {ir.sub(ir['count'], i)}"))
        here, there = (ir.at(ir["out"], place) for place in (i, partner))
        values: Sequence[Any] = [ir.load(here), ir.load(there)]
        ir.store(values[1], here)
        ir.store(values[0], there)
    return ir.kernel("permuted")


@lowers(PERMUTED)
def lower_permuted(lowering: Lowering, eqn: Equation) -> bool:
    (out,) = eqn.outs
    kernel = with_numbers(permuted_ir(), [out.type.numel], (), 1)
    lowering.add_kernel("permuted", kernel, [eqn.args[0]], [out], 8 * out.type.numel)
    return True
