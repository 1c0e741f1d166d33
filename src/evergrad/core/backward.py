"""The backward pass over an autograd graph: newest node first, off a heap, without recursion.

A node's vjp program runs in one of two ways: on arrays, which is fast and records nothing, and on
tensors through ``bind``, which records (``create_graph``) or traces. Residuals are released when
their node has run, cotangents when they have been used. :mod:`.accumulate_grad` has what happens at
leaves, :mod:`.backward_hooks` the hooks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import backward_hooks as hooks
from evergrad.core.accumulate_grad import (
    accumulate_array,
    accumulate_compound,
    accumulate_tensor,
    in_place_gradient,
)
from evergrad.core.bind import as_operand_tensor, bind, bind_binary, bind_unary
from evergrad.core.compound import Compound, dense_array, total
from evergrad.core.eager.parallel_ufunc import add_arrays
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.interpret import interpret
from evergrad.core.node import GraphNode, Leaf, Node, next_sequence
from evergrad.core.op import TABLE
from evergrad.core.reachability import edges_to_hooked_leaves, nodes_between
from evergrad.core.recording import unpack, unpacked_handle
from evergrad.core.saved_values import Packed, freed_error, verify
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Array, Tensor, fresh, from_array, on_storage
from evergrad.core.trace import Var
from evergrad.core.vjp_program import BORROWED, FRESH
from evergrad.extension import provides
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# A node with the cotangents of its results so far, and for each whether its memory is owned by the
# pass, so that it may be added to in place.
Pending = tuple[GraphNode, list[Any], list[bool]]


def run_backward(
    roots: Sequence[tuple[GraphNode, int, object]],
    *,
    keep_graph: bool,
    create_graph: bool,
    targets: dict[tuple[int, int], list[int]] | None = None,
    target_nodes: Sequence[GraphNode] = (),
    accumulate: bool = True,
    stops_at_targets: bool = False,
) -> list[Tensor | None]:
    """Propagate cotangents from the roots to the leaves.

    ``roots`` are (node, which result, cotangent tensor). With ``targets`` — (node number, result)
    to positions — the cotangents of these are returned, only nodes on a path to them run, and
    gradients are accumulated at leaves only if ``accumulate`` is set. With ``stops_at_targets``
    cotangents are not propagated beyond a target, which counts as a leaf.
    """
    backward_pass = BackwardPass(
        keep_graph, create_graph, targets, target_nodes, accumulate, roots, stops_at_targets
    )
    with using(grad=create_graph, saved_hooks=None, backward_pass=backward_pass, autocast=None):
        token = numpy_errors.set(QUIET)
        try:
            backward_pass.run()
        except MemoryError as error:
            from evergrad.memory.reports import described  # start-up: needed after a failure only

            raise described(error) from None
        finally:
            numpy_errors.reset(token)
            LEDGER.hold(-backward_pass.pending_bytes)
    return backward_pass.results


class BackwardPass:
    """One traversal of a graph, from its roots to the leaves."""

    def __init__(
        self,
        keep_graph: bool,
        create_graph: bool,
        targets: dict[tuple[int, int], list[int]] | None,
        target_nodes: Sequence[GraphNode],
        accumulate: bool,
        roots: Sequence[tuple[GraphNode, int, Any]],
        stops_at_targets: bool = False,
    ) -> None:
        state = STATE.get()
        self.stops_at_targets = stops_at_targets
        self.keep_graph = keep_graph
        trace = state.trace
        self.on_tensors: bool = create_graph or (trace is not None and not trace.is_off)
        self.trace = trace
        self.anomaly: bool = state.anomaly
        self.targets = targets
        self.accumulates: bool = accumulate or targets is None
        self.add_to_grad: Callable[[Tensor, Any, bool], None] = (
            accumulate_tensor if self.on_tensors else accumulate_array
        )
        self.results: Leaves = []
        self.pending_bytes: int = 0
        self.pending: dict[int, Pending] = {}
        self.heap: list[int] = []
        # The numbers of the nodes that lead to a target; None if all nodes run.
        self.needed: set[int] | None = None
        self.target_numbers: set[int] = set()
        # Leaves whose hooks run as soon as their gradients are complete, with the number of edges
        # that have not delivered; others run in the order of the heap, after all newer nodes.
        self.awaited: dict[int, int] = edges_to_hooked_leaves(roots) if Leaf.has_hooked else {}
        self.number: int = next_sequence()
        self.roots: list[tuple[GraphNode, int, None]] = [
            (node, index, None) for node, index, _ in roots
        ]
        if targets is not None:
            self.results = [None] * sum(len(positions) for positions in targets.values())
            self.target_numbers = {seq for seq, _ in targets}
            self.needed = nodes_between(roots, target_nodes)[1]
        for node, index, cotangent in roots:
            if isinstance(cotangent, Compound) and not self.on_tensors:
                self.add_compound(node, index, cotangent)
                continue
            value = cotangent if self.on_tensors else cotangent._value
            self.add_cotangent(node, index, value, False)

    def reaches(self, nodes: Sequence[GraphNode]) -> list[bool]:
        """Which of the nodes run in this pass."""
        visited, _ = nodes_between(self.roots, nodes)
        needed = visited if self.needed is None else self.needed
        return [node.seq in visited and node.seq in needed for node in nodes]

    # -- accumulating cotangents ------------------------------------------------------------

    def add_cotangent(self, node: GraphNode, index: int, value: Array, owned: bool) -> None:
        """Add a cotangent to one result of a node."""
        seq = node.seq
        if self.needed is not None and seq not in self.needed:
            return
        if node.__class__ is Leaf and self.accumulates_at_once(node):
            tensor = node.owner()
            if tensor is not None:
                self.add_to_grad(tensor, value, owned)
            return
        pending = self.pending.get(seq)
        if pending is not None:
            self.add(pending, index, value, owned)
            return
        if isinstance(node, Node) and node.vjp_program.single:  # as below, without a call
            self.pending[seq] = node, [value], [owned]
        else:
            self.pending[seq] = _, values, owners = _no_cotangents(node)
            values[index], owners[index] = value, owned
        if seq not in self.awaited:
            heappush(self.heap, -seq)
        if owned and (nbytes := value.nbytes) >= LEDGER_MIN_BYTES:
            self.count(nbytes)

    def add(self, pending: Pending, index: int, value: Any, owned: bool) -> None:
        """Add to the cotangents of a node that has some already."""
        _, values, owners = pending
        held = values[index]
        if held is None:
            values[index], owners[index] = value, owned
            if owned:
                self.count(value.nbytes)
        elif self.on_tensors:
            values[index] = total(held, value)
        elif owners[index]:
            add_arrays(held, value, out=held)
        elif isinstance(held, Compound):
            values[index], owners[index] = value + dense_array(held), True
            self.count(value.nbytes)
        else:
            added = pool.empty(held.shape, held.dtype)
            add_arrays(held, value, out=added)
            values[index], owners[index] = added, True
            self.count(added.nbytes)

    def add_compound(self, node: GraphNode, index: int, value: Compound) -> None:
        """Add a sparse or ragged cotangent to one result of a node.

        Leaves and custom functions take it in its layout. The vjp of a row runs on arrays, so its
        node gets it dense.
        """
        if self.needed is not None and node.seq not in self.needed:
            return
        pending = self.pending.get(node.seq)
        held = None if pending is None else pending[1][index]
        if isinstance(node, Node) or not (held is None or isinstance(held, Compound)):
            self.add_cotangent(node, index, dense_array(value), True)
            return
        if pending is None:
            pending = self.pending[node.seq] = _no_cotangents(node)
            if node.seq not in self.awaited:
                heappush(self.heap, -node.seq)
        pending[1][index] = value if held is None else value + held

    def add_scattered(self, node: Any, part: tuple[Any, TensorType], value: Any) -> None:
        """Add the cotangent of a slice to that part of its argument's cotangent."""
        where, whole = part
        parent = node.parents[0]
        index = 0 if node.indices is None else node.indices[0]
        held = self.in_place_target(parent, index)
        if held is not None:
            held[where] += value
            return
        padded = pool.empty(whole.shape, whole.dtype.np)
        padded.fill(0)
        padded[where] = value
        self.add_cotangent(parent, index, padded, True)

    def in_place_target(self, node: GraphNode, index: int) -> Array | None:
        """The accumulated cotangent of a node, if it may be added to in place."""
        if node.__class__ is Leaf and self.accumulates_at_once(node):
            return in_place_gradient(node.owner())
        pending = self.pending.get(node.seq)
        if pending is None or not pending[2][index]:
            return None
        result: Array | None = pending[1][index]
        return result

    def count(self, nbytes: int) -> None:
        """Enter the memory of a pending cotangent in the ledger (or, negative, remove it)."""
        if nbytes >= LEDGER_MIN_BYTES or nbytes <= -LEDGER_MIN_BYTES:
            self.pending_bytes += nbytes
            LEDGER.hold(nbytes)

    def uncount(self, values: Leaves, owned: list[bool]) -> None:
        for value, own in zip(values, owned, strict=True):
            if own:
                self.count(-value.nbytes)

    # -- leaves -----------------------------------------------------------------------------

    def accumulates_at_once(self, node: Leaf) -> bool:
        """Whether each cotangent is added to a leaf's gradient directly, instead of their sum."""
        return node.hooks is None and node.accumulated is None and self.targets is None

    def accumulate(self, leaf: Leaf, value: object, owned: bool) -> None:
        """Add to a leaf's gradient, unless the tensor is gone or the pass only collects."""
        tensor = leaf.owner()
        if tensor is None or not self.accumulates:
            return
        if isinstance(value, Compound) and not self.on_tensors:
            accumulate_compound(tensor, value)
        else:
            self.add_to_grad(tensor, value, owned)

    def finish_leaf(self, leaf: Leaf, value: Array, owned: bool) -> None:
        """Accumulate, with the hooks of the leaf's node and of its accumulation."""
        after = list(leaf.hooks.after.values()) if leaf.hooks is not None else []
        given = (hooks.hook_argument(value, False, self.on_tensors),) if after else ()
        self.accumulate(leaf, value, owned)
        for node_hook in after:
            node_hook((), given)
        if leaf.accumulated and self.accumulates:
            tensor = leaf.owner()
            for hook in list(leaf.accumulated.values()):
                if hook(tensor) is not None:
                    raise RuntimeError("Tensor post accumulate grad hooks should return None.")

    # -- running ----------------------------------------------------------------------------

    def run(self) -> None:
        """Run all nodes. A row without hooks, not among the targets, runs on arrays."""
        self.run_nodes()
        # Leaves to which an edge delivered nothing, since no cotangent reached its node.
        for seq in sorted(self.pending, reverse=True):
            self.run_general(self.pending.pop(seq))

    def run_nodes(self) -> None:
        """Run the nodes on the heap until it is empty."""
        heap, pending, add_cotangent = self.heap, self.pending, self.add_cotangent
        needed = self.needed
        target_numbers, awaited = self.target_numbers, self.awaited
        plain = not self.on_tensors and not self.anomaly
        while heap:
            seq = -heappop(heap)
            entry_of_node = node, values, owned = pending.pop(seq)
            if (
                not plain
                or node.__class__ is not Node
                or node.hooks is not None
                or seq in target_numbers
            ):
                self.run_general(entry_of_node)
                if awaited:
                    self.count_edges(node)
                continue
            program = node.vjp_program
            read: tuple[int, ...] | None = None
            if needed is not None:
                needs = self.needs_of(node)
                if needs != program.needs:
                    program, read = program.restricted(needs)
            if program.scatter_index is not None:
                self.add_scattered(node, program.scatter_index, values[0])
                if owned[0]:
                    self.count(-values[0].nbytes)
                if awaited:
                    self.count_edges(node)
                continue
            if not program.single:
                self.fill_missing(node, values)
            saved = node.saved
            if saved.__class__ is tuple:
                arrays = []
                for entry in saved:
                    storage = entry[1]
                    if storage is not None and (storage.version != entry[2] or storage.shared):
                        verify(node, entry)
                    arrays.append(entry[0])
            else:
                arrays = node.saved_arrays()
            if read is not None:
                arrays = [arrays[k] for k in read]
            arrays += values
            program.run(arrays)
            if owned[0] and (nbytes := values[0].nbytes) >= LEDGER_MIN_BYTES:
                self.count(-nbytes)
            if not program.single:
                self.uncount(values[1:], owned[1:])
            if not self.keep_graph and saved:
                # Also the local names, or the last residual would outlive its node.
                node.saved = saved = entry = storage = None
            parents: Any = node.parents  # edges lead to those that are not None
            indices = node.indices
            for i, slot, source in program.edges:
                own = source == FRESH or (source >= 0 and owned[source])
                add_cotangent(parents[i], 0 if indices is None else indices[i], arrays[slot], own)
            if awaited:
                self.count_edges(node)

    def count_edges(self, node: GraphNode) -> None:
        """A node has run: finish the leaves whose last edge was from it."""
        for parent in node.parents:
            if parent is None or parent.seq not in self.awaited:
                continue
            self.awaited[parent.seq] -= 1
            if self.awaited[parent.seq] == 0 and parent.seq in self.pending:
                self.run_general(self.pending.pop(parent.seq))

    def run_general(self, pending: Pending) -> None:
        """Run one node of any kind, with its hooks, as a target, and with anomaly detection."""
        node, values, owned = pending
        is_end = self.stops_at_targets and node.seq in self.target_numbers
        if self.trace is not None and node.hooks is not None and not is_end:
            self.trace.note_backward_through(node)
        self.uncount(values, owned)
        if node.hooks is not None and not is_end:  # the pass that continues there calls them
            hooks.call_tensor_hooks(node, values, owned, self.on_tensors)
        if self.targets is not None:
            self.collect(node, values, owned)
            if is_end:
                return
        if node.hooks is not None and node.hooks.before:
            hooks.call_node_prehooks(node, values, owned, self.on_tensors)
        if node.__class__ is Leaf:
            self.finish_leaf(node, values[0], owned[0])
            return
        if self.needed is not None and not self.leads_to_target(node):
            return
        if self.trace is not None:  # a target is a value; only what is behind it is run
            self.trace.note_backward_through(node)
        sources = [BORROWED] * len(node.parents)
        if isinstance(node, Node):
            grads = self.apply_vjp(node, values, sources)
        else:
            grads = node.run(values, self.on_tensors, self.keep_graph)  # type: ignore[attr-defined]
        if self.anomaly:
            hooks.check_finite(node, grads)
        if node.hooks is not None and node.hooks.after:
            grads = hooks.call_node_hooks(node, grads, values, self.on_tensors)
            sources = [BORROWED] * len(node.parents)
        self.propagate(node, grads, sources, owned)

    def propagate(
        self, node: Any, grads: Sequence[Any], sources: list[int], owned: list[bool]
    ) -> None:
        """Add the cotangents of a node's arguments to its parents."""
        indices = node.indices
        for i, (parent, grad) in enumerate(zip(node.parents, grads, strict=True)):
            if parent is not None and grad is not None:
                index = 0 if indices is None else indices[i]
                if isinstance(grad, Compound) and not self.on_tensors:
                    self.add_compound(parent, index, grad)
                    continue
                own = sources[i] == FRESH or (sources[i] >= 0 and owned[sources[i]])
                self.add_cotangent(parent, index, grad, own)

    def apply_vjp(self, node: Node, values: list[object], sources: list[int]) -> list[object]:
        """The cotangents of an op's arguments; writes to ``sources`` where their memory is from."""
        program = node.vjp_program
        self.fill_missing(node, values)
        read: Sequence[int] = range(len(program.saves))
        if self.needed is not None:
            needs = self.needs_of(node)
            if needs != program.needs:
                program, read = program.restricted(needs)
        if self.on_tensors:
            tensors = saved_tensors(node)
            grads = list(interpret(program.graph, *[tensors[k] for k in read], *values))
        else:
            arrays = node.saved_arrays()
            arrays = [arrays[k] for k in read]
            arrays += values
            program.run(arrays)
            grads = [None] * len(node.parents)
            for i, slot, source in program.edges:
                grads[i] = arrays[slot]
                sources[i] = source
        if not self.keep_graph and node.saved:
            node.saved = None
        return grads

    def leads_to_target(self, node: GraphNode) -> bool:
        needed = self.needed
        assert needed is not None
        return any(p is not None and p.seq in needed for p in node.parents)

    def needs_of(self, node: Node) -> int:
        """The arguments whose cotangents lead to a target, as a bit set."""
        needed = self.needed
        assert needed is not None
        found = 0
        bit = 1
        for parent in node.parents:
            if parent is not None and parent.seq in needed:
                found |= bit
            bit += bit
        return found

    def fill_missing(self, node: Node, values: list[object]) -> None:
        """Give results without a cotangent a zero one, where the vjp reads it."""
        unread = node.vjp_program.unread
        for i, type in enumerate(node.out_types()):
            if values[i] is None and i not in unread:
                values[i] = self.zeros(type)

    def zeros(self, type: TensorType) -> Any:
        if self.on_tensors:
            return bind(TABLE["full"], 0.0, size=type.shape, dtype=type.dtype)
        return np.zeros(type.shape, type.dtype.np)

    # -- targets ----------------------------------------------------------------------------

    def collect(self, node: GraphNode, values: Leaves, owned: list[bool]) -> None:
        """Store the cotangents of a target in memory that is not aliased."""
        assert self.targets is not None
        for index, value in enumerate(values):
            for position in self.targets.get((node.seq, index), ()):
                if value is None or self.on_tensors or isinstance(value, Compound):
                    self.results[position] = self.without_alias(value)
                else:
                    is_result = owned[index] and not _is_unordered(value)
                    self.results[position] = from_array(value if is_result else pool.copy(value))
                    owned[index] = False

    def without_alias(self, value: Tensor) -> Tensor:
        """A collected cotangent, copied if another one has the same storage."""
        if value is not None and any(
            other is not None and other._storage is value._storage for other in self.results
        ):
            result: Tensor = bind(TABLE["clone"], value)
            return result
        return value


