"""Reads and writes at indices along one dimension: gather, scatter and their relatives.

A tensor is viewed as ``(outer, extent, inner)``, what is read from or written to it as ``(outer,
count, inner)``; the index has strides along these, 0 where one index holds for whole rows. A chunk
of a write owns some columns of some outer indices and takes the sources in order, so that indices
which repeat are combined in that order on any number of threads, without atomics. A kernel of its
own checks the indices before anything is written; a read checks those that it reads.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.codegen.row_writes import check_rows
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.indexing.scatter import (
    GATHER,
    SCATTER,
    SCATTER_ADD,
    SCATTER_REDUCE,
    SCATTER_SUM,
)

if TYPE_CHECKING:
    from evergrad.core.types import Index

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
    return _from_front(ir, ir.number(ir["index"], at))


def _from_front(ir: KernelBuilder, given: str) -> str:
    is_low = ir.op(f"icmp slt i64 {given}, 0")
    return ir.op(f"select i1 {is_low}, i64 {ir.add(given, ir['extent'])}, i64 {given}")


@cache
def _read_rows_ir(vector: Vector, wrap: bool) -> Kernel:
    """``out[o, j, :] = x[o, index[j], :]``; a chunk is some pairs of o and j. Indices out of range
    set the status word and read the first slice."""
    ir = KernelBuilder(vector, ("x", "index", "out", "status"), Extents._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir.mul(ir["outer"], ir["sources"]))
    with ir.loop(last, first=first) as row:
        outer, number = ir.split(row, ir["sources"])
        place = _checked(ir, ir.number(ir["index"], number), wrap)
        start = ir.add(ir.mul(outer, ir["extent"]), place)
        source, target = (
            ir.at(ir[name], ir.mul(at, ir["inner"])) for name, at in (("x", start), ("out", row))
        )
        with ir.loop(ir["inner"]) as column:
            ir.store(ir.load(ir.at(source, column)), ir.at(target, column))
    return ir.kernel("read_rows")


class Lines(NamedTuple):
    """The numbers of a kernel that reads single elements: each ``line`` of results has indices that
    are contiguous. It is the elements of an outer index if the tensor has one column, else the
    columns of a source."""

    outer: int
    sources: int  # lines of an outer index
    length: int
    inner: int
    extent: int
    index_outer: int
    repeats: int  # outer indices with the same index
    blocks: int  # of a line
    per_chunk: int  # blocks
    step: int  # of the columns from one element of a line to the next


@cache
def _read_elements_ir(vector: Vector, wrap: bool) -> Kernel:
    """``out[o, j, c] = x[o, index[o, j, c], c]``; a chunk is some blocks of lines. Indices out of
    range set the status word and read the first slice."""
    ir = KernelBuilder(vector, ("x", "index", "out", "status"), Lines._fields)
    blocks = ir.mul(ir["outer"], ir["sources"], ir["blocks"])
    first, last = ir.items("%chunk", ir["per_chunk"], blocks)
    with ir.loop(last, first=first) as block:
        line, part = ir.split(block, ir["blocks"])
        outer, source = ir.split(line, ir["sources"])
        low = ir.mul(part, _CHUNK)
        high = ir.least(ir.add(low, _CHUNK), ir["length"])
        own = ir.op(f"udiv i64 {outer}, {ir['repeats']}")
        offset = ir.add(ir.mul(own, ir["index_outer"]), ir.mul(source, ir["length"]))
        index = ir.op(f"getelementptr i64, ptr {ir['index']}, i64 {offset}")
        table = ir.at(ir["x"], ir.mul(outer, ir["extent"], ir["inner"]))
        target = ir.at(ir["out"], ir.mul(line, ir["length"]))
        with ir.loop(high, first=low) as at:
            place = _checked(ir, ir.number(index, at), wrap)
            column = ir.mul(at, ir["step"])
            value = ir.load(ir.at(table, ir.mul(place, ir["inner"]), column))
            ir.store(value, ir.at(target, at))
    return ir.kernel("read_elements")


def _checked(ir: KernelBuilder, given: str, wrap: bool) -> str:
    """An index in range: one that is not sets the status word and becomes 0."""
    place = _from_front(ir, given) if wrap else given
    inside = ir.op(f"icmp ult i64 {place}, {ir['extent']}")
    with ir.when(ir.op(f"xor i1 {inside}, true")):
        ir.do(f"store i64 1, ptr {ir['status']}")
    return ir.op(f"select i1 {inside}, i64 {place}, i64 0")


@cache
def _write_elements_ir(vector: Vector, how: str, clears: bool) -> Kernel:
    """``out[o, index] = combined(out[o, index], source[o, j])`` for all j in order, of tensors with
    one column; a chunk is some outer indices."""
    ir = KernelBuilder(vector, ("source", "index", "out"), Extents._fields)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["outer"])
    with ir.loop(last, first=first) as outer:
        target = ir.at(ir["out"], ir.mul(outer, ir["extent"]))
        source = ir.at(ir["source"], ir.mul(outer, ir["sources"]))
        offset = ir.mul(outer, ir["index_outer"])
        index = ir.op(f"getelementptr i64, ptr {ir['index']}, i64 {offset}")
        if clears:
            _clear(ir, target, "0", "1")
        with ir.loop(ir["sources"]) as number:
            place = _from_front(ir, ir.number(index, number))
            with ir.when(ir.op(f"icmp ult i64 {place}, {ir['extent']}")):
                at, new = ir.at(target, place), ir.load(ir.at(source, number))
                ir.store(new if how == COPY else _combined(ir, how, ir.load(at), new), at)
    return ir.kernel(f"write_elements_{how}")


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


def _check(
    lowering: Lowering, eqn: Equation, index: Index, extents: Extents, wrap: bool
) -> BufferView | Var:
    """A contiguous index, after an instruction that checks it: all of it, or the elements that are
    expanded along slices."""
    count, extent = index.type.numel, extents.extent
    if not extents.index_inner and count > extents.sources:
        count, view = extents.sources, lowering.buffer_view(index)
        index = BufferView(view.buffer, view.offset, (count,), (8,), view.dtype)
    else:
        index = contiguous(lowering, index)
    kernel = check_rows(count, extent, wrap)
    lowering.add_kernel(f"check {eqn.op.name}", kernel, [index], [None], count)
    result: BufferView | Var = index
    return result


def _is_plain(eqn: Equation, *operands: object) -> bool:
    return all(isinstance(a, Var) and a.type.numel for a in (*operands, *eqn.outs))


def add_read(
    lowering: Lowering, eqn: Equation, index: Var, extents: Extents | None, wrap: bool
) -> bool:
    """Lower the elements of the first argument at an index."""
    x, out = eqn.args[0], eqn.outs[0]
    if extents is None or not _is_plain(eqn, x, index) or index.type.dtype is not dtypes.int64:
        return False
    vector = _vector(out.type.dtype, COPY)
    if vector is None:
        return False
    repeats = _repeats(index) if extents.inner == 1 and extents.index_inner else 1
    kernel = _read(vector, extents, repeats, wrap)
    at = index if repeats > 1 else contiguous(lowering, index)
    lowering.add_kernel(
        eqn.op.name, kernel, [contiguous(lowering, x), at], [out, None], out.type.numel
    )
    return True


def _read(vector: Vector, extents: Extents, repeats: int, wrap: bool) -> Kernel:
    """The kernel of a read with its numbers."""
    outer, count, inner = extents[:3]
    if inner > 1 and not extents.index_inner:
        per_chunk = max(1, _CHUNK // inner)
        numbers = extents._replace(per_chunk=per_chunk)
        chunks = -(-outer * count // per_chunk)
        return with_numbers(_read_rows_ir(vector, wrap), numbers, (), chunks)
    sources, length = (1, count) if inner == 1 else (count, inner)
    blocks = -(-length // _CHUNK)
    per_chunk = max(1, _CHUNK // length)
    lines = Lines(
        outer, sources, length, inner, extents.extent, extents.index_outer, repeats, blocks,
        per_chunk, int(inner > 1),
    )  # fmt: skip
    chunks = -(-outer * sources * blocks // per_chunk)
    return with_numbers(_read_elements_ir(vector, wrap), lines, (), chunks)


def _repeats(index: Var) -> int:
    """How many neighbouring rows of an index are the same memory; 1 unless all others are
    contiguous."""
    shape, strides = index.layout.shape, index.layout.strides
    if len(shape) < 2 or shape[-2] == 1 or strides[-2]:
        return 1
    kept = (*shape[:-2], shape[-1])
    expected = [8 * stride for stride in contiguous_strides(kept)]
    is_contiguous = all(
        n == 1 or s == e
        for n, s, e in zip(kept, (*strides[:-2], strides[-1]), expected, strict=True)
    )
    return shape[-2] if is_contiguous else 1


def add_write(
    lowering: Lowering, eqn: Equation, table: Var | None, index: Var, source: Var, how: str,
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
    kernel = _written(vector, how, extents, clears=table is None)
    checked = _check(lowering, eqn, index, extents, wrap)
    given = [contiguous(lowering, source), checked]
    if table is not None:
        lowering.copy(table, lowering.buffer_view(out))
    lowering.add_kernel(eqn.op.name, kernel, given, [out], size)
    return True


def _written(vector: Vector, how: str, extents: Extents, clears: bool) -> Kernel:
    """The kernel of a write with its numbers."""
    if extents.inner == 1:
        made, units = _write_elements_ir(vector, how, clears), extents.outer
    else:
        made = _write_ir(vector, how, extents.index_inner == 0, clears)
        units = extents.outer * extents.blocks
    per_chunk = max(1, _CHUNK // (extents.sources * min(extents.inner, _WIDTH)))
    numbers = extents._replace(per_chunk=per_chunk)
    return with_numbers(made, numbers, (), -(-units // per_chunk))


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
    dim = eqn.attrs["dim"]
    extents = by_elements(x.type.shape, index.type.shape, dim)
    if extents is not None and _is_by_slices(index, dim):
        extents = by_one_index(x.type.shape, dim, index.type.shape[dim])
    return add_write(lowering, eqn, x, index, source, how, extents, wrap=False)


def _is_by_slices(index: Var, dim: int) -> bool:
    """Whether an index is contiguous along one dimension and expanded along all others."""
    shape, strides = index.layout.shape, index.layout.strides
    wanted = [8 if d == dim else 0 for d in range(len(shape))]
    return all(n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True))


@lowers(SCATTER_SUM)
def lower_scatter_sum(lowering: Lowering, eqn: Equation) -> bool:
    source, index = eqn.args
    extents = by_elements(eqn.attrs["shape"], index.type.shape, eqn.attrs["dim"])
    return add_write(lowering, eqn, None, index, source, ADD, extents, wrap=False)


@lowers(GATHER)
def lower_gather(lowering: Lowering, eqn: Equation) -> bool:
    x, index = eqn.args
    extents = by_elements(x.type.shape, index.type.shape, eqn.attrs["dim"])
    return add_read(lowering, eqn, index, extents, wrap=False)
