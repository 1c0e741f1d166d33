"""Transposed copies by tiles of registers, and the function with which loops make them.

A loop nest that reads or writes a tensor against the order of its memory goes by tiles
(:mod:`.loop_nest`): the tile of such a tensor is transposed into memory of the stack first, or from
there last, so that every access of the innermost loop is contiguous.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.ir_builder import IRBuilder, Vector
from evergrad.compiler.native.jit import vector_bits

# The most lanes of a tile of registers: whole tiles are to be common.
_MOST_LANES = 16


def copy_transposed(
    ir: IRBuilder,
    x: str,
    out: str,
    extents: tuple[str, str],
    strides: tuple[str, str],
) -> None:
    """Copy a matrix of ``(rows, columns)`` with contiguous columns in ``x`` to one with contiguous
    rows in ``out``. ``strides``: of columns of ``x``, of rows of ``out``, in elements."""
    lanes, (rows, columns), (x_column, out_row) = ir.vector.lanes, extents, strides
    with ir.loop(rows, lanes) as row, ir.loop(columns, lanes) as column:
        height = ir.least(ir.sub(rows, row), lanes)
        width = ir.least(ir.sub(columns, column), lanes)
        source = ir.at(x, ir.mul(column, x_column), row)
        target = ir.at(out, ir.mul(row, out_row), column)
        is_whole = ir.op(f"icmp eq i64 {ir.add(height, width)}, {2 * lanes}")
        with ir.when(is_whole):
            columns_read = [
                ir.load_vector(ir.at(source, ir.mul(x_column, n))) for n in range(lanes)
            ]
            for n, found in enumerate(ir.transposed(columns_read)):
                ir.store_vector(found, ir.at(target, ir.mul(out_row, n)))
        rest = ir.op(f"select i1 {is_whole}, i64 0, i64 {height}")
        with ir.loop(rest) as r, ir.loop(width) as c:
            value = ir.load(ir.at(source, ir.mul(c, x_column), r))
            ir.store(value, ir.at(target, ir.mul(r, out_row), c))


def words_of(itemsize: int, most: int = 1 << 6) -> Vector:
    """The vector type of one register of elements of this size, whatever they mean."""
    return Vector(f"i{8 * itemsize}", min(most, vector_bits() // 8 // itemsize), itemsize)


@cache
def tile_function(itemsize: int) -> tuple[str, dict[str, str]]:
    """The name of a function ``(x, out, rows, columns, x_column, out_row)`` that copies a tile of
    elements of this size, and the definitions it needs."""
    ir = IRBuilder(words_of(itemsize, _MOST_LANES))
    copy_transposed(ir, "%x", "%out", ("%rows", "%columns"), ("%x_column", "%out_row"))
    name = f"transpose_tile_{8 * itemsize}"
    parameters = "ptr %x, ptr %out, i64 %rows, i64 %columns, i64 %x_column, i64 %out_row"
    body = "\n".join(["entry:", *ir.lines, "  ret void", "}", ""])
    return name, {
        **ir.helpers,
        name: f"define internal void @{name}({parameters}) noinline nounwind {{\n{body}",
    }
