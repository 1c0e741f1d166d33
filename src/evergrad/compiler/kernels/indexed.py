"""Reads and writes at indices along one dimension: gather, scatter and their relatives.

A tensor is viewed as ``(outer, extent, inner)``, what is read from or written to it as ``(outer,
count, inner)``; the index has strides along these, 0 where one index holds for whole rows. A chunk
of a write owns some columns of some outer indices and takes the sources in order, so that indices
which repeat are combined in that order on any number of threads, without atomics. A kernel of its
own checks the indices before anything is written.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import KernelBuilder, Vector, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.row_writes import check_rows
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.indexing.scatter import SCATTER, SCATTER_ADD, SCATTER_REDUCE

_WIDTH = 64  # the columns of a unit of a write
_CHUNK = 1 << 13  # the elements of a chunk, at least

# How a source is combined with what is there.
COPY, ADD = "copy", "add"


class Extents(NamedTuple):
    """The numbers of a kernel."""

    outer: int
    sources: int
    inner: int
    extent: int
    index_outer: int  # strides of the index
    index_count: int
    index_inner: int
    blocks: int  # of columns
    per_chunk: int  # rows of a read, units of a write


def by_one_index(shape: tuple[int, ...], dim: int, count: int) -> Extents:
    """The extents of slices along a dimension, by one index for each."""
    return _extents(prod(shape[:dim]), count, prod(shape[dim + 1 :]), shape[dim], (0, 1, 0))


def by_elements(shape: tuple[int, ...], index: tuple[int, ...], dim: int) -> Extents | None:
    """The extents of elements along a dimension, each by an index of its own; ``None`` if the index
    is smaller than the tensor along another dimension."""
    if any(n != m for d, (n, m) in enumerate(zip(index, shape, strict=True)) if d != dim):
        return None
    count, inner = index[dim], prod(shape[dim + 1 :])
    strides = count * inner, inner, 1
    return _extents(prod(shape[:dim]), count, inner, shape[dim], strides)


def _extents(
    outer: int, count: int, inner: int, extent: int, strides: tuple[int, int, int]
) -> Extents:
    return Extents(outer, count, inner, extent, *strides, -(-inner // _WIDTH), 1)


# -- kernels ------------------------------------------------------------------------------------


def _vector(found: dtype, how: str) -> Vector | None:
    """One element as a vector type: bits if it is copied, numbers if it is combined."""
    size = found.itemsize
    if how == COPY:
        return Vector(f"i{8 * size}", 1, size) if size <= 8 else None
    kind = KINDS.get(found)
    if kind is None or kind.storage != kind.compute:
        return None
    is_signed = kind.signed or how in (ADD, "prod")
    return Vector(kind.storage, 1, size) if is_signed else None


def _place(ir: KernelBuilder, outer: str, count: str, column: str) -> str:
    """The index of an element, counted from the front."""
    at = ir.add(
        ir.mul(outer, ir["index_outer"]),
        ir.mul(count, ir["index_count"]),
        ir.mul(column, ir["index_inner"]),
    )
    given = ir.number(ir["index"], at)
    is_low = ir.op(f"icmp slt i64 {given}, 0")
    return ir.op(f"select i1 {is_low}, i64 {ir.add(given, ir['extent'])}, i64 {given}")


@cache
def _read_ir(vector: Vector, by_rows: bool) -> Kernel:
    """``out[o, j, c] = x[o, index, c]``; a chunk is some pairs of o and j. Indices out of range,
    which the check reports, are read from the first slice."""
    ir = KernelBuilder(vector, ("x", "index", "out"), Extents._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir.mul(ir["outer"], ir["sources"]))
    with ir.loop(last, first=first) as row:
        outer, number = ir.split(row, ir["sources"])
        start, target = ir.mul(outer, ir["extent"]), ir.at(ir["out"], ir.mul(row, ir["inner"]))
        place = _inside(ir, _place(ir, outer, number, "0")) if by_rows else ""
        with ir.loop(ir["inner"]) as column:
            here = place or _inside(ir, _place(ir, outer, number, column))
            source = ir.at(ir["x"], ir.mul(ir.add(start, here), ir["inner"]), column)
            ir.store(ir.load(source), ir.at(target, column))
    return ir.kernel("read_at")


def _inside(ir: KernelBuilder, place: str) -> str:
    inside = ir.op(f"icmp ult i64 {place}, {ir['extent']}")
    return ir.op(f"select i1 {inside}, i64 {place}, i64 0")


@cache
def _write_ir(vector: Vector, how: str, by_rows: bool, clears: bool) -> Kernel:
    """``out[o, index, c] = combined(out[o, index, c], source[o, j, c])`` for all j in order, from
    zeros on if it ``clears``; indices out of range are left out."""
    ir = KernelBuilder(vector, ("source", "index", "out"), Extents._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir.mul(ir["outer"], ir["blocks"]))
    with ir.loop(last, first=first) as unit:
        outer, block = ir.split(unit, ir["blocks"])
        low = ir.mul(block, _WIDTH)
        high = ir.least(ir.add(low, _WIDTH), ir["inner"])
        target = ir.at(ir["out"], ir.mul(outer, ir["extent"], ir["inner"]))
        source = ir.at(ir["source"], ir.mul(outer, ir["sources"], ir["inner"]))
        if clears:
            _clear(ir, target, low, high)
        with ir.loop(ir["sources"]) as number:
            row = ir.at(source, ir.mul(number, ir["inner"]))
            if by_rows:
                _write(ir, how, target, _place(ir, outer, number, "0"), row, low, high)
            else:
                with ir.loop(high, first=low) as column:
                    place = _place(ir, outer, number, column)
                    _write(ir, how, target, place, row, column, ir.add(column, 1))
    return ir.kernel(f"write_at_{how}")


def _clear(ir: KernelBuilder, target: str, low: str, high: str) -> None:
    with ir.loop(ir["extent"]) as row, ir.loop(high, first=low) as column:
        place = ir.at(target, ir.mul(row, ir["inner"]), column)
        ir.do(f"store {ir.vector.element} {_zero(ir)}, ptr {place}")


def _zero(ir: KernelBuilder) -> str:
    return "0" if ir.vector.element.startswith("i") else "0.0"


def _write(
    ir: KernelBuilder, how: str, target: str, place: str, row: str, low: str, high: str
) -> None:
    """Combine some columns of a row with those at an index."""
    with ir.when(ir.op(f"icmp ult i64 {place}, {ir['extent']}")):
        there = ir.at(target, ir.mul(place, ir["inner"]))
        with ir.loop(high, first=low) as column:
            at, new = ir.at(there, column), ir.load(ir.at(row, column))
            ir.store(new if how == COPY else _combined(ir, how, ir.load(at), new), at)


def _combined(ir: KernelBuilder, how: str, old: str, new: str) -> str:
    """NaN is larger and smaller than any number."""
    element = ir.vector.element
    is_float = not element.startswith("i")
    if how in (ADD, "prod"):
        word = "add" if how == ADD else "mul"
        return ir.op(f"{'f' if is_float else ''}{word} {element} {old}, {new}")
    word = "gt" if how == "amax" else "lt"
    better = ir.op(f"{'fcmp o' if is_float else 'icmp s'}{word} {element} {new}, {old}")
    if is_float:
        is_nan = ir.op(f"fcmp uno {element} {new}, {new}")
        better = ir.op(f"or i1 {better}, {is_nan}")
    return ir.op(f"select i1 {better}, {element} {new}, {element} {old}")


# -- lowering -----------------------------------------------------------------------------------


def _check(lowering: Lowering, eqn: Equation, index: Any, extent: int, wrap: bool) -> Any:
    """A contiguous index, after an instruction that checks it."""
    count = index.type.numel
    index = contiguous(lowering, index)
    kernel = check_rows(count, extent, wrap)
    lowering.add_kernel(f"check {eqn.op.name}", kernel, [index], [None], count)
    return index


def _is_plain(eqn: Equation, *operands: object) -> bool:
    return all(isinstance(a, Var) and a.type.numel for a in (*operands, *eqn.outs))


def add_read(
    lowering: Lowering, eqn: Equation, index: Any, extents: Extents | None, wrap: bool
) -> bool:
    """Lower the elements of the first argument at an index."""
    x, out = eqn.args[0], eqn.outs[0]
    if extents is None or not _is_plain(eqn, x, index) or index.type.dtype is not dtypes.int64:
        return False
    vector = _vector(out.type.dtype, COPY)
    if vector is None:
        return False
    rows = extents.outer * extents.sources
    per_chunk = max(1, _CHUNK // extents.inner)
    made = _read_ir(vector, extents.index_inner == 0)
    numbers = extents._replace(per_chunk=per_chunk)
    kernel = with_numbers(made, numbers, (), -(-rows // per_chunk))
    checked = _check(lowering, eqn, index, extents.extent, wrap)
    given = [contiguous(lowering, x), checked]
    lowering.add_kernel(eqn.op.name, kernel, given, [out], out.type.numel)
    return True


def add_write(
    lowering: Lowering, eqn: Equation, table: Any, index: Any, source: Any, how: str,
    extents: Extents | None, wrap: bool,
) -> bool:  # fmt: skip
    """Lower a tensor (zeros, if there is none) that is combined with a source at an index."""
    out = eqn.outs[0]
    operands = [source, index] if table is None else [table, source, index]
    if extents is None or not _is_plain(eqn, *operands) or index.type.dtype is not dtypes.int64:
        return False
    vector = _vector(out.type.dtype, how)
    size = extents.outer * extents.sources * extents.inner
    if vector is None or source.type.numel != size or source.type.dtype is not out.type.dtype:
        return False
    units = extents.outer * extents.blocks
    per_chunk = max(1, _CHUNK // (extents.sources * min(extents.inner, _WIDTH)))
    made = _write_ir(vector, how, extents.index_inner == 0, table is None)
    numbers = extents._replace(per_chunk=per_chunk)
    kernel = with_numbers(made, numbers, (), -(-units // per_chunk))
    checked = _check(lowering, eqn, index, extents.extent, wrap)
    given = [contiguous(lowering, source), checked]
    if table is not None:
        lowering.copy(table, lowering.buffer_view(out))
    lowering.add_kernel(eqn.op.name, kernel, given, [out], size)
    return True


@lowers(INDEX)
def lower_index(lowering: Lowering, eqn: Equation) -> bool:
    """Slices by one index, which loops do not take: of a table of one dimension, for example."""
    x, *indices = eqn.args
    if len(indices) != 1:
        return False
    extents = by_one_index(x.type.shape, eqn.attrs["start"], indices[0].type.numel)
    return add_read(lowering, eqn, indices[0], extents, eqn.attrs["wrap"])


@lowers(SCATTER, SCATTER_ADD, SCATTER_REDUCE)
def lower_scatter(lowering: Lowering, eqn: Equation) -> bool:
    x, index, source = eqn.args
    if not isinstance(source, Var) or not eqn.attrs.get("include_self", True):
        return False
    how = COPY if eqn.op is SCATTER else eqn.attrs.get("reduce", ADD)
    extents = by_elements(x.type.shape, index.type.shape, eqn.attrs["dim"])
    return add_write(lowering, eqn, x, index, source, how, extents, wrap=False)
