"""Two lists of arrays of different shapes, combined in one loop over a table of runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from evergrad.compiler.codegen.ir_builder import IRBuilder, vector_for
from evergrad.compiler.codegen.item_runs import combine_runs
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native import jit
from evergrad.compiler.native.prototypes import functions_at
from evergrad.core import dtypes
from evergrad.extension import provides


@provides("item_kernel")
@cache
def item_kernel(
    name: str, itemsize: int
) -> tuple[Callable[..., object], Callable[..., object]] | None:
    """A function of the addresses of the result, of both operands and of the table, and of the
    number of its rows: one that keeps the GIL and one that releases it. ``None`` where there is no
    machine code."""
    if not jit.can_jit():
        return None
    kernel = _kernel(name, itemsize)
    address = jit.addresses([kernel])[kernel.name]
    return functions_at(address, (None, *[ctypes.c_void_p] * 4, ctypes.c_int64))


def _kernel(name: str, itemsize: int) -> Kernel:
    ir = IRBuilder(vector_for(dtypes.float32 if itemsize == 4 else dtypes.float64))
    combine_runs(ir, name, ("%out", "%a", "%b"), "%table", ("0", "%rows"))
    parameters = "ptr noalias %out, ptr %a, ptr %b, ptr %table, i64 %rows"
    body = "\n".join(["entry:", *ir.lines, "  ret void", "}", ""])
    text = f"define void @SELF({parameters}) nounwind {{\n{body}"
    made = jit.name_of(text, "items")
    return Kernel(made, text.replace("@SELF", f"@{made}"), ir.helpers)