def _no_cotangents(node: Any) -> Pending:
    count = 1 if node.__class__ is Leaf else len(node.out_types())
    return node, [None] * count, [False] * count


def saved_tensors(node: Node) -> list[Tensor]:
    """The residuals of a node as tensors with their nodes."""
    if node.saved is None:
        raise freed_error(node)
    specialization = node.vjp_program.specialization
    count = len(specialization.types)
    tensors: Leaves = []
    for i, entry in zip(node.vjp_program.saves, node.saved, strict=True):
        if i < count:
            parent, type = node.parents[i], specialization.operands[i]
            index = 0 if node.indices is None else node.indices[i]
        else:
            parent, type, index = node, specialization.out_types[i - count], i - count
        if entry.__class__ is Packed:
            tensor = unpacked_handle(unpack(entry, node), type)
        else:
            value, storage, _, _ = entry
            if storage is None:
                tensors.append(as_operand_tensor(value, type))
                continue
            verify(node, entry)
            # The value as it was saved; its version has just been compared.
            if isinstance(value, Var):
                tensor = fresh(value, type)
            else:
                tensor = on_storage(value, type, storage, None)
        tensor._node, tensor._index = parent, index
        tensors.append(tensor)
    return tensors


@provides("frame_namers")
@functools.cache
def frame_namers() -> dict[CodeType, tuple[str, Callable[[object], str]]]:
    """For functions that run ops: the local variable that holds the op, and how to name it."""
    return {
        bind.__code__: ("op", lambda op: op.name),
        bind_unary.__code__: ("op", lambda op: op.name),
        bind_binary.__code__: ("op", lambda op: op.name),
        BackwardPass.run_nodes.__code__: ("node", lambda node: node.name()),
        BackwardPass.run_general.__code__: ("node", lambda node: node.name()),
    }


def _is_unordered(array: Array) -> bool:
    """Whether a ufunc gave its result the layout of its arguments: the result of an op is
    contiguous, only views of it are not."""
    return array.base is None and not array.flags.c_contiguous
