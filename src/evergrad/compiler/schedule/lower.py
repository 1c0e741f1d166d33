"""Lowering: the nodes of a schedule to instructions over buffers.

A fusion group becomes a loop kernel. Any other equation is lowered by the function that its op has
in the registry (:mod:`.schedule.lowering_registry`), the one place where an implementation is
chosen; without one, or if that declines, its NumPy evaluation is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from evergrad.compiler.codegen.emit_loops import LoopEmitter
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.loop_ir import LoopProgram, loop_program
from evergrad.compiler.codegen.reductions import combine_partials
from evergrad.compiler.codegen.rng import STATE_BUFFER_BYTES
from evergrad.compiler.schedule.buffers import (
    Buffer,
    BufferView,
    address_of,
    full_view,
    strides_of,
)
from evergrad.compiler.schedule.commit import commit_after_failures, save_overwritten
from evergrad.compiler.schedule.concatenation import assign_parts, is_concatenation, lower_parts
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.fusion import fuse
from evergrad.compiler.schedule.group_kernels import group_kernel
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.lowering_registry import Lowerings
from evergrad.compiler.schedule.nodes import Group, ScheduleNode, SingleNode
from evergrad.compiler.schedule.output_buffers import assign_outputs
from evergrad.compiler.schedule.row_writes import check_numbers, in_place_last
from evergrad.core import dtypes
from evergrad.core.op import TABLE
from evergrad.core.row_facts import Combine
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.indexing.index import INDEX, INDEX_SUM
from evergrad.ops.rows.jagged_attention import JAGGED_ATTENTION, JAGGED_ATTENTION_BACKWARD

if TYPE_CHECKING:
    from evergrad.core.rng.default_generator import Generator
    from evergrad.core.types import Leaves


class Lowering:
    """The instructions of a graph, and the buffer view of every value.

    The graph (a simplified one) has as inputs ``arguments`` tensors, ``numbers`` numbers and the
    ``outside`` tensors; as outputs ``results`` results, then the final value of each of the
    ``written`` storages, then more results. ``recomputed`` are equations that compute a value for
    the second time. ``on_kernel`` is called with each kernel once its IR is emitted.
    """

    values: DefUse
    nodes: list[ScheduleNode]

    def __init__(
        self, graph: Graph, lowerings: Lowerings, arguments: int, numbers: int,
        outside: Sequence[Tensor], results: int, written: Sequence[Storage],
        recomputed: frozenset[int] = frozenset(),
        on_kernel: Callable[[Kernel], None] = lambda kernel: None,
    ) -> None:  # fmt: skip
        self.lowerings = lowerings
        self.graph: Graph = _with_own_equations(graph)
        recomputed = frozenset(
            id(own) for own, eqn in zip(self.graph.equations, graph.equations, strict=True)
            if id(eqn) in recomputed
        )  # fmt: skip
        self.arguments = arguments
        self.numbers = numbers
        self.outside: list[Tensor] = list(outside)
        self.written: list[Storage] = list(written)
        self.results = results
        self.generators: list[Any | None] = list(
            dict.fromkeys(e.attrs.get("generator") for e in graph.equations if e.op.random)
        )
        self.buffers: list[Buffer] = []
        self.buffer_views: dict[Var, BufferView] = {}
        self.storages: dict[int, Buffer] = {}
        self.native_generators: Leaves = []  # whose states kernels advance
        self.instructions: list[Instruction] = []
        # Matrix products whose epilogue a group (by ``id``) may become.
        self.pending_products: dict[int, Any] = {}
        self.lowered: set[int] = set()  # nodes (by ``id``) that are lowered, or pending
        self.nodes, self.values = fuse(self.graph, recomputed, self.overwritten_inputs())
        self.node_of: dict[int, ScheduleNode] = {
            id(eqn): node for node in self.nodes for eqn in node.equations
        }
        self.assign_inputs()
        # Final values that are copied to their storages at the end, and those that are computed
        # right in outside memory.
        self.copies: list[tuple[Var, Any]] = []
        self.in_place: list[tuple[Var, Buffer]] = []
        self.row_writes: list[ScheduleNode] = []  # of rows in outside memory: the last nodes
        assign_outputs(self)
        in_place_last(self)
        for node in self.nodes:
            if is_concatenation(node):
                assign_parts(self, node.equations[0])
        for node in self.nodes:
            if self.row_writes and node is self.row_writes[0]:
                self.check_row_writes(on_kernel)
            self.lower(node, on_kernel)
        save_overwritten(self)
        commit_after_failures(self)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {id(node): place for place, node in enumerate(self.nodes)}

    def place_of(self, node: ScheduleNode) -> int:
        """When a node is lowered, among all nodes."""
        return self._places[id(node)]

    def overwritten_inputs(self) -> list[tuple[Var, list[Var]]]:
        """The outputs that are final values of storages, with the inputs in these storages."""
        inputs = self.graph.inputs[self.arguments + self.numbers :]
        stored: dict[int, list[Var]] = {}
        for var, tensor in zip(inputs, self.outside, strict=True):
            stored.setdefault(id(tensor._storage), []).append(var)
        outputs = self.graph.outputs[self.results :]
        pairs = zip(outputs, self.written, strict=False)
        return [(out, stored.get(id(s), [])) for out, s in pairs if isinstance(out, Var)]

    # -- buffers --------------------------------------------------------------------------------

    def new_buffer(self, nbytes: int, kind: str, label: str, owner: object = None) -> Buffer:
        made = Buffer(len(self.buffers), nbytes, kind, label, owner)
        self.buffers.append(made)
        return made

    def assign_inputs(self) -> None:
        for number, var in enumerate(self.graph.inputs):
            if number < self.arguments:
                buffer = self.new_buffer(var.type.nbytes, "input", "argument", number)
                self.buffer_views[var] = full_view(buffer, var)
            elif number < self.arguments + self.numbers:
                buffer = self.new_buffer(8, "number", "number", number - self.arguments)
                self.buffer_views[var] = full_view(buffer, var)
            else:
                tensor = self.outside[number - self.arguments - self.numbers]
                self.buffer_views[var] = self.outside_view(tensor, var)

    def outside_view(self, tensor: Tensor, var: Var) -> BufferView:
        storage = tensor._storage
        buffer = self.storages.get(id(storage))
        if buffer is None:
            buffer = self.new_buffer(storage.nbytes, "outside", "outside tensor", storage)
            self.storages[id(storage)] = buffer
        value = tensor._value
        offset = address_of(value) - address_of(storage.value)
        return BufferView(buffer, offset, var.type.shape, value.strides, var.type.dtype)

    def buffer_view(self, var: Var) -> BufferView:
        """The buffer view of a value; a value without one is given a buffer of the arena."""
        found = self.buffer_views.get(var)
        if found is not None:
            return found
        root = self.values.root(var)
        if root is not var:
            base = self.buffer_view(root)
            offset = base.offset + address_of(var.layout) - address_of(root.layout)
            strides = var.layout.strides
            return BufferView(base.buffer, offset, var.type.shape, strides, var.type.dtype)
        eqn = self.values.producer[root]
        buffer = self.new_buffer(root.type.nbytes, "arena", f"{eqn.op.name} {root.type}")
        buffer.location = eqn.location
        self.buffer_views[root] = full_view(buffer, root)
        return self.buffer_views[root]

    def strides(self, var: Var) -> tuple[int, ...]:
        """The strides of a value that has a buffer view, or will have a buffer of its own."""
        found = self.buffer_views.get(var)
        return strides_of(var) if found is None else found.strides

    def scratch(self, nbytes: int, label: str) -> BufferView:
        """Memory for one instruction or between a few of them."""
        return BufferView(self.new_buffer(nbytes, "arena", label), 0, (nbytes,), (1,), dtypes.uint8)

    def rng_state(self, generator: Generator | None) -> BufferView:
        """The state of a generator, which kernels that draw from it advance."""
        for buffer in self.buffers:
            if buffer.kind == "rng_state" and self.native_generators[buffer.owner] is generator:
                return BufferView(buffer, 0, (), (), dtypes.uint8)
        self.native_generators.append(generator)
        owner = len(self.native_generators) - 1
        made = self.new_buffer(STATE_BUFFER_BYTES, "rng_state", "state of a generator", owner)
        return BufferView(made, 0, (), (), dtypes.uint8)

    # -- instructions ---------------------------------------------------------------------------

    def lower(self, node: ScheduleNode, on_kernel: Callable[[Kernel], None]) -> None:
        first = len(self.instructions)
        self.lower_node(node)
        self.lowered.add(id(node))
        is_checked = may_fail(node, self.values)
        for instruction in self.instructions[first:]:
            if instruction.node is not None:
                continue  # of another node: a product that waited was inserted before it
            instruction.node = node
            if instruction.kernel is None:
                instruction.may_fail = True
            else:
                instruction.may_fail = is_checked and None in instruction.pointers
                on_kernel(instruction.kernel)

    def check_row_writes(self, on_kernel: Callable[[Kernel], None]) -> None:
        """Add the checks of all writes of rows to outside memory, before the first of them."""
        for node in self.row_writes:
            check_numbers(self, node.equations[0])
            check = self.instructions[-1]
            check.node, check.may_fail = node, True
            assert check.kernel is not None
            on_kernel(check.kernel)

    def lower_node(self, node: ScheduleNode) -> None:
        if isinstance(node, Group):
            self.lower_group(node)
            return
        assert isinstance(node, SingleNode)
        if is_concatenation(node):
            lower_parts(self, node.eqn)
            return
        lower = self.lowerings.get(node.eqn.op)
        if lower is None or not lower(self, node.eqn):
            self.add_call(node.eqn)

    def add_kernel(
        self, label: str, kernel: Kernel, reads: Sequence[Any], writes: Sequence[Any], work: int = 0
    ) -> None:
        """Add a launch of a kernel that takes pointers to its inputs, then to its outputs (values
        or buffer views; ``None`` for the status word)."""
        instruction = Instruction(label)
        instruction.kernel = kernel
        instruction.work = work
        for given, used in ((reads, instruction.reads), (writes, instruction.writes)):
            for value in given:
                view = self.buffer_view(value) if isinstance(value, Var) else value
                instruction.pointers.append(view)
                if view is not None:
                    used.append(view.buffer)
        self.instructions.append(instruction)

    def add_call(self, eqn: Equation) -> None:
        """Add a call of the NumPy evaluation of an equation."""
        instruction = Instruction(f"call {eqn.op.name}")
        instruction.eqn = eqn
        instruction.args = [self.buffer_view(a) if isinstance(a, Var) else a for a in eqn.args]
        instruction.outs = [self.buffer_view(out) for out in eqn.outs]
        instruction.reads = [a.buffer for a in instruction.args if isinstance(a, BufferView)]
        instruction.writes = [view.buffer for view in instruction.outs]
        self.instructions.append(instruction)

    def copy(self, var: Var, view: BufferView) -> Var:
        """Copy a value; returns the copy as a value with that buffer view."""
        specialization = TABLE["clone"].resolve((var.type,), (var.type,), {})
        out = Var(var.type, var.trace)
        eqn = Equation(specialization, (var,), (out,), None)
        group = Group(0, var.type.shape)
        group.members.append(eqn)
        group.axes[out] = group.maps[id(eqn)] = tuple(range(len(var.type.shape)))
        self.buffer_views[out] = view
        self.lower_group(group)
        return out

    # -- fusion groups --------------------------------------------------------------------------

    def lower_group(self, group: Group) -> None:
        produced = {e.outs[0] for e in group.members}
        stored = {v for v in produced if self.is_stored(v, group)}
        kernel = group_kernel(self, group, stored)
        product = self.pending_products.pop(id(group), None)
        is_epilogue = product is not None and product.fuses(self, group, kernel)
        instruction = Instruction("+".join(e.op.name for e in group.members[:6]))
        instruction.kernel = kernel
        instruction.work = prod(group.shape) * len(group.members)
        partials: dict[Var, BufferView] = {}
        for kind, value in kernel.slots:
            if kind == "status":
                instruction.pointers.append(None)
                continue
            if kind == "partial":
                view = partials[value] = self.partial_results(value, kernel)
            else:
                view = self.buffer_view(value)
            instruction.pointers.append(view)
            (instruction.reads if kind == "read" else instruction.writes).append(view.buffer)
        if is_epilogue:
            instruction = product.fused(self, group, instruction)
        self.instructions.append(instruction)
        for var, combine, length in kernel.partials:
            self.combine(var, combine, length, kernel, partials[var])

    def is_stored(self, var: Var, group: Group) -> bool:
        """Whether a value of a group is used outside of its kernel."""
        if var in self.buffer_views or self.values.escapes(var) or var in group.outer_reductions:
            return True
        return any(self.node_of[id(e)] is not group for e in self.values.users(var))

    def partial_results(self, var: Var, kernel: Kernel) -> BufferView:
        """Memory for the partial results of an outer reduction, one for each chunk."""
        length = next(n for v, _, n in kernel.partials if v is var)
        size = 8 if var.type.dtype is dtypes.float64 or var.type.dtype is dtypes.int64 else 4
        nbytes = size * length * kernel.chunks
        buffer = self.new_buffer(nbytes, "arena", f"partial sums {var.type}")
        return BufferView(buffer, 0, (), (), var.type.dtype)

    def combine(
        self, var: Var, combine: Combine, length: int, kernel: Kernel, partials: BufferView
    ) -> None:
        """Add the kernel that combines the partial results of an outer reduction."""
        blocks = var.type.numel // length
        combined = combine_partials(combine, var.type.dtype, kernel.chunks // blocks, length)
        combined.chunks = blocks
        self.add_kernel(f"combine {combine.value}", combined, [partials], [var])


def _with_own_equations(graph: Graph) -> Graph:
    """The graph with copies of its equations, whose arguments fusion may replace."""
    equations = [
        Equation(e.specialization, e.args, e.outs, e.location, e.no_grad) for e in graph.equations
    ]
    return Graph(graph.inputs, (), equations, graph.outputs)


def may_fail(node: ScheduleNode, values: DefUse) -> bool:
    """Whether the checks of a node may fail. A derivative has the indices or the offsets that the
    function itself has checked."""
    if not isinstance(node, SingleNode):
        return True
    if node.eqn.op is INDEX_SUM:
        return not _is_looked_up(node.eqn, values)
    if node.eqn.op is JAGGED_ATTENTION_BACKWARD:
        statistics = values.producer.get(node.eqn.args[2])
        given = node.eqn.args[3:]
        return not (
            statistics is not None
            and statistics.op is JAGGED_ATTENTION
            and list(statistics.args) == list(given)
        )
    return True


def _is_looked_up(eqn: Equation, values: DefUse) -> bool:
    """Whether rows are looked up by the indices of a sum, in a table of its shape."""
    _, *indices = eqn.args
    return any(
        e.op is INDEX
        and list(e.args[1:]) == indices
        and e.attrs["start"] == eqn.attrs["start"] == 0
        and e.args[0].type.shape[: len(indices)] == eqn.attrs["extents"][: len(indices)]
        for e in values.uses.get(indices[0], ())
    )


def loop_programs(graph: Graph) -> list[LoopProgram]:
    """The loops of a graph's fusion groups, as they are before products take some of them over."""
    nodes, values = fuse(_with_own_equations(graph))
    owners = {id(eqn): node for node in nodes for eqn in node.equations}
    found = []
    for group in nodes:
        if not isinstance(group, Group):
            continue
        stored = {
            eqn.outs[0]
            for eqn in group.members
            if values.escapes(eqn.outs[0])
            or any(owners[id(user)] is not group for user in values.users(eqn.outs[0]))
        }
        stored |= group.outer_reductions
        loops = LoopEmitter(group, values, lambda v: v.layout, strides_of, stored)
        found.append(loop_program(loops))
    return found
