"""A group of equations as one loop nest, written as LLVM IR.

The nest goes over rows; each row is passed over once for every fold along it that something later
waits for. What a later pass needs again is computed again, or, if that is expensive, kept in a
scratch row that stays in cache. Folds over rows leave one partial result per chunk of rows, and
:func:`~.codegen.reductions.combination` adds these up in a fixed order, so that results do not
depend on who ran what.

Extents and strides are arguments of the kernel: its text tells the structure alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.loop_elements import Point, element
from evergrad.compiler.codegen.loop_kernels import shared
from evergrad.compiler.codegen.loop_nest import NOWHERE, STATUS, Access, LoopSpace
from evergrad.compiler.codegen.reductions import (
    fold,
    from_order,
    is_ordered,
    memory_type,
    ordered_start,
    ordered_type,
    start_of,
    take_in_order,
)
from evergrad.compiler.native.jit import name_of, vector_bits
from evergrad.compiler.schedule.index_maps import FOLDS
from evergrad.compiler.schedule.instructions import Kernel
from evergrad.core.trace import Equation, Var

# A chunk is worth claiming if it has about this many elements.
_CHUNK = 8192
_MOST_CHUNKS = 64
_MOST_PARTIALS = 16


class LoopWriter(LoopSpace):
    """Writes the kernel of one group."""

    # -- writing --------------------------------------------------------------------------------

    def write(self) -> Kernel:
        """The kernel of the group, as it was written for another of the same structure if any."""
        return shared(self)

    def written(self) -> Kernel:
        code = self.code
        self.entry: list[str] = []
        self.loop_count = 0
        self.metadata: list[str] = []
        self.late_sums: list[tuple[Equation, str]] = []
        self.number_args()
        self.chunk_bounds()
        self.start_late()
        if self.flat:
            self.bases = {id(a): self.pointer(a) for a in self.accesses}
            self.row_values: dict[Var, str] = {}
            self.passes_over_row()
        else:
            self.loop("%row_lo", "%row_hi", self.one_row, vector=False)
        self.finish_late()
        code.do("ret void")
        return self.finished()

    def number_args(self) -> None:
        """The numbers that follow the pointers in the arguments."""
        self.numbers: list[int] = []
        self.places: dict[Any, int] = {}
        per_chunk, chunks = self.partition()
        self.chunks = chunks * self.group.blocks
        total = self.row_length if self.flat else self.rows
        for key, value in (("total", total // self.group.blocks), ("per_chunk", per_chunk)):
            self.number(key, value)
        if self.group.blocks > 1:
            self.number("chunks", chunks)
        for d, extent in enumerate(self.row_extents):
            self.number(("row", d), extent)
        for d, extent in enumerate(self.inner_extents):
            self.number(("inner", d), extent)
        for access in self.accesses:
            for d, stride in enumerate(access.rows):
                self.number(("rows of", id(access), d), stride)
            for d, stride in enumerate(access.inner):
                self.number(("inner of", id(access), d), stride)
            if access.lookup is not None:
                self.number(("table", id(access)), access.lookup[1])
                self.number(("height", id(access)), access.lookup[2])

    def number(self, key: Any, value: int) -> None:
        self.places[key] = len(self.slots) + len(self.late_slots()) + len(self.numbers)
        self.numbers.append(value)

    def late_slots(self) -> list[Equation]:
        return [e for e in self.group.members if e.outs[0] in self.group.late]

    def partition(self) -> tuple[int, int]:
        """How many rows (or elements) a chunk has, and how many chunks a block has: by shape."""
        units, weight = (self.row_length, 1) if self.flat else (self.rows, self.row_length)
        blocks = self.group.blocks
        most = _MOST_PARTIALS if self.group.late else _MOST_CHUNKS
        wanted = max(1, min(most, units, units * weight * self.passes // _CHUNK))
        units //= blocks
        per_chunk = -(-units // max(1, wanted // blocks))
        if self.flat:
            per_chunk = -(-per_chunk // 64) * 64
        return per_chunk, -(-units // per_chunk)

    def get(self, key: Any) -> str:
        """A number of the arguments, loaded at the start."""
        name = f"%n{self.places[key]}"
        line = f"  {name} = load i64, ptr {name}p, align 8"
        if line not in self.entry:
            self.entry.append(f"  {name}p = getelementptr i64, ptr %args, i64 {self.places[key]}")
            self.entry.append(line)
        return name

    def pointer_at(self, slot: int) -> str:
        name = f"%p{slot}"
        line = f"  {name} = load ptr, ptr {name}p, align 8"
        if line not in self.entry:
            self.entry.append(f"  {name}p = getelementptr i64, ptr %args, i64 {slot}")
            self.entry.append(line)
        return name

    def pointer(self, access: Access) -> str:
        return "null" if access.slot == NOWHERE else self.pointer_at(access.slot)

    def read(self, access: Access, address: str, tag: str = "") -> str:
        """The element at an address, or its number."""
        if access.slot == NOWHERE:
            return self.code.op(f"ptrtoint ptr {address} to i64")
        return elementwise.load(self.code, access.dtype, address, tag)

    def variable(self, type: str) -> str:
        name = f"%{self.code.fresh('m')}"
        self.entry.append(f"  {name} = alloca {type}")
        return name

    def chunk_bounds(self) -> None:
        code = self.code
        part, start = "%chunk", "0"
        if self.group.blocks > 1:
            block = code.op(f"udiv i64 %chunk, {self.get('chunks')}")
            part = code.op(f"urem i64 %chunk, {self.get('chunks')}")
            start = code.op(f"mul i64 {block}, {self.get('total')}")
        low = code.op(f"mul i64 {part}, {self.get('per_chunk')}")
        high = code.op(f"add i64 {low}, {self.get('per_chunk')}")
        short = code.op(f"icmp slt i64 {high}, {self.get('total')}")
        high = code.op(f"select i1 {short}, i64 {high}, i64 {self.get('total')}")
        code.do(f"%row_lo = add i64 {low}, {start}")
        code.do(f"%row_hi = add i64 {high}, {start}")

    def loop(self, low: str, high: str, body: Callable[[str], None], vector: bool) -> None:
        code = self.code
        counter = self.variable("i64")
        head, inside, end = (code.fresh(word) for word in ("head", "body", "end"))
        code.do(f"store i64 {low}, ptr {counter}")
        code.do(f"br label %{head}")
        code.label(head)
        index = code.op(f"load i64, ptr {counter}")
        code.do(f"br i1 {code.op(f'icmp slt i64 {index}, {high}')}, label %{inside}, label %{end}")
        code.label(inside)
        body(index)
        code.do(f"store i64 {code.op(f'add nsw i64 {index}, 1')}, ptr {counter}")
        tag = ""
        if vector:
            self.loop_count += 2
            n = self.loop_count
            self.metadata += [
                f"!M{n} = distinct !{{!M{n}, !M{n + 1}}}",
                f'!M{n + 1} = !{{!"llvm.loop.parallel_accesses", !M0}}',
            ]
            tag = f", !llvm.loop !M{n}"
        code.do(f"br label %{head}{tag}")
        code.label(end)

    # -- one row --------------------------------------------------------------------------------

    def one_row(self, row: str) -> None:
        code = self.code
        indices: list[str] = []
        rest = row
        for d in reversed(range(1, len(self.row_extents))):
            extent = self.get(("row", d))
            indices.insert(0, code.op(f"urem i64 {rest}, {extent}"))
            rest = code.op(f"udiv i64 {rest}, {extent}")
        if self.row_extents:
            indices.insert(0, rest)
        self.bases = {}
        for access in self.accesses:
            if access.lookup is None:
                self.bases[id(access)] = self.moved(access, indices)
        self.row_values = {}
        for access in self.accesses:
            if access.lookup is not None:
                self.bases[id(access)] = self.looked_up(access)
        self.row_stage(-1)
        self.passes_over_row()

    def moved(self, access: Access, indices: list[str]) -> str:
        code = self.code
        address = self.pointer(access)
        for d, index in enumerate(indices):
            if access.rows[d]:
                step = code.op(f"mul i64 {index}, {self.get(('rows of', id(access), d))}")
                address = code.op(f"getelementptr i8, ptr {address}, i64 {step}")
        return address

    def looked_up(self, access: Access) -> str:
        assert access.lookup is not None
        places, _, _, wraps = access.lookup
        code = self.code
        index = elementwise.load(code, places.dtype, self.bases[id(places)])
        index = self.within(index, self.get(("height", id(access))), wraps)
        step = code.op(f"mul i64 {index}, {self.get(('table', id(access)))}")
        return code.op(f"getelementptr i8, ptr {self.pointer(access)}, i64 {step}")

    def within(self, index: str, extent: str, wraps: bool) -> str:
        """An index that is sure to lie inside; one that did not is told of."""
        code = self.code
        if wraps:
            raised = code.op(f"add i64 {index}, {extent}")
            negative = code.op(f"icmp slt i64 {index}, 0")
            index = code.op(f"select i1 {negative}, i64 {raised}, i64 {index}")
        inside = code.op(f"icmp ult i64 {index}, {extent}")
        bad, good = code.fresh("bad"), code.fresh("good")
        code.do(f"br i1 {inside}, label %{good}, label %{bad}")
        code.label(bad)
        code.do(f"store i64 1, ptr {self.pointer_at(self.slot(STATUS, None))}, align 8")
        code.do(f"br label %{good}")
        code.label(good)
        return code.op(f"select i1 {inside}, i64 {index}, i64 0")

    def passes_over_row(self) -> None:
        for number in range(self.passes):
            self.one_pass(number)
            if not self.flat:
                self.row_stage(number)

    def one_pass(self, number: int) -> None:
        """Go through a row once: stores, folds and scratch rows that are due."""
        folds = [e for e in self.group.members if e.op.name in FOLDS
                 and self.stage[e.outs[0]] == number and self.folds_full(e)]  # fmt: skip
        stores = [v for v in self.outlets if self.stage[v] == number and not self.is_row(v)]
        kept = [v for v in self.scratch if self.stage[v] == number]
        if not (folds or stores or kept):
            return
        sums = {}
        for eqn in folds:
            if eqn.outs[0] not in self.group.late:
                sums[id(eqn)] = self.row_accumulator(eqn)
        self.invariant: dict[int, str] = {}

        def innermost(indices: list[str]) -> None:
            context = Point(self, number, indices)
            # What is written may lie over what is read.
            for var in (*kept, *stores):
                context.value(var)
            for eqn in folds:
                context.source(self.uses[id(eqn), 0])
            for var in kept:
                context.put_scratch(var, context.value(var))
            for var in stores:
                context.put(self.outlets[var], context.value(var))
            for eqn in folds:
                self.take_in(eqn, context, sums.get(id(eqn)))

        self.hoist()
        self.nest(innermost, [])
        for eqn in folds:
            if id(eqn) in sums:
                total = self.folded_row(eqn, sums[id(eqn)])
                self.row_values[eqn.outs[0]] = elementwise.rounded(
                    self.code, eqn.outs[0].type.dtype, total
                )

    def nest(self, innermost: Callable[[list[str]], None], indices: list[str]) -> None:
        """Loops over the inner dimensions, from the one after ``indices`` on."""
        depth = len(indices)
        last = depth == len(self.inner_extents) - 1
        low, high = ("%row_lo", "%row_hi") if self.flat else ("0", self.get(("inner", depth)))

        def step(i: str) -> None:
            if last:
                innermost([*indices, i])
            else:
                self.nest(innermost, [*indices, i])

        self.loop(low, high, step, vector=last)

    def hoist(self) -> None:
        """Load what does not vary along a row before the loop over it."""
        for access in self.accesses:
            if not any(access.inner) and self.is_input(access):
                self.invariant[id(access)] = elementwise.load(
                    self.code, access.dtype, self.bases[id(access)]
                )

    def is_input(self, access: Access) -> bool:
        return access.slot != NOWHERE and self.slots[access.slot][0] == "read"

    def folds_full(self, eqn: Equation) -> bool:
        source = self.uses[id(eqn), 0]
        return not isinstance(source, Var) or not self.is_row(source)

    def row_stage(self, number: int) -> None:
        """What is one number per row and known after this pass."""
        for eqn in self.group.members:
            out = eqn.outs[0]
            if self.stage[out] != number:
                continue
            if eqn.op.name in FOLDS:
                if out in self.group.late and not self.folds_full(eqn):
                    self.add_late(eqn, self.row_value(self.uses[id(eqn), 0]))
                    continue
            elif self.is_row(out) and eqn.op.name != "index":
                self.row_values[out] = self.row_element(eqn)
            else:
                continue
            if out in self.outlets and out in self.row_values:
                elementwise.store(
                    self.code, out.type.dtype, self.row_values[out],
                    self.bases[id(self.outlets[out])],
                )  # fmt: skip

    def row_element(self, eqn: Equation) -> str:
        if eqn.op.name == "gather":
            index = self.row_value(self.uses[id(eqn), 1])
            index = self.within(index, self.get(("inner", 0)), False)
            context = Point(self, self.stage[eqn.outs[0]] + 1, [index], alone=True)
            return context.source(self.uses[id(eqn), 0])
        args = [self.row_value(source) for source in self.sources(eqn)]
        return element(self.code, eqn, args)

    def row_value(self, source: Any) -> str:
        if isinstance(source, str):
            return source
        if isinstance(source, Access):
            return self.read(source, self.bases[id(source)])
        return self.row_values[source]

    # -- folds ----------------------------------------------------------------------------------

    def accumulator(self, eqn: Equation) -> str:
        type = KINDS[eqn.specialization.operands[0].dtype].compute
        name = self.variable(type)
        self.code.do(f"store {type} {start_of(eqn)}, ptr {name}")
        return name

    def row_accumulator(self, eqn: Equation) -> str:
        if not is_ordered(eqn):
            return self.accumulator(eqn)
        name = self.variable(ordered_type(eqn))
        self.code.do(f"store {ordered_type(eqn)} {ordered_start(eqn)}, ptr {name}")
        return name

    def folded_row(self, eqn: Equation, sum: str) -> str:
        if is_ordered(eqn):
            held = self.code.op(f"load {ordered_type(eqn)}, ptr {sum}")
            return from_order(self.code, eqn, held)
        type = KINDS[eqn.specialization.operands[0].dtype].compute
        return self.code.op(f"load {type}, ptr {sum}")

    def take_in(self, eqn: Equation, context: Point, sum: str | None) -> None:
        value = context.source(self.uses[id(eqn), 0])
        type = KINDS[eqn.specialization.operands[0].dtype].compute
        if sum is not None and is_ordered(eqn):
            integer = ordered_type(eqn)
            held = self.code.op(f"load {integer}, ptr {sum}")
            greater = take_in_order(self.code, eqn, held, value)
            self.code.do(f"store {integer} {greater}, ptr {sum}")
            return
        if sum is not None:
            held = self.code.op(f"load {type}, ptr {sum}")
            self.code.do(f"store {type} {fold(self.code, eqn, held, value)}, ptr {sum}")
            return
        if self.is_column(eqn):
            partial = self.late_pointer(eqn)
            address = self.code.op(f"getelementptr {type}, ptr {partial}, i64 {context.linear()}")
            tag = ", !llvm.access.group !M0"
            held = self.code.op(f"load {type}, ptr {address}{tag}")
            result = fold(self.code, eqn, held, value)
            self.code.do(f"store {type} {result}, ptr {address}{tag}")
            return
        self.add_late(eqn, value)

    def is_column(self, eqn: Equation) -> bool:
        """Whether a late fold leaves one number per place in a row, rather than one in all."""
        return self.folds_full(eqn) and eqn.outs[0].type.numel > 1

    def late_length(self, eqn: Equation) -> int:
        """The numbers that one chunk leaves."""
        return self.row_length if self.is_column(eqn) else 1

    def late_pointer(self, eqn: Equation) -> str:
        return self.late_pointers[id(eqn)]

    def start_late(self) -> None:
        """Partial results of this chunk: columns in memory, single numbers in a variable."""
        code = self.code
        self.late_pointers: dict[int, str] = {}
        self.late_variables: dict[int, str] = {}
        for number, eqn in enumerate(self.late_slots()):
            type = KINDS[eqn.specialization.operands[0].dtype].compute
            whole = self.pointer_at(len(self.slots) + number)
            if not self.is_column(eqn):
                self.late_variables[id(eqn)] = self.accumulator(eqn)
                self.late_pointers[id(eqn)] = code.op(
                    f"getelementptr {memory_type(type)}, ptr {whole}, i64 %chunk"
                )
                continue
            # The columns of a partial lie in the order of a row.
            count = self.get(("inner", 0))
            for d in range(1, len(self.inner_extents)):
                count = code.op(f"mul i64 {count}, {self.get(('inner', d))}")
            begin = code.op(f"mul i64 %chunk, {count}")
            start = code.op(f"getelementptr {type}, ptr {whole}, i64 {begin}")
            self.late_pointers[id(eqn)] = start

            def clear(index: str, start: str = start, type: str = type, eqn: Any = eqn) -> None:
                place = code.op(f"getelementptr {type}, ptr {start}, i64 {index}")
                code.do(f"store {type} {start_of(eqn)}, ptr {place}, !llvm.access.group !M0")

            self.loop("0", count, clear, vector=True)

    def add_late(self, eqn: Equation, value: str) -> None:
        type = KINDS[eqn.specialization.operands[0].dtype].compute
        held = self.code.op(f"load {type}, ptr {self.late_variables[id(eqn)]}")
        result = fold(self.code, eqn, held, value)
        self.code.do(f"store {type} {result}, ptr {self.late_variables[id(eqn)]}")

    def finish_late(self) -> None:
        for eqn in self.late_slots():
            if id(eqn) in self.late_variables:
                type = KINDS[eqn.specialization.operands[0].dtype].compute
                held = self.code.op(f"load {type}, ptr {self.late_variables[id(eqn)]}")
                if type == "i1":
                    held = self.code.op(f"zext i1 {held} to i8")
                self.code.do(f"store {memory_type(type)} {held}, ptr {self.late_pointers[id(eqn)]}")

    def finished(self) -> Kernel:
        lines = "\n".join(["entry:", *self.entry, "  br label %start", "start:", *self.code.lines])
        attributes = f'nounwind "prefer-vector-width"="{vector_bits()}"'
        body = (
            f"define void @SELF(ptr %args, i64 %chunk, ptr %scratch) {attributes} {{\n{lines}\n}}\n"
            + "\n".join(["!M0 = distinct !{}", *self.metadata])
        )
        name = name_of(body, "loops")
        kernel = Kernel(self.code, name, body.replace("@SELF", f"@{name}"))
        kernel.slots = [*self.slots, *(("partial", e.outs[0]) for e in self.late_slots())]
        kernel.numbers = self.numbers
        kernel.chunks = self.chunks
        kernel.passes = self.passes
        kernel.scratch = len(self.scratch) * self.scratch_row()
        kernel.partials = [(e.outs[0], e.op.name, self.late_length(e)) for e in self.late_slots()]
        kernel.walk = self.walk(self.places["per_chunk"] - len(kernel.slots))
        return kernel

    def scratch_row(self) -> int:
        return -(-self.row_length * 8 // 64) * 64
