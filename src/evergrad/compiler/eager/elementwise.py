"""A row on contiguous arrays of one shape as a single loop, for eager mode.

The kernel depends on the row, its attributes and element types alone: the number of elements is an
argument, so that a new shape costs nothing. Operands without dimensions are passed as numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.elementwise import Code, Element
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native import jit
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.op import Op
from evergrad.core.shapes import TensorType
from evergrad.extension import provides


@provides("elementwise_kernel")
def elementwise_kernel(
    op: Op, attrs: dict[str, Any], operands: tuple[TensorType, ...], out: TensorType
) -> tuple[Callable[..., None], Callable[..., None]] | None:
    """The loop of a row for operands of these types, as a function of the addresses of the result
    and of the operands (of those without dimensions, the numbers) and of the number of elements:
    one that keeps the GIL and one that releases it. ``None`` if no code is emitted for them."""
    if not jit.can_jit() or not elementwise.supports(op, operands, (out,)):
        return None
    is_number = [not t.shape for t in operands]
    kernel = _kernel(op, attrs, [t.dtype for t in operands], out.dtype, is_number)
    address = jit.addresses([kernel])[kernel.name]
    words = [ctypes.c_double if number else ctypes.c_void_p for number in is_number]
    signature: Any = (None, ctypes.c_void_p, *words, ctypes.c_int64)
    return ctypes.PYFUNCTYPE(*signature)(address), ctypes.CFUNCTYPE(*signature)(address)


def _kernel(
    op: Op, attrs: dict[str, Any], found: list[dtype], out: dtype, is_number: list[bool]
) -> Kernel:
    code = Code()
    code.label("body")
    code.do("%i = phi i64 [ 0, %entry ], [ %next, %body ]")
    values = [
        f"%n{k}" if is_number[k] else elementwise.load(code, t, _element(code, t, f"%a{k}"))
        for k, t in enumerate(found)
    ]
    assert op.emit.function is not None
    value = op.emit.function(Element(code, found[-1], out, attrs), *values)
    elementwise.store(code, out, value, _element(code, out, "%out"))
    code.do("%next = add nuw nsw i64 %i, 1")
    more = code.op("icmp slt i64 %next, %count")
    code.do(f"br i1 {more}, label %body, label %end")
    entry = _entry(found, is_number)
    arguments = ", ".join(
        f"double %x{k}" if is_number[k] else f"ptr noalias readonly %a{k}"
        for k in range(len(found))
    )
    text = "\n".join(["entry:", *entry, *code.lines, "end:", "  ret void"])
    ir = (
        f"define void @SELF(ptr noalias %out, {arguments}, i64 %count) "
        f'nounwind "prefer-vector-width"="{jit.vector_bits()}" {{\n{text}\n}}\n'
    )
    name = jit.name_of(ir, "elementwise")
    return Kernel(name, ir.replace("@SELF", f"@{name}"), code.helpers)


def _element(code: Code, found: dtype, start: str) -> str:
    storage = elementwise.KINDS[found].storage
    return code.op(f"getelementptr {storage}, ptr {start}, i64 %i")


def _entry(found: list[dtype], is_number: list[bool]) -> list[str]:
    """Numbers in the types of their operands; the loop is entered unless there are no elements."""
    lines = []
    for k, t in enumerate(found):
        if is_number[k]:
            word = "fadd double %x{0}, -0.0" if t is dtypes.float64 else _TRUNCATE
            lines.append(f"  %n{k} = {word.format(k)}")
    return [*lines, "  %any = icmp sgt i64 %count, 0", "  br i1 %any, label %body, label %end"]


_TRUNCATE = "fptrunc double %x{0} to float"
