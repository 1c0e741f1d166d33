"""Products of bfloat16 by dot products of pairs, which accumulate in float32.

``paired_matmul(a, b)`` is ``matmul(a.float(), b.float())``. A word of 32 bits holds two elements
that are neighbours along K; the blocked kernels multiply matrices of words as they do float32, with
an instruction that adds two products to a sum in the place of one that adds one. An operand whose
rows are contiguous along K is a matrix of words as it is, another one is interleaved first.

Owns the row, what it can take, and its lowering. Without the instruction the row does not occur.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.gemm.microkernel import tile_for
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.select import (
    add_fused_product,
    flattened,
    is_blocked,
)
from evergrad.compiler.native.target import has_bfloat16_dot
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import lowered
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.matmul import MATMUL

if TYPE_CHECKING:
    from evergrad.core.types import Array

_WORD = 4


def _type(a: TensorType, b: TensorType) -> TensorType:
    found: TensorType = MATMUL.type(a, b)
    return tensor_type(found.shape, dtypes.float32)


def _eval(a: Any, b: Any) -> object:
    return MATMUL.eval(a.astype(np.float32), b.astype(np.float32))


PAIRED_MATMUL = Op(
    "paired_matmul", family="custom", type=_type, eval=_eval, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=None, emit=lowered("kernels.gemm"), doc="a @ b of bfloat16, in float32.",
)  # fmt: skip


# -- operands as matrices of words --------------------------------------------------------------


class _Words(NamedTuple):
    """An operand as an array of words without data, and whether it has to be interleaved."""

    layout: Any
    is_interleaved: bool


def can_pair(a: Array, b: Array) -> bool:
    """Whether a product of bfloat16 arrays with these layouts is one of pairs, and profits."""
    if not has_bfloat16_dot() or a.dtype != dtypes.bfloat16.np or a.ndim < 2 or b.ndim != 2:
        return False
    product = _product(a, b)
    return product is not None and is_blocked(product, dtypes.float32)


def _product(a: object, b: object) -> Product | None:
    left, right = _words(a, -1), _words(b, 0)
    if left is None or right is None:
        return None
    product = Product(left.layout, right.layout, ())
    return product if product.a is not None and product.b is not None else None


def _words(layout: Any, axis: int) -> _Words | None:
    """An operand whose pairs are along an axis; ``None`` if its strides do not allow it."""
    extent, step = layout.shape[axis], layout.strides[axis]
    if 0 in layout.shape:
        return None
    others = [s for n, s in enumerate(layout.strides) if n != axis % layout.ndim]
    if step == layout.itemsize and extent % 2 == 0 and all(s % _WORD == 0 for s in others):
        shape, strides = list(layout.shape), list(layout.strides)
        shape[axis], strides[axis] = extent // 2, _WORD
        words = _without_data(tuple(shape), tuple(strides))
        if words.ndim > 2:
            words = flattened(words)
        return None if words is None else _Words(words, False)
    (other,) = others if len(others) == 1 else (0,)
    if other != layout.itemsize or step <= 0:
        return None
    pairs = -(-extent // 2)
    across = layout.shape[1 - axis % 2]
    words = _without_data((pairs, across), (across * _WORD, _WORD))
    return _Words(words if axis == 0 else words.T, True)


def _without_data(shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    return np.lib.stride_tricks.as_strided(np.empty((), np.float32), shape, strides)


# -- lowering -----------------------------------------------------------------------------------


@lowers(PAIRED_MATMUL)
def lower_paired(lowering: Lowering, eqn: Equation) -> bool:
    a, b = eqn.args
    product = _product(a.layout, b.layout)
    if product is None:
        return False
    factors = [_operand(lowering, a, -1), _operand(lowering, b, 0)]
    tile = tile_for(vector_for(dtypes.float32))._replace(pairs=True)
    label = f"{eqn.op.name} {product.m}x{product.n}x{2 * product.k}"
    add_fused_product(lowering, label, product, eqn, factors, product.n, tile)
    return True


def _operand(lowering: Lowering, var: Var, axis: int) -> Var | BufferView:
    words = _words(var.layout, axis)
    assert words is not None
    if not words.is_interleaved:
        return var
    place = lowering.scratch(words.layout.size * _WORD, "pairs of a factor")
    kernel = _interleaving_kernel(var.layout, axis)
    lowering.add_kernel("interleave", kernel, [var], [place], var.type.numel)
    return place


# -- interleaving -------------------------------------------------------------------------------


class _Numbers(NamedTuple):
    pairs: int
    per_chunk: int
    rows: int
    columns: int
    row_stride: int


def _interleaving_kernel(layout: Array, axis: int) -> Kernel:
    """The kernel that writes rows of pairs: of the elements of two rows, which are contiguous. An
    odd row is paired with zeros."""
    rows, columns = layout.shape[axis], layout.shape[1 - axis % 2]
    pairs = -(-rows // 2)
    per_chunk = items_per_chunk(pairs, 2 * columns)
    numbers = _Numbers(pairs, per_chunk, rows, columns, layout.strides[axis] // layout.itemsize)
    made = _interleaving_ir(vector_for(dtypes.float32))
    return with_numbers(made, numbers, [], -(-pairs // per_chunk))


@cache
def _interleaving_ir(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("source", "words"), _Numbers._fields)
    short = Vector("i16", vector.lanes, 2)
    many = vector.of("i32")
    shift = ir.splat("16", "i32")
    first, last = ir.items("%chunk", ir["per_chunk"], ir["pairs"])
    with ir.loop(last, first=first) as pair:
        row = ir.mul(pair, 2)
        there = ir.op(f"icmp slt i64 {ir.add(row, 1)}, {ir['rows']}")
        begin = ir.mul(row, ir["row_stride"])
        upper = ir.op(f"select i1 {there}, i64 {ir['columns']}, i64 0")
        target = ir.at(ir["words"], ir.mul(pair, ir["columns"]))
        with ir.loop(ir["columns"], vector.lanes) as column:
            parts = []
            for start, extent in ((begin, ir["columns"]),
                                  (ir.add(begin, ir["row_stride"]), upper)):  # fmt: skip
                mask = ir.range_mask(ir.lane_indices("0"), "0", ir.sub(extent, column))
                at = ir.op(f"getelementptr i16, ptr {ir['source']}, i64 {ir.add(start, column)}")
                some = ir.load_masked(at, mask, vector=short)
                parts.append(ir.op(f"zext {short.type} {some} to {many}"))
            high = ir.op(f"shl {many} {parts[1]}, {shift}")
            word = ir.op(f"or {many} {parts[0]}, {high}")
            mask = ir.range_mask(ir.lane_indices("0"), "0", ir.sub(ir["columns"], column))
            value = ir.op(f"bitcast {many} {word} to {vector.type}")
            ir.store_masked(value, ir.at(target, column), mask)
    return ir.kernel("gemm_interleave")
