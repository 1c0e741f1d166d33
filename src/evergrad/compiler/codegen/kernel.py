"""Kernels: LLVM IR with the arguments it is called with."""

from __future__ import annotations

from typing import Any, NamedTuple

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.native.jit import name_of
from evergrad.core.row_facts import Combine
from evergrad.core.trace import Var


class Chunking(NamedTuple):
    """How a loop kernel partitions its iteration domain: ``total`` units of ``unit`` elements each
    (outer iterations, or single elements), of which a chunk takes as many as the number at
    ``per_chunk``. ``contiguous_slots`` are the pointers to operands that are contiguous in the
    order of the units."""

    unit: int
    total: int
    per_chunk: int
    contiguous_slots: frozenset[int]


class Kernel:
    """LLVM IR of one function with the functions it calls (``helpers``), and its arguments.

    ``slots`` name its pointer arguments in order: a value that is read or written, the partial
    results of one, or the status word. ``numbers`` are the integer arguments that follow.
    """

    def __init__(self, name: str, ir: str, helpers: dict[str, str] | None = None) -> None:
        self.name = name
        self.ir = ir
        self.helpers: dict[str, str] = {} if helpers is None else helpers
        self.slots: list[tuple[str, Any]] = []
        self.numbers: list[int] = []
        self.chunks = 1
        self.scratch = 0
        # Numbers that are addresses in this process, by position: of the matrix product of
        # OpenBLAS for the element type of this name.
        self.products: dict[int, str] = {}
        # Numbers that are addresses of other kernels, which this one calls.
        self.calls: dict[int, Kernel] = {}
        self.chunking: Chunking | None = None
        self.passes = 1  # traversals of its elements
        # Outer reductions: (value, op, elements of one partial result).
        self.partials: list[tuple[Var, Combine, int]] = []

    def without_ir(self) -> Kernel:
        """A kernel that has machine code, with what its launch needs."""
        made = Kernel(self.name, "")
        made.numbers, made.products = self.numbers, self.products
        made.calls = {place: called.without_ir() for place, called in self.calls.items()}
        made.chunks, made.scratch = self.chunks, self.scratch
        return made


def kernel_of(code: Code, kind: str) -> Kernel:
    """The kernel with a text as its body, without arguments."""
    body = "\n".join(code.lines)
    ir = (
        "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {\nentry:\n"
        f"{body}\n  ret void\n}}\n"
    )
    name = name_of(ir + "".join(code.helpers.values()), kind)
    return Kernel(name, ir.replace("@SELF", f"@{name}"), code.helpers)
