"""One element of a loop: values computed so far, at given indices along a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.elementwise import KINDS, Code, Element
from evergrad.core.trace import Equation, Var

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopWriter
    from evergrad.compiler.codegen.loop_nest import Access


class Point:
    """One element of a row: values computed so far, at given indices along the row.

    ``alone`` says that it is a single element, for which scratch rows and stores are not consulted.
    """

    def __init__(
        self, writer: LoopWriter, number: int, indices: list[str] | None, alone: bool = False
    ) -> None:
        self.writer = writer
        self.number = number
        self.indices = indices or []
        self.alone = alone
        self.memo: dict[Var, str] = {}
        self.loaded: dict[int, str] = {}
        self._linear: str | None = None
        self.tag = "" if alone else ", !llvm.access.group !M0"

    def source(self, source: Any) -> str:
        if isinstance(source, str):
            return source
        return self.value(source) if isinstance(source, Var) else self.load(source)

    def load(self, access: Access) -> str:
        writer = self.writer
        if not self.alone and id(access) in writer.invariant:
            return writer.invariant[id(access)]
        if id(access) not in self.loaded:
            self.loaded[id(access)] = writer.read(access, self.address(access), self.tag)
        return self.loaded[id(access)]

    def address(self, access: Access) -> str:
        writer, code = self.writer, self.writer.code
        address = writer.bases[id(access)]
        last = len(self.indices) - 1
        for d, index in enumerate(self.indices):
            step = access.inner[d]
            if not step:
                continue
            if d == last and step == access.dtype.itemsize:
                kind = KINDS[access.dtype]
                address = code.op(f"getelementptr {kind.storage}, ptr {address}, i64 {index}")
            else:
                offset = code.op(f"mul i64 {index}, {writer.get(('inner of', id(access), d))}")
                address = code.op(f"getelementptr i8, ptr {address}, i64 {offset}")
        return address

    def linear(self) -> str:
        """The place in the row, counted through all its dimensions."""
        if self._linear is None:
            code = self.writer.code
            found = self.indices[0]
            for d, index in enumerate(self.indices[1:], 1):
                scaled = code.op(f"mul i64 {found}, {self.writer.get(('inner', d))}")
                found = code.op(f"add i64 {scaled}, {index}")
            self._linear = found
        return self._linear

    def value(self, var: Var) -> str:
        """A value of the group; what it depends on is computed first, however long the chain."""
        waiting = [var]
        while waiting:
            found = waiting[-1]
            missing = [] if found in self.memo else self.missing_for(found)
            if not missing:
                if found not in self.memo:
                    self.memo[found] = self.compute(found)
                waiting.pop()
            waiting += missing
        return self.memo[var]

    def missing_for(self, var: Var) -> list[Var]:
        """The values that have to be computed before this one."""
        if self.is_at_hand(var):
            return []
        eqn, uses = self.writer.maker[var], self.writer.uses
        sources = [uses[id(eqn), i] for i in range(len(eqn.args))]
        return [s for s in sources if isinstance(s, Var) and s not in self.memo]

    def is_at_hand(self, var: Var) -> bool:
        """Whether a value was computed before: it is a row's, or an earlier pass kept it."""
        writer = self.writer
        if writer.is_row(var) and var in writer.row_values:
            return True
        kept = var in writer.scratch or var in writer.outlets
        return not self.alone and writer.stage[var] < self.number and kept

    def compute(self, var: Var) -> str:
        writer = self.writer
        if self.is_at_hand(var):
            if writer.is_row(var) and var in writer.row_values:
                return writer.row_values[var]
            if var in writer.scratch:
                return self.from_scratch(var)
            return self.load(writer.outlets[var])
        eqn = writer.maker[var]
        if eqn.op.name == "index":
            return self.source(writer.uses[id(eqn), 0])
        args = [self.source(source) for source in writer.sources(eqn)]
        if eqn.op.name == "scatter_sum":
            found = eqn.outs[0].type.dtype
            here = writer.code.op(f"icmp eq i64 {self.linear()}, {args[1]}")
            type = KINDS[found].compute
            return writer.code.op(
                f"select i1 {here}, {type} {args[0]}, {type} {elementwise.constant(0, found)}"
            )
        return element(writer.code, eqn, args)

    def put(self, access: Access, value: str) -> None:
        elementwise.store(self.writer.code, access.dtype, value, self.address(access), self.tag)

    def scratch_address(self, var: Var) -> str:
        writer = self.writer
        type = KINDS[var.type.dtype].compute
        start = writer.scratch[var] * writer.scratch_row()
        base = writer.code.op(f"getelementptr i8, ptr %scratch, i64 {start}")
        return writer.code.op(f"getelementptr {type}, ptr {base}, i64 {self.linear()}")

    def put_scratch(self, var: Var, value: str) -> None:
        type = KINDS[var.type.dtype].compute
        address = self.scratch_address(var)
        self.writer.code.do(f"store {type} {value}, ptr {address}{self.tag}")

    def from_scratch(self, var: Var) -> str:
        type = KINDS[var.type.dtype].compute
        return self.writer.code.op(f"load {type}, ptr {self.scratch_address(var)}{self.tag}")


def element(code: Code, eqn: Equation, args: list[str]) -> str:
    """One element of an elementwise equation."""
    operands = eqn.specialization.operands
    out = eqn.specialization.out_types[0].dtype
    if eqn.op.name == "full":
        return elementwise.literal(eqn.args[0], out)
    if eqn.op.name == "where":
        kind = KINDS[out].compute
        return code.op(f"select i1 {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
    given = Element(code, operands[0].dtype, out, eqn.attrs)
    return elementwise.rounded(code, out, elementwise.ELEMENTWISE[eqn.op.name](given, *args))
