"""The entry block of a loop kernel: loads of its arguments, and stack variables.

Extents and strides are arguments: the IR depends on the structure of the loops alone.
"""

from __future__ import annotations

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.ir_builder import CACHE_LINE
from evergrad.compiler.codegen.loop_accesses import Factor
from evergrad.compiler.codegen.loop_nest import LoopNest


class EntryBlock:
    """The lines of the entry block. ``numbers`` are the integer arguments, which follow the
    pointers; ``index`` gives the position of each among all arguments."""

    def __init__(self, code: Code, nest: LoopNest) -> None:
        self.code = code
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.index: dict[object, int] = {}
        self.pointers: int = len(nest.slots) + len(nest.outer_reductions())
        per_chunk, chunks = nest.partition()
        self.chunks: int = chunks * nest.group.blocks
        total = nest.inner_size if nest.flat else nest.outer_size
        self.add("total", total // nest.group.blocks)
        self.add("per_chunk", per_chunk)
        if nest.is_costly:
            self.add("zero", 0)
        if nest.group.blocks > 1:
            self.add("chunks", chunks)
        for d, extent in enumerate(nest.outer_extents):
            self.add(("outer", d), extent)
        for d, extent in enumerate(nest.inner_extents):
            self.add(("inner", d), extent)
        for d, extent in enumerate(nest.tiled_extents):
            self.add(("tiled", d), extent)
        for access in nest.accesses:
            if access.column is not None:
                self.add(("column", id(access)), access.column // access.dtype.itemsize)
            for d, stride in enumerate(access.outer):
                self.add(("outer stride", id(access), d), stride)
            for d, stride in enumerate(access.inner):
                self.add(("inner stride", id(access), d), stride)
            if access.lookup is not None:
                self.add(("table stride", id(access)), access.lookup.stride)
                self.add(("table extent", id(access)), access.lookup.extent)
        for factor in nest.factors:
            self.add(factor, factor.bits)

    def add(self, key: object, value: int) -> None:
        self.index[key] = self.pointers + len(self.numbers)
        self.numbers.append(value)

    def number(self, key: object) -> str:
        """An integer argument."""
        return self._loaded("i64", f"%n{self.index[key]}", self.index[key])

    def factor(self, factor: Factor) -> str:
        """A literal that is an argument."""
        index = self.index[factor]
        name = self._loaded("double", f"%d{index}", index)
        if factor.type == "double":
            return name
        line = f"  {name}f = fptrunc double {name} to float"
        if line not in self.lines:
            self.lines.append(line)
        return f"{name}f"

    def pointer(self, slot: int) -> str:
        return self._loaded("ptr", f"%p{slot}", slot)

    def _loaded(self, type: str, name: str, index: int) -> str:
        line = f"  {name} = load {type}, ptr {name}p, align 8"
        if line not in self.lines:
            self.lines.append(f"  {name}p = getelementptr i64, ptr %args, i64 {index}")
            self.lines.append(line)
        return name

    def memory(self, size: int) -> str:
        """Some bytes on the stack, at the start of a cache line."""
        name = f"%{self.code.fresh('m')}"
        self.lines.append(f"  {name} = alloca [{size} x i8], align {CACHE_LINE}")
        return name

    def variable(self, type: str) -> str:
        """A variable on the stack, which LLVM promotes to a register."""
        name = f"%{self.code.fresh('m')}"
        self.lines.append(f"  {name} = alloca {type}")
        return name
