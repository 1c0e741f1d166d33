"""LLVM IR of a fusion group: one loop nest.

Each outer iteration runs the passes over the inner loops. A value that a later pass needs is
recomputed there, or, if that is expensive, kept in scratch memory that stays in cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.blocked_sums import BLOCK, ROWS, is_float_sum
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.loop_accesses import NO_SLOT, STATUS, Access, Factor
from evergrad.compiler.codegen.loop_entry import EntryBlock
from evergrad.compiler.codegen.loop_kernel_cache import cached_kernel
from evergrad.compiler.codegen.loop_lanes import LaneEmitter
from evergrad.compiler.codegen.loop_nest import TILE_COLUMNS, LoopNest
from evergrad.compiler.codegen.loop_point import IterationPoint, emit_element
from evergrad.compiler.codegen.loop_reductions import ReductionEmitter
from evergrad.compiler.codegen.reductions import combine_of
from evergrad.compiler.codegen.transposed_tiles import tile_function
from evergrad.compiler.native.jit import name_of, vector_bits
from evergrad.core.row_facts import Combine, Indexing
from evergrad.core.trace import Equation, Var


class LoopEmitter(LoopNest):
    """Emits the kernel of one group."""

    def kernel(self) -> Kernel:
        """The kernel of the group with its arguments; its IR may be that of a group of the same
        structure."""
        return self.with_arguments(cached_kernel(self))

    def with_arguments(self, emitted: Kernel) -> Kernel:
        """A kernel with this IR and the arguments of the group."""
        entry = EntryBlock(Code(), self)
        kernel = Kernel(emitted.name, emitted.ir, emitted.helpers)
        kernel.slots = self.kernel_slots()
        kernel.partials = self.kernel_partials()
        kernel.numbers = entry.numbers
        kernel.chunks = entry.chunks
        kernel.passes = self.passes
        kernel.scratch = (len(self.scratch) + 2 * len(self.tall_sums)) * self.scratch_stride()
        kernel.chunking = self.chunking(entry.index["per_chunk"] - len(kernel.slots))
        return kernel

    @cached_property
    def tall_sums(self) -> list[Equation]:
        """Sums over so many outer iterations that they are blocked."""
        per_chunk, _ = self.partition()
        return [
            eqn for eqn in self.outer_reductions()
            if per_chunk > ROWS and self.keeps_inner(eqn) and is_float_sum(eqn)
        ]  # fmt: skip

    @property
    def has_runs(self) -> bool:
        """Whether the innermost loop runs several times in one outer iteration."""
        return len(self.inner_extents) > 1 or self.inner_extents[-1] > self.block

    @cached_property
    def block(self) -> int:
        """The most elements of a run of the innermost loop: few where strided operands keep it
        from being vectorized, and a sum adds all of them to one accumulator."""
        is_strided = any(a.inner[-1] not in (0, a.dtype.itemsize) for a in self.accesses)
        sums = [e for e in self.group.members if e.op.combine and is_float_sum(e)]
        return ROWS if is_strided and sums else BLOCK

    def emit(self) -> Kernel:
        """The kernel of the structure, without arguments."""
        self.code: Code = Code()
        self.entry: EntryBlock = EntryBlock(self.code, self)
        self.reductions: ReductionEmitter = ReductionEmitter(self)
        self.lanes: LaneEmitter = LaneEmitter(self)
        self.loop_count: int = 0
        self.metadata: list[str] = []
        # Of the outer iteration: the address of each access, and the outer values known so far.
        self.bases: dict[int, str] = {}
        self.outer_values: dict[Var, str] = {}
        # Of a tile: the iterations of its loops, and where accesses lead that go through copies.
        self.tile_extents: list[str] = []
        self.staged: dict[int, str] = {}
        # Of the pass: loads that are hoisted out of the inner loops.
        self.invariant: dict[int, str] = {}
        self.chunk_bounds()
        self.reductions.start_partials()
        if self.flat:
            self.bases = {id(a): self.pointer(a) for a in self.accesses}
            self.inner_passes()
        else:
            self.loop("%row_lo", "%row_hi", self.outer_iteration, vectorize=False)
        self.reductions.finish_partials()
        self.code.do("ret void")
        return self.finished()

    def pointer(self, access: Access) -> str:
        return "null" if access.slot == NO_SLOT else self.entry.pointer(access.slot)

    def read(self, access: Access, address: str, tag: str = "") -> str:
        """The element at an address, or its index."""
        if access.slot == NO_SLOT:
            return self.code.op(f"ptrtoint ptr {address} to i64")
        return elementwise.load(self.code, access.dtype, address, tag)

    def inner_stride(self, access: Access, d: int) -> str:
        """The stride along an inner loop. What is costly uses a sum of two arguments: of a single
        one LLVM assumes that it is 1, and leaves all other strides to a scalar loop."""
        stride = self.entry.number(("inner stride", id(access), d))
        if not self.is_costly:
            return stride
        return self.code.op(f"add i64 {stride}, {self.entry.number('zero')}")

    # -- loops ----------------------------------------------------------------------------------

    def chunk_bounds(self) -> None:
        code, number = self.code, self.entry.number
        part, start = "%chunk", "0"
        if self.group.blocks > 1:
            block = code.op(f"udiv i64 %chunk, {number('chunks')}")
            part = code.op(f"urem i64 %chunk, {number('chunks')}")
            start = code.op(f"mul i64 {block}, {number('total')}")
        low = code.op(f"mul i64 {part}, {number('per_chunk')}")
        high = code.op(f"add i64 {low}, {number('per_chunk')}")
        short = code.op(f"icmp slt i64 {high}, {number('total')}")
        high = code.op(f"select i1 {short}, i64 {high}, i64 {number('total')}")
        code.do(f"%row_lo = add i64 {low}, {start}")
        code.do(f"%row_hi = add i64 {high}, {start}")

    def loop(self, low: str, high: str, body: Callable[[str], None], vectorize: bool) -> None:
        """A loop; ``vectorize`` asserts that its iterations are independent."""
        code = self.code
        counter = self.entry.variable("i64")
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
        if vectorize:
            self.loop_count += 2
            n = self.loop_count
            self.metadata += [
                f"!M{n} = distinct !{{!M{n}, !M{n + 1}{self.one_at_a_time}}}",
                f'!M{n + 1} = !{{!"llvm.loop.parallel_accesses", !M0}}',
            ]
            tag = f", !llvm.loop !M{n}"
        code.do(f"br label %{head}{tag}")
        code.label(end)

    @property
    def one_at_a_time(self) -> str:
        """Metadata of loops in tiles, which are too short for several registers at a time."""
        return ', !{!"llvm.loop.interleave.count", i32 1}' if self.tiled_extents else ""

    def inner_loops(
        self, body: Callable[[list[str]], None], after: Callable[[], None], indices: list[str]
    ) -> None:
        """The loops over the inner dimensions, from the one after ``indices`` on. ``after`` is
        emitted after each run of the innermost one."""
        depth = len(indices)
        is_last = depth == len(self.inner_extents) - 1
        low, high = "%row_lo", "%row_hi"
        if self.tile_extents:
            low, high = "0", self.tile_extents[depth]
        elif not self.flat:
            low, high = "0", self.entry.number(("inner", depth))

        def iteration(index: str) -> None:
            if is_last:
                body([*indices, index])
            else:
                self.inner_loops(body, after, [*indices, index])

        if not is_last:
            self.loop(low, high, iteration, vectorize=False)
        elif self.inner_extents[-1] <= self.block:
            self.loop(low, high, iteration, vectorize=True)
            after()
        else:
            self.loop_in_blocks(low, high, iteration, after)

    def loop_in_blocks(
        self, low: str, high: str, body: Callable[[str], None], after: Callable[[], None]
    ) -> None:
        """A vectorized loop in runs of at most ``block`` elements."""
        code, block = self.code, self.block
        missing = code.op(f"sub i64 {high}, {low}")
        rounded = code.op(f"add i64 {missing}, {block - 1}")
        blocks = code.op(f"sdiv i64 {rounded}, {block}")

        def run(number: str) -> None:
            start = code.op(f"add i64 {low}, {code.op(f'mul i64 {number}, {block}')}")
            behind = code.op(f"add i64 {start}, {block}")
            end = code.call("llvm.smin", "i64", behind, high)
            self.loop(start, end, body, vectorize=True)
            after()

        self.loop("0", blocks, run, vectorize=False)

    # -- one outer iteration --------------------------------------------------------------------

    def outer_iteration(self, outer_index: str) -> None:
        code = self.code
        indices: list[str] = []
        rest = outer_index
        for d in reversed(range(1, len(self.outer_extents))):
            extent = self.entry.number(("outer", d))
            indices.insert(0, code.op(f"urem i64 {rest}, {extent}"))
            rest = code.op(f"udiv i64 {rest}, {extent}")
        if self.outer_extents:
            indices.insert(0, rest)
        self.bases = {}
        for access in self.accesses:
            if access.lookup is None:
                self.bases[id(access)] = self.base_address(access, indices)
        self.outer_values, self.invariant = {}, {}
        for access in self.accesses:
            if access.lookup is not None:
                self.bases[id(access)] = self.lookup_address(access, indices)
        if self.tiled_extents:
            self.start_tile(indices)
        self.outer_stage(-1)
        self.inner_passes()
        self.finish_tile()
        self.reductions.count_row()

    # -- tiles ----------------------------------------------------------------------------------

    def start_tile(self, indices: list[str]) -> None:
        """The extents of a tile, and transposed copies of what is read in another order."""
        code, number = self.code, self.entry.number
        self.tile_extents = []
        for d, index in enumerate(indices[-2:]):
            done = code.op(f"mul i64 {index}, {number(('inner', d))}")
            missing = code.op(f"sub i64 {number(('tiled', d))}, {done}")
            extent = code.call("llvm.smin", "i64", missing, number(("inner", d)))
            self.tile_extents.append(extent)
        rows, columns = self.tile_extents
        self.staged = {}
        for access in self.accesses:
            if access.column is None:
                continue
            source = self.bases[id(access)]
            copy = self.entry.memory(self.tile_rows * access.inner[0])
            self.bases[id(access)], self.staged[id(access)] = copy, source
            if self.is_input(access):
                strides = self.entry.number(("column", id(access))), str(TILE_COLUMNS)
                self.copy_tile(access, (source, copy), (rows, columns), strides)

    def finish_tile(self) -> None:
        """Transpose what was written in another order into its place."""
        for access in self.accesses:
            if id(access) in self.staged and not self.is_input(access):
                pointers = self.bases[id(access)], self.staged[id(access)]
                rows, columns = self.tile_extents
                strides = str(TILE_COLUMNS), self.entry.number(("column", id(access)))
                self.copy_tile(access, pointers, (columns, rows), strides)

    def copy_tile(
        self,
        access: Access,
        pointers: tuple[str, str],
        extents: tuple[str, str],
        strides: tuple[str, str],
    ) -> None:
        name, definitions = tile_function(access.dtype.itemsize)
        self.code.helpers.update(definitions)
        given = [f"ptr {p}" for p in pointers] + [f"i64 {n}" for n in (*extents, *strides)]
        self.code.do(f"call void @{name}({', '.join(given)})")

    def base_address(self, access: Access, indices: list[str]) -> str:
        code = self.code
        address = self.pointer(access)
        for d, index in enumerate(indices):
            if access.outer[d]:
                stride = self.entry.number(("outer stride", id(access), d))
                offset = code.op(f"mul i64 {index}, {stride}")
                address = code.op(f"getelementptr i8, ptr {address}, i64 {offset}")
        return address

    def lookup_address(self, access: Access, indices: list[str]) -> str:
        """The address of the slice of a table that is looked up."""
        assert access.lookup is not None
        given, code = access.lookup.indices, self.code
        index = elementwise.load(code, given.dtype, self.bases[id(given)])
        extent = self.entry.number(("table extent", id(access)))
        index = self.checked_index(index, extent, access.lookup.wraps)
        stride = self.entry.number(("table stride", id(access)))
        offset = code.op(f"mul i64 {index}, {stride}")
        start = self.base_address(access, indices)
        return code.op(f"getelementptr i8, ptr {start}, i64 {offset}")

    def checked_index(self, index: str, extent: str, wraps: bool) -> str:
        """An index in range: one that is not sets the status word and becomes 0."""
        code = self.code
        if wraps:
            raised = code.op(f"add i64 {index}, {extent}")
            negative = code.op(f"icmp slt i64 {index}, 0")
            index = code.op(f"select i1 {negative}, i64 {raised}, i64 {index}")
        inside = code.op(f"icmp ult i64 {index}, {extent}")
        bad, good = code.fresh("bad"), code.fresh("good")
        code.do(f"br i1 {inside}, label %{good}, label %{bad}")
        code.label(bad)
        code.do(f"store i64 1, ptr {self.entry.pointer(self.slot(STATUS, None))}, align 8")
        code.do(f"br label %{good}")
        code.label(good)
        return code.op(f"select i1 {inside}, i64 {index}, i64 0")

    def inner_passes(self) -> None:
        for number in range(self.passes):
            self.inner_pass(number)
            if not self.flat:
                self.outer_stage(number)

    def inner_pass(self, number: int) -> None:
        """One traversal of the inner loops: stores, reductions and scratch values of a stage."""
        reductions = [e for e in self.group.members if e.op.combine
                      and self.stage[e.outs[0]] == number and self.reduces_full(e)]  # fmt: skip
        stores = [v for v in self.stores if self.stage[v] == number and not self.is_outer(v)]
        kept = [v for v in self.scratch if self.stage[v] == number]
        if not (reductions or stores or kept):
            return
        if self.by_lanes:
            accumulators = self.lanes.accumulators(reductions)
        else:
            accumulators = {
                id(eqn): self.reductions.accumulator(eqn)
                for eqn in reductions
                if eqn.outs[0] not in self.group.outer_reductions
            }

        def body(indices: list[str]) -> None:
            point = IterationPoint(self, number, indices)
            # All values before the first store, which may overwrite what is read.
            for var in (*kept, *stores):
                point.value(var)
            for eqn in reductions:
                point.operand(self.uses[id(eqn), 0])
            for var in kept:
                point.store_scratch(var, point.value(var))
            for var in stores:
                point.store(self.stores[var], point.value(var))
            for eqn in reductions:
                if self.by_lanes:
                    self.lanes.accumulate(eqn, point, accumulators[id(eqn)])
                else:
                    self.reductions.accumulate(eqn, point, accumulators.get(id(eqn)))

        def after() -> None:
            self.reductions.flush_runs(reductions, accumulators)

        self.hoist_invariant_loads()
        self.inner_loops(body, after, [])
        if self.by_lanes:
            self.lanes.results(reductions, accumulators)
            return
        for eqn in reductions:
            if id(eqn) in accumulators:
                result = self.reductions.result(eqn, accumulators[id(eqn)])
                self.outer_values[eqn.outs[0]] = elementwise.rounded(
                    self.code, eqn.outs[0].type.dtype, result
                )

    def hoist_invariant_loads(self) -> None:
        """Load what does not vary along the inner dimensions before the inner loops."""
        self.invariant = {}
        for access in self.accesses:
            if not any(access.inner) and self.is_input(access):
                self.invariant[id(access)] = elementwise.load(
                    self.code, access.dtype, self.bases[id(access)]
                )

    def is_input(self, access: Access) -> bool:
        return access.slot != NO_SLOT and self.slots[access.slot][0] == "read"

    # -- outer values ---------------------------------------------------------------------------

    def outer_stage(self, number: int) -> None:
        """The outer values that are known after a pass."""
        if self.by_lanes:
            known = [e for e in self.group.members if self.stage[e.outs[0]] == number
                     and (e.op.combine or self.is_outer(e.outs[0]))]  # fmt: skip
            stored = [e.outs[0] for e in known if e.outs[0] in self.stores]
            self.lanes.compute(number, [e for e in known if not e.op.combine], stored)
            return
        for eqn in self.group.members:
            out = eqn.outs[0]
            if self.stage[out] != number:
                continue
            if eqn.op.combine:
                if out in self.group.outer_reductions and not self.reduces_full(eqn):
                    value = self.outer_operand(self.uses[id(eqn), 0])
                    self.reductions.add_to_partial(eqn, value)
                    continue
            elif self.is_outer(out) and eqn.op.indexing is not Indexing.LOOKUP:
                self.outer_values[out] = self.outer_element(eqn)
            else:
                continue
            if out in self.stores and out in self.outer_values:
                address = self.bases[id(self.stores[out])]
                elementwise.store(self.code, out.type.dtype, self.outer_values[out], address)

    def outer_element(self, eqn: Equation) -> str:
        if eqn.op.indexing is Indexing.PICK:
            index = self.outer_operand(self.uses[id(eqn), 1])
            index = self.checked_index(index, self.entry.number(("inner", 0)), False)
            point = IterationPoint(self, self.stage[eqn.outs[0]] + 1, [index], is_isolated=True)
            return point.operand(self.uses[id(eqn), 0])
        args = [self.outer_operand(operand) for operand in self.operands(eqn)]
        return emit_element(self.code, eqn, args)

    def outer_operand(self, operand: Any) -> str:
        if isinstance(operand, str):
            return operand
        if isinstance(operand, Access):
            return self.read(operand, self.bases[id(operand)])
        if isinstance(operand, Factor):
            return self.entry.factor(operand)
        return self.outer_values[operand]

    # -- the kernel -----------------------------------------------------------------------------

    def finished(self) -> Kernel:
        lines = "\n".join(
            ["entry:", *self.entry.lines, "  br label %start", "start:", *self.code.lines]
        )
        attributes = f'nounwind "prefer-vector-width"="{vector_bits()}"'
        ir = (
            f"define void @SELF(ptr %args, i64 %chunk, ptr %scratch) {attributes} {{\n{lines}\n}}\n"
            + "\n".join(["!M0 = distinct !{}", *self.metadata])
        )
        name = name_of(ir, "loops")
        return Kernel(name, ir.replace("@SELF", f"@{name}"), self.code.helpers)

    def kernel_slots(self) -> list[tuple[str, Var | None]]:
        return [*self.slots, *(("partial", e.outs[0]) for e in self.outer_reductions())]

    def kernel_partials(self) -> list[tuple[Var, Combine, int]]:
        return [(e.outs[0], combine_of(e), self.partial_length(e)) for e in self.outer_reductions()]

    def sum_rows(self, eqn: Equation) -> tuple[int, ...]:
        """The rows of scratch memory in which a blocked sum has its totals and what was lost."""
        if eqn not in self.tall_sums:
            return ()
        first = len(self.scratch) + 2 * self.tall_sums.index(eqn)
        return first, first + 1

    def scratch_row(self, number: int) -> str:
        """The address of a row of scratch memory."""
        return self.code.op(f"getelementptr i8, ptr %scratch, i64 {number * self.scratch_stride()}")

    def scratch_stride(self) -> int:
        """The bytes of the scratch memory of one value."""
        return -(-self.inner_size * 8 // 64) * 64
