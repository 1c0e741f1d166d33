"""Winograd where its error is that of direct convolution: the choice between two kernels.

Winograd's transforms add and subtract neighbouring elements. Where one of them is much larger than
the others its rounding error reaches outputs to which it contributes little, and where one is
infinite the difference of two infinities is NaN. So the largest magnitude of an image is compared
with the mean one first, and that of the weight likewise: operands with outliers are convolved by
the kernel that would be used without Winograd. Both have packed weights of their own.

Outliers do not harm the weight gradient by Winograd, and what it gives that is finite is right.
Where one element of it is not, all are computed again without Winograd (:func:`unless_finite`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.argument_blocks import (
    ARGUMENTS,
    call_kernel,
    copy_arguments,
    new_block,
    put,
    word_of,
)
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.conv.padded_planes import Strides

# The largest magnitude, in units of the mean one, for which Winograd is as exact: an image of
# normal numbers has about 7, after a ReLU 15. Weights, of which many may be nearly zero, harm less:
# each contributes to every output of its channel.
_MOST = 64
_MOST_OF_WEIGHT = 128
# The arguments that hold the magnitudes of the two operands.
_MAGNITUDES = ("of_image", "of_weight")


class _Numbers(NamedTuple):
    planes: int
    per_chunk: int
    channels: int
    rows: int
    columns: int
    sample_stride: int
    channel_stride: int
    row_stride: int


class Measured(NamedTuple):
    """The kernel that measures an operand, and the elements of that."""

    kernel: Kernel
    elements: int


def measured_weight(vector: Vector, shape: tuple[int, ...], strides: Strides) -> Measured:
    """The measure of a weight; one that is contiguous is a row for each output."""
    elements = math.prod(shape)
    outputs, channels, rows, columns = shape
    row = channels * rows * columns
    if strides == (row, rows * columns, columns, 1):
        shape, strides = (1, outputs, 1, row), Strides(elements, row, row, 1)
    return Measured(magnitudes_kernel(vector, shape, strides), elements)


def magnitudes_kernel(vector: Vector, shape: tuple[int, ...], strides: Strides) -> Kernel:
    """The kernel that stores, for each of its chunks, the largest magnitude of an image and the sum
    of all; its columns are contiguous."""
    samples, channels, rows, columns = shape
    planes = samples * channels
    per_chunk = items_per_chunk(planes, rows * columns)
    numbers = _Numbers(planes, per_chunk, channels, rows, columns, *strides[:3])
    return with_numbers(_magnitudes_ir(vector), numbers, [], -(-planes // per_chunk))


@cache
def _magnitudes_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("image", "found"), _Numbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["planes"])
    many = vector.type
    zero = [(many, "zeroinitializer")] * 2
    with ir.carrying_loop(last, zero, first=first) as (plane, of_planes):
        sample, channel = ir.split(plane, ir["channels"])
        offset = ir.add(ir.mul(sample, ir["sample_stride"]), ir.mul(channel, ir["channel_stride"]))
        start = ir.at(ir["image"], offset)
        held = list(zip([many] * 2, of_planes.values, strict=True))
        with ir.carrying_loop(ir["rows"], held) as (row, of_rows):
            line = ir.at(start, ir.mul(row, ir["row_stride"]))
            held = list(zip([many] * 2, of_rows.values, strict=True))
            with ir.carrying_loop(ir["columns"], held, vector.lanes) as (column, carried):
                inside = ir.range_mask(ir.lane_indices("0"), "0", ir.sub(ir["columns"], column))
                value = ir.load_masked(ir.at(line, column), inside)
                value = _of_vectors(ir, "fabs", value)
                top = _of_vectors(ir, "maxnum", carried.values[0], value)
                carried.after = [top, ir.plus(carried.values[1], value)]
            of_rows.after = carried.after
        of_planes.after = of_rows.after
    top, total = of_planes.after
    name = f"llvm.vector.reduce.fmax.{vector.mangled}"
    ir.helpers[name] = f"declare {vector.element} @{name}({many})"
    target = ir.at(ir["found"], ir.mul("%chunk", 2))
    ir.store(ir.op(f"call {vector.element} @{name}({many} {top})"), target)
    ir.store(ir.sum_of_lanes(total), ir.at(target, 1))
    return ir.kernel("conv_magnitudes")


def _of_vectors(ir: KernelBuilder, function: str, *args: str) -> str:
    many, name = ir.vector.type, f"llvm.{function}.{ir.vector.mangled}"
    ir.helpers[name] = f"declare {many} @{name}({', '.join([many] * len(args))})"
    return ir.op(f"call {many} @{name}({', '.join(f'{many} {arg}' for arg in args)})")


def guarded_kernel(
    vector: Vector,
    winograd: Kernel,
    other: Kernel,
    measured: Sequence[Measured],
    operands: int,
) -> Kernel:
    """The kernel with the arguments x, the weights packed for each of the two, the magnitudes of x
    and of the weight, ``operands`` of the epilogue, and y."""
    made = _guarded_ir(vector, len(winograd.numbers), len(other.numbers), operands)
    kernel = Kernel(made.name, made.ir, made.helpers)
    own = [*_measured_numbers(measured), winograd.chunks, other.chunks, 0, 0]
    kernel.numbers = [*winograd.numbers, *other.numbers, *own]
    count = len(kernel.numbers)
    kernel.calls = {count - 2: winograd, count - 1: other}
    kernel.chunks = max(winograd.chunks, other.chunks)
    kernel.scratch = max(winograd.scratch, other.scratch)
    return kernel


def _measured_numbers(measured: Sequence[Measured]) -> list[int]:
    return [number for kernel, elements in measured for number in (kernel.chunks, elements)]


@cache
def _guarded_ir(vector: Vector, first: int, second: int, operands: int) -> Kernel:
    """The numbers of both kernels follow the pointers, then: entries of magnitudes and elements of
    x and of the weight, the chunks of both and their addresses."""
    ir = KernelBuilder(vector, ("x", "transformed", "packed", *_MAGNITUDES), ())
    pointers = 6 + operands
    own = pointers + first + second
    fits = _are_even(ir, own)
    chunks = [ir.number("%args", own + n) for n in (4, 5)]
    differs = ir.op(f"xor i1 {fits}, true")
    blocks = [_block(ir, ir["transformed"], operands, pointers, first),
              _block(ir, ir["packed"], operands, pointers + first, second)]  # fmt: skip
    for n, chosen in enumerate((fits, differs)):
        is_there = ir.op(f"icmp ult i64 %chunk, {chunks[n]}")
        with ir.when(ir.op(f"and i1 {chosen}, {is_there}")):
            call_kernel(ir, own + 6 + n, blocks[n])
    return ir.kernel("conv_winograd_guard")


def packing_unless_even(vector: Vector, pack: Kernel, measured: Sequence[Measured]) -> Kernel:
    """The kernel with the arguments weight, magnitudes of x and of the weight, and packed weight:
    packs where Winograd is not used."""
    made = _packing_ir(vector, len(pack.numbers))
    kernel = Kernel(made.name, made.ir, made.helpers)
    kernel.numbers = [*pack.numbers, *_measured_numbers(measured), 0]
    kernel.calls = {len(kernel.numbers) - 1: pack}
    kernel.chunks, kernel.scratch = pack.chunks, pack.scratch
    return kernel


@cache
def _packing_ir(vector: Vector, count: int) -> Kernel:
    ir = KernelBuilder(vector, ("weight", *_MAGNITUDES, "packed"), ())
    own = 4 + count
    with ir.when(ir.op(f"xor i1 {_are_even(ir, own)}, true")):
        block = new_block(ir, 2 + count)
        put(ir, block, 0, ir["weight"], "ptr")
        put(ir, block, 1, ir["packed"], "ptr")
        copy_arguments(ir, block, 2, 4, count)
        call_kernel(ir, own + 4, block)
    return ir.kernel("conv_winograd_spare")


def unless_finite(vector: Vector, kernel: Kernel, measured: Measured, pointers: int) -> Kernel:
    """The kernel with the arguments magnitudes of a result, and the ``pointers`` of another kernel,
    which runs where the result is not finite."""
    made = _unless_finite_ir(vector, pointers, len(kernel.numbers))
    guarded = Kernel(made.name, made.ir, made.helpers)
    guarded.numbers = [*kernel.numbers, measured.kernel.chunks, 0]
    guarded.calls = {len(guarded.numbers) - 1: kernel}
    guarded.chunks, guarded.scratch = kernel.chunks, kernel.scratch
    return guarded


@cache
def _unless_finite_ir(vector: Vector, pointers: int, count: int) -> Kernel:
    ir = KernelBuilder(vector, ("found", *(f"pointer{n}" for n in range(pointers))), ())
    own = 1 + pointers + count
    _, total = _largest_and_total(ir, ir["found"], ir.number("%args", own))
    with ir.when(ir.op(f"xor i1 {_is_finite(ir, total)}, true")):
        call_kernel(ir, own + 1, word_of(ir, ARGUMENTS, 1))
    return ir.kernel("conv_winograd_again")


def _are_even(ir: KernelBuilder, first: int) -> str:
    """Whether both operands are even; the entries and elements of each begin at a word of the
    arguments."""
    image, weight = (
        _is_even(ir, ir[name], ir.number("%args", at), ir.number("%args", at + 1), most)
        for name, at, most in zip(
            _MAGNITUDES, (first, first + 2), (_MOST, _MOST_OF_WEIGHT), strict=True
        )
    )
    return ir.op(f"and i1 {image}, {weight}")


def _is_even(ir: KernelBuilder, found: str, entries: str, elements: str, limit: int) -> str:
    """Whether the largest magnitude is not far above the mean one; not if one is not finite."""
    element = ir.vector.element
    top, total = _largest_and_total(ir, found, entries)
    count = ir.op(f"uitofp i64 {elements} to {element}")
    scaled = ir.op(f"fmul {element} {top}, {count}")
    most = ir.op(f"fmul {element} {total}, {float(limit)}")
    even = ir.op(f"fcmp ole {element} {scaled}, {most}")
    return ir.op(f"and i1 {_is_finite(ir, total)}, {even}")


def _largest_and_total(ir: KernelBuilder, found: str, entries: str) -> tuple[str, str]:
    """The largest magnitude and the sum of all, of the entries that chunks have stored."""
    element = ir.vector.element
    with ir.carrying_loop(entries, [(element, "0.0")] * 2) as (number, carried):
        entry = ir.at(found, ir.mul(number, 2))
        top = ir.call("llvm.maxnum", element, carried.values[0], ir.load(entry))
        total = ir.op(f"fadd {element} {carried.values[1]}, {ir.load(ir.at(entry, 1))}")
        carried.after = [top, total]
    top, total = carried.after
    return top, total


def _is_finite(ir: KernelBuilder, value: str) -> str:
    element = ir.vector.element
    return ir.op(f"fcmp oeq {element} {ir.op(f'fsub {element} {value}, {value}')}, 0.0")


def _block(ir: KernelBuilder, weight: str, operands: int, numbers: int, count: int) -> str:
    """The arguments of one of the kernels: x, its weight, operands and y, its numbers."""
    block = new_block(ir, 3 + operands + count)
    put(ir, block, 0, ir["x"], "ptr")
    put(ir, block, 1, weight, "ptr")
    copy_arguments(ir, block, 2, 5, operands + 1)
    copy_arguments(ir, block, 3 + operands, numbers, count)
    return block
