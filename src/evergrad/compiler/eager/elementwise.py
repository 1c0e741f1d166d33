"""A row on contiguous arrays of one shape as a single loop, for eager mode.

The kernel depends on the row, its attributes and element types alone: the number of elements is an
argument, so that a new shape costs nothing. Operands without dimensions are passed as numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import Element
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native import jit
from evergrad.compiler.native.prototypes import functions_at
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.op import Op
from evergrad.core.shapes import TensorType
from evergrad.extension import provides


@provides("elementwise_kernel")
def elementwise_kernel(
    op: Op,
    attrs: dict[str, object],
    operands: tuple[TensorType, ...],
    out: TensorType,
    is_column: tuple[bool, ...] | None,
    in_place: bool = False,
) -> tuple[Callable[..., None], Callable[..., None]] | None:
    """The loop of a row for operands of these types, as a function of the addresses of the result
    and of the operands (of those without dimensions, the numbers) and of the number of elements:
    one that keeps the GIL and one that releases it. ``None`` if no code is emitted for them.

    With ``is_column``, operands are broadcast: the last arguments are the bytes from row to row of
    each operand with dimensions, then rows and columns. A column has one element for each row.

    With ``in_place``, the first operand is overwritten: it is the address of the result, and is not
    given once more. Numbers beside integers are integers.
    """
    if not jit.can_jit() or not elementwise.supports(op, operands, (out,)):
        return None
    is_number = [not t.shape for t in operands]
    builder = _Builder(op, attrs, operands, out, is_column, in_place)
    kernel = builder.kernel()
    address = jit.addresses([kernel])[kernel.name]
    words = [
        builder.number_types[k][1] if number else ctypes.c_void_p
        for k, number in enumerate(is_number) if k or not in_place
    ]  # fmt: skip
    extents = 1 if is_column is None else is_number.count(False) + 2
    signature = (None, ctypes.c_void_p, *words, *[ctypes.c_int64] * extents)
    return functions_at(address, signature)


class _Builder:
    """The IR of one row: a loop over elements, or over rows and the elements of each."""

    def __init__(
        self, op: Op, attrs: dict[str, object], operands: tuple[TensorType, ...], out: TensorType,
        is_column: tuple[bool, ...] | None, in_place: bool,
    ) -> None:  # fmt: skip
        self.op, self.attrs, self.out = op, attrs, out.dtype
        self.types = [t.dtype for t in operands]
        self.numbers = [k for k, t in enumerate(operands) if not t.shape]
        self.arrays = [k for k, t in enumerate(operands) if t.shape]
        self.number_types = {k: _number_type(self.types[k]) for k in self.numbers}
        self.in_place = in_place
        self.has_rows = is_column is not None
        self.columns = [k for k in self.arrays if is_column is not None and is_column[k]]

    def kernel(self) -> Kernel:
        code = Code()
        lines = self.rows(code) if self.has_rows else self.flat(code)
        arguments = ", ".join(
            ["ptr noalias %a0" if self.in_place else "ptr noalias %out"]
            + [
                f"{self.number_types[k][0]} %x{k}" if k in self.numbers
                else f"ptr noalias readonly %a{k}"
                for k in range(int(self.in_place), len(self.types))
            ]
        )  # fmt: skip
        steps = "".join(f"i64 %step{k}, " for k in self.arrays) + "i64 %rows, "
        ir = (
            f"define void @SELF({arguments}, "
            f"{steps if self.has_rows else ''}i64 %count) "
            f'nounwind "prefer-vector-width"="{jit.vector_bits()}" {{\n{chr(10).join(lines)}\n}}\n'
        )
        name = jit.name_of(ir, "elementwise")
        return Kernel(name, ir.replace("@SELF", f"@{name}"), code.helpers)

    def flat(self, code: Code) -> list[str]:
        starts = {k: f"%a{k}" for k in self.arrays}
        self.loop(code, "entry", "%a0" if self.in_place else "%out", starts, {})
        enter = ["  %any = icmp sgt i64 %count, 0", "  br i1 %any, label %body, label %end"]
        return ["entry:", *self.converted(), *enter, *code.lines, "end:", "  ret void"]

    def rows(self, code: Code) -> list[str]:
        """A loop over rows, in which columns are read once."""
        code.label("row")
        code.do("%r = phi i64 [ 0, %entry ], [ %r.next, %row.end ]")
        starts = {
            k: code.op(f"getelementptr i8, ptr %a{k}, i64 {code.op(f'mul i64 %r, %step{k}')}")
            for k in self.arrays
        }
        if self.in_place:
            out = starts[0]
        else:
            width = code.op(f"mul i64 %count, {self.out.itemsize}")
            out = code.op(f"getelementptr i8, ptr %out, i64 {code.op(f'mul i64 %r, {width}')}")
        once = {k: elementwise.load(code, self.types[k], starts[k]) for k in self.columns}
        code.do("br label %body")
        self.loop(code, "row", out, starts, once)
        code.label("row.end")
        code.do("%r.next = add nuw nsw i64 %r, 1")
        code.do(f"br i1 {code.op('icmp slt i64 %r.next, %rows')}, label %row, label %done")
        enter = ["  br label %row"]
        lines = [line.replace("label %end", "label %row.end") for line in code.lines]
        return ["entry:", *self.converted(), *enter, *lines, "done:", "  ret void"]

    def loop(
        self, code: Code, before: str, out: str, starts: dict[int, str], once: dict[int, str]
    ) -> None:
        """The loop over neighbouring elements."""
        code.label("body")
        code.do(f"%i = phi i64 [ 0, %{before} ], [ %next, %body ]")
        values = []
        for k, found in enumerate(self.types):
            if k in self.numbers:
                values.append(f"%n{k}")
            elif k in once:
                values.append(once[k])
            else:
                values.append(elementwise.load(code, found, _element(code, found, starts[k])))
        assert self.op.emit.function is not None
        element = Element(code, self.types[-1], self.out, self.attrs)
        value = self.op.emit.function(element, *values)
        elementwise.store(code, self.out, value, _element(code, self.out, out))
        code.do("%next = add nuw nsw i64 %i, 1")
        more = code.op("icmp slt i64 %next, %count")
        code.do(f"br i1 {more}, label %body, label %end")

    def converted(self) -> list[str]:
        """Numbers in the types of their operands."""
        lines = []
        for k in self.numbers:
            found = self.types[k]
            kind = elementwise.KINDS[found]
            if not kind.is_float:
                word = (
                    "add i64 %x{0}, 0" if kind.bits == 64 else "trunc i64 %x{0} to " + kind.compute
                )
            elif found is dtypes.float64:
                word = "fadd double %x{0}, -0.0"
            else:
                word = "fptrunc double %x{0} to float"
            lines.append(f"  %n{k} = {word.format(k)}")
        return lines


def _number_type(found: dtype) -> tuple[str, type]:
    """How an operand without dimensions is passed: its IR type and that of ctypes."""
    is_float = elementwise.KINDS[found].is_float
    return ("double", ctypes.c_double) if is_float else ("i64", ctypes.c_int64)


def _element(code: Code, found: dtype, start: str) -> str:
    storage = elementwise.KINDS[found].storage
    return code.op(f"getelementptr {storage}, ptr {start}, i64 %i")
