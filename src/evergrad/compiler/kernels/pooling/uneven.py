"""Sums over windows of unequal extents along one dimension, by which adaptive means are computed.

``uneven_sum(x)`` has for each of the ``bounds`` the sum of the elements from one position up to
another. It is its own kind of transpose: which windows an element is in is a range too.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evergrad.compiler.codegen.ir_builder import Vector, is_native, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import lowered
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.core.types import Array

Bounds = tuple[tuple[int, int], ...]


def _type(x: TensorType, *, dim: int, bounds: Bounds) -> TensorType:
    return tensor_type((*x.shape[:dim], len(bounds), *x.shape[dim + 1 :]), x.dtype)


def _eval(x: Array, *, dim: int, bounds: Bounds) -> object:
    before = (slice(None),) * dim
    return np.stack([x[(*before, slice(*span))].sum(dim) for span in bounds], dim)


UNEVEN_SUM = Op(
    "uneven_sum", family="custom", type=_type, eval=_eval, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=None, emit=lowered("kernels.pooling"), doc="Sums over ranges along a dimension.",
)  # fmt: skip


class _Numbers(NamedTuple):
    items: int  # results of all outer indices
    windows: int  # of one
    extent: int
    inner: int
    per_chunk: int


@lowers(UNEVEN_SUM)
def lower_uneven_sum(lowering: Lowering, eqn: Equation) -> bool:
    (x,), (out,) = eqn.args, eqn.outs
    if not is_native(x.type.dtype) or not out.type.numel or not x.type.numel:
        return False
    dim, bounds = eqn.attrs["dim"], eqn.attrs["bounds"]
    outer, inner = prod(x.type.shape[:dim]), prod(x.type.shape[dim + 1 :])
    longest = max(end - begin for begin, end in bounds)
    items = outer * len(bounds)
    per_chunk = items_per_chunk(items, inner * longest)
    numbers = _Numbers(items, len(bounds), x.type.shape[dim], inner, per_chunk)
    kernel = with_numbers(
        _kernel(vector_for(x.type.dtype)), numbers,
        [place for span in bounds for place in span], -(-items // per_chunk),
    )  # fmt: skip
    lowering.add_kernel("uneven_sum", kernel, [contiguous(lowering, x)], [out], items * inner)
    return True


@cache
def _kernel(vector: Vector) -> Kernel:
    ir = KernelBuilder(vector, ("x", "out"), _Numbers._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    inner = ir["inner"]
    with ir.loop(last, first=first) as item:
        outer, number = ir.split(item, ir["windows"])
        begin, end = (ir.number(ir.table(ir.mul(number, 2)), n) for n in range(2))
        source = ir.at(ir["x"], ir.mul(outer, ir["extent"], inner))
        target = ir.at(ir["out"], ir.mul(item, inner))
        whole = ir.sub(inner, ir.op(f"urem i64 {inner}, {vector.lanes}"))
        with ir.loop(whole, vector.lanes) as column:
            start = [(vector.type, "zeroinitializer")]
            with ir.carrying_loop(end, start, first=begin) as (row, carried):
                value = ir.load_vector(ir.at(source, ir.mul(row, inner), column))
                carried.after = [ir.plus(carried.values[0], value)]
            ir.store_vector(carried.after[0], ir.at(target, column))
        with ir.loop(inner, first=whole) as column:
            with ir.carrying_loop(end, [(vector.element, "0.0")], first=begin) as (row, carried):
                value = ir.load(ir.at(source, ir.mul(row, inner), column))
                carried.after = [ir.op(f"fadd {vector.element} {carried.values[0]}, {value}")]
            ir.store(carried.after[0], ir.at(target, column))
    return ir.kernel("uneven_sum")
