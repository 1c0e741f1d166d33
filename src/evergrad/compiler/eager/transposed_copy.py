"""Copies that transpose, as one loop with run-time extents: tiles of registers.

A matrix of ``rows`` by ``columns`` is written with contiguous rows and read with contiguous
columns, for each of a list of offsets. A tile is as many rows and columns as a register has
elements: each cache line of either matrix is touched by one tile alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from evergrad.compiler.codegen.ir_builder import IRBuilder, Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.transposed_tiles import copy_transposed, words_of
from evergrad.compiler.native import jit
from evergrad.extension import provides

_POINTERS = ("out", "x", "out_offsets", "x_offsets")
_NUMBERS = ("count", "rows", "columns", "out_row", "x_column")


@provides("transposed_copy")
@cache
def transposed_copy(itemsize: int) -> Callable[..., None] | None:
    """A function of addresses, the number of matrices, their extents and the strides in elements of
    the rows that are written and of the columns that are read. ``None`` where there is no machine
    code."""
    if not jit.can_jit():
        return None
    kernel = _kernel(words_of(itemsize))
    address = jit.addresses([kernel])[kernel.name]
    types = [ctypes.c_void_p] * len(_POINTERS) + [ctypes.c_int64] * len(_NUMBERS)
    return ctypes.CFUNCTYPE(None, *types)(address)


def _kernel(vector: Vector) -> Kernel:
    ir = IRBuilder(vector)
    with ir.loop("%count") as n:
        out, x = (
            ir.at(f"%{name}", ir.op(f"load i64, ptr {_offset(ir, name, n)}"))
            for name in ("out", "x")
        )
        copy_transposed(ir, x, out, ("%rows", "%columns"), ("%x_column", "%out_row"))
    parameters = [f"ptr %{name}" for name in _POINTERS] + [f"i64 %{name}" for name in _NUMBERS]
    body = "\n".join(["entry:", *ir.lines, "  ret void", "}", ""])
    text = f"define void @SELF({', '.join(parameters)}) nounwind {{\n{body}"
    name = jit.name_of(text, "transposed_copy")
    return Kernel(name, text.replace("@SELF", f"@{name}"), ir.helpers)


def _offset(ir: IRBuilder, name: str, index: str) -> str:
    return ir.op(f"getelementptr i64, ptr %{name}_offsets, i64 {index}")
