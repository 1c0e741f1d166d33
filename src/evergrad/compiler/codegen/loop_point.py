"""One point of an iteration domain: the values computed there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.loop_accesses import PARALLEL, Factor
from evergrad.core.row_facts import Indexing
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.creation.constants import FULL

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter
    from evergrad.compiler.codegen.loop_accesses import Access


class IterationPoint:
    """The values computed so far at given inner indices, in the pass of this number.

    ``is_isolated``: the point is not one of an inner loop, so that values kept by earlier passes
    are not used.
    """

    def __init__(
        self, loops: LoopEmitter, number: int, indices: list[str], is_isolated: bool = False
    ) -> None:
        self.loops = loops
        self.number = number
        self.indices = indices
        self.is_isolated = is_isolated
        self.memo: dict[Var, str] = {}
        self.loaded: dict[int, str] = {}
        self._linear: str | None = None
        self.tag = "" if is_isolated else PARALLEL

    @property
    def lane(self) -> str:
        """The innermost index."""
        return self.indices[-1]

    def operand(self, operand: Any) -> str:
        if isinstance(operand, str):
            return operand
        if isinstance(operand, Factor):
            return self.loops.entry.factor(operand)
        return self.value(operand) if isinstance(operand, Var) else self.load(operand)

    def load(self, access: Access) -> str:
        loops = self.loops
        if not self.is_isolated and id(access) in loops.invariant:
            return loops.invariant[id(access)]
        if id(access) not in self.loaded:
            self.loaded[id(access)] = loops.read(access, self.address(access), self.tag)
        return self.loaded[id(access)]

    def address(self, access: Access) -> str:
        loops, code = self.loops, self.loops.code
        address = loops.bases[id(access)]
        last = len(self.indices) - 1
        for d, index in enumerate(self.indices):
            stride = access.inner[d]
            if not stride:
                continue
            if d == last and abs(stride) == access.dtype.itemsize:
                kind = KINDS[access.dtype]
                step = index if stride > 0 else code.op(f"sub nsw i64 0, {index}")
                address = code.op(f"getelementptr {kind.storage}, ptr {address}, i64 {step}")
            else:
                given = loops.inner_stride(access, d)
                offset = code.op(f"mul i64 {index}, {given}")
                address = code.op(f"getelementptr i8, ptr {address}, i64 {offset}")
        return address

    def linear(self) -> str:
        """The linear index over all inner dimensions."""
        if self._linear is None:
            code = self.loops.code
            found = self.indices[0]
            for d, index in enumerate(self.indices[1:], 1):
                scaled = code.op(f"mul i64 {found}, {self.loops.entry.number(('inner', d))}")
                found = code.op(f"add i64 {scaled}, {index}")
            self._linear = found
        return self._linear

    def value(self, var: Var) -> str:
        """A value of the group; its operands are computed first, without recursion."""
        pending = [var]
        while pending:
            found = pending[-1]
            missing = [] if found in self.memo else self.missing_for(found)
            if not missing:
                if found not in self.memo:
                    self.memo[found] = self.compute(found)
                pending.pop()
            pending += missing
        return self.memo[var]

    def missing_for(self, var: Var) -> list[Var]:
        """The operands of a value that are not computed yet."""
        if self.is_kept(var):
            return []
        eqn, uses = self.loops.producer[var], self.loops.uses
        sources = [uses[id(eqn), i] for i in range(len(eqn.args))]
        return [s for s in sources if isinstance(s, Var) and s not in self.memo]

    def is_kept(self, var: Var) -> bool:
        """Whether a value was computed before: it is an outer one, or an earlier pass kept it."""
        loops = self.loops
        if loops.is_outer(var) and var in loops.outer_values:
            return True
        is_in_memory = var in loops.scratch or var in loops.stores
        return not self.is_isolated and loops.stage[var] < self.number and is_in_memory

    def compute(self, var: Var) -> str:
        loops = self.loops
        if self.is_kept(var):
            if loops.is_outer(var) and var in loops.outer_values:
                if loops.by_lanes:
                    return loops.lanes.outer_value(var, self.lane)
                return loops.outer_values[var]
            if var in loops.scratch:
                return self.load_scratch(var)
            return self.load(loops.stores[var])
        eqn = loops.producer[var]
        if eqn.op.indexing is Indexing.LOOKUP:
            return self.operand(loops.uses[id(eqn), 0])
        args = [self.operand(operand) for operand in loops.operands(eqn)]
        if eqn.op.indexing is Indexing.SPREAD:
            found = eqn.outs[0].type.dtype
            here = loops.code.op(f"icmp eq i64 {self.linear()}, {args[1]}")
            type = KINDS[found].compute
            return loops.code.op(
                f"select i1 {here}, {type} {args[0]}, {type} {elementwise.constant(0, found)}"
            )
        return emit_element(loops.code, eqn, args)

    def store(self, access: Access, value: str) -> None:
        elementwise.store(self.loops.code, access.dtype, value, self.address(access), self.tag)

    def scratch_address(self, var: Var) -> str:
        loops = self.loops
        type = KINDS[var.type.dtype].compute
        base = loops.scratch_row(loops.scratch[var])
        return loops.code.op(f"getelementptr {type}, ptr {base}, i64 {self.linear()}")

    def store_scratch(self, var: Var, value: str) -> None:
        type = KINDS[var.type.dtype].compute
        address = self.scratch_address(var)
        self.loops.code.do(f"store {type} {value}, ptr {address}{self.tag}")

    def load_scratch(self, var: Var) -> str:
        type = KINDS[var.type.dtype].compute
        return self.loops.code.op(f"load {type}, ptr {self.scratch_address(var)}{self.tag}")


def emit_element(code: Code, eqn: Equation, args: list[str]) -> str:
    """IR of one element of an elementwise equation."""
    operands = eqn.specialization.operands
    out = eqn.specialization.out_types[0].dtype
    if eqn.op is FULL:
        return elementwise.literal(eqn.args[0], out)
    # The last operand: that of a selection is a value, its first the condition.
    return elementwise.emit_op(code, eqn.op, operands[-1].dtype, out, eqn.attrs, args)
