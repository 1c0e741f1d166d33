"""The walk back over a graph: newest node first, off a heap, without recursion.

Two ways to run a node's derivative share the walk: on arrays, which is fast and records nothing,
and on tensors through ``bind``, which records (``create_graph``) or traces. A kept value is
released when its node has run, a cotangent when it has been used; what arrives at a leaf is adopted
or added in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from types import CodeType
from typing import Any

import numpy as np

from evergrad.core.bind import as_operand_tensor, bind
from evergrad.core.compound import Compound, as_cotangent, dense_array, total
from evergrad.core.eager.parallel_ufunc import add_arrays
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.functionalize import note_grad_access
from evergrad.core.inplace import refuse_overlap, write_result
from evergrad.core.interpret import interpret
from evergrad.core.node import (
    GraphNode,
    Leaf,
    Node,
    Packed,
    freed_error,
    next_sequence,
    verify,
)
from evergrad.core.op import TABLE
from evergrad.core.reachability import nodes_between
from evergrad.core.recording import unpack
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import describe
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor, fresh, from_array, on_storage
from evergrad.core.trace import Var
from evergrad.core.vjp_program import BORROWED, FRESH
from evergrad.errors import GradientError
from evergrad.extension import provides
from evergrad.memory import pool
from evergrad.memory.ledger import GRADIENT, LEDGER, LEDGER_MIN_BYTES

# A node, the cotangents of its results that have arrived, and which may be added to in place.
Sums = tuple[GraphNode, list[Any], list[bool]]


def run_backward(
    roots: Sequence[tuple[GraphNode, int, Any]],
    *,
    keep_graph: bool,
    create_graph: bool,
    targets: dict[tuple[int, int], list[int]] | None = None,
    target_nodes: Sequence[GraphNode] = (),
    accumulate: bool = True,
) -> list[Any]:
    """Carry cotangents from the roots to the leaves.

    ``roots`` are (node, which result, cotangent tensor). With ``targets`` — (node number, result)
    to positions — the cotangents arriving there are returned, only nodes on the way to them run,
    and leaves are left alone unless ``accumulate`` is set.
    """
    backward_pass = BackwardPass(keep_graph, create_graph, targets, target_nodes, accumulate, roots)
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
    return backward_pass.found


class BackwardPass:
    """One pass over a graph, from its roots back."""

    def __init__(
        self,
        keep_graph: bool,
        create_graph: bool,
        targets: dict[tuple[int, int], list[int]] | None,
        target_nodes: Sequence[GraphNode],
        accumulate: bool,
        roots: Sequence[tuple[GraphNode, int, Any]],
    ) -> None:
        state = STATE.get()
        self.keep_graph = keep_graph
        self.on_tensors = create_graph or state.trace is not None
        self.anomaly = state.anomaly
        self.targets = targets
        self.accumulate = accumulate
        self.found: list[Any] = []
        self.pending_bytes = 0
        self.waiting: dict[int, Sums] = {}
        self.heap: list[int] = []
        self.useful: set[int] | None = None
        # The nodes whose cotangents were asked for, by number.
        self.asked: set[int] = set()
        self.number = next_sequence()
        self.roots = [(node, index, None) for node, index, _ in roots]
        if targets is not None:
            self.found = [None] * sum(len(places) for places in targets.values())
            self.asked = {seq for seq, _ in targets}
            self.useful = nodes_between(roots, target_nodes)[1]
        for node, index, cotangent in roots:
            if isinstance(cotangent, Compound) and not self.on_tensors:
                self.arrive_compound(node, index, cotangent)
                continue
            value = cotangent if self.on_tensors else cotangent._value
            self.arrive(node, index, value, False)

    def reaches(self, nodes: Sequence[GraphNode]) -> list[bool]:
        """Which of the nodes this pass comes to, sooner or later."""
        visited, _ = nodes_between(self.roots, nodes)
        useful = visited if self.useful is None else self.useful
        return [node.seq in visited and node.seq in useful for node in nodes]

    # -- arriving ---------------------------------------------------------------------------

    def arrive(self, node: GraphNode, index: int, value: Any, owned: bool) -> None:
        """Add a cotangent to what a node has got so far."""
        seq = node.seq
        if self.useful is not None and seq not in self.useful:
            return
        if node.__class__ is Leaf and self.deposits_at_once(node):
            self.deposit(node, value, owned)
            return
        sums = self.waiting.get(seq)
        if sums is not None:
            self.add(sums, index, value, owned)
            return
        if node.__class__ is Node and node.vjp_program.single:  # as below, without a call
            self.waiting[seq] = node, [value], [owned]
        else:
            self.waiting[seq] = _, values, owners = _nothing_yet(node)
            values[index], owners[index] = value, owned
        heappush(self.heap, -seq)
        if owned and (nbytes := value.nbytes) >= LEDGER_MIN_BYTES:
            self.count(nbytes)

    def arrive_compound(self, node: GraphNode, index: int, value: Compound) -> None:
        """Add a sparse or ragged cotangent to what a node has got so far.

        Leaves and custom functions take it as it is. A row's derivative runs on arrays, so what was
        computed by one gets it dense.
        """
        if self.useful is not None and node.seq not in self.useful:
            return
        sums = self.waiting.get(node.seq)
        held = None if sums is None else sums[1][index]
        if node.__class__ is Node or not (held is None or isinstance(held, Compound)):
            self.arrive(node, index, dense_array(value), True)
            return
        if sums is None:
            sums = self.waiting[node.seq] = _nothing_yet(node)
            heappush(self.heap, -node.seq)
        sums[1][index] = value if held is None else value + held

    def arrive_part(self, node: Any, part: tuple[Any, TensorType], value: Any) -> None:
        """Add a cotangent to a part of what the node's argument has got so far."""
        where, whole = part
        parent = node.parents[0]
        index = 0 if node.indices is None else node.indices[0]
        held = self.held_by(parent, index)
        if held is not None:
            held[where] += value
            return
        laid = pool.empty(whole.shape, whole.dtype.np)
        laid.fill(0)
        laid[where] = value
        self.arrive(parent, index, laid, True)

    def held_by(self, node: GraphNode, index: int) -> Any:
        """The sum that has arrived at a node, if it may be added to in place."""
        if node.__class__ is Leaf and self.deposits_at_once(node):
            tensor = node.owner()
            grad = None if tensor is None else tensor._grad
            if grad is None or grad._view is not None or not isinstance(grad._value, np.ndarray):
                return None
            grad._storage.version += 1
            return grad._value
        sums = self.waiting.get(node.seq)
        if sums is None or not sums[2][index]:
            return None
        return sums[1][index]

    def deposits_at_once(self, node: Any) -> bool:
        """Whether a leaf takes each cotangent as it comes, instead of waiting for the sum."""
        return node.hooks is None and node.accumulated is None and self.targets is None

    def count(self, nbytes: int) -> None:
        """Enter memory that waits in the ledger (or, negative, take it out)."""
        if nbytes >= LEDGER_MIN_BYTES or nbytes <= -LEDGER_MIN_BYTES:
            self.pending_bytes += nbytes
            LEDGER.hold(nbytes)

    def add(self, sums: Sums, index: int, value: Any, owned: bool) -> None:
        _, values, owners = sums
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

    def deposit(self, leaf: Leaf, value: Any, owned: bool) -> None:
        """Add to a leaf's gradient."""
        if self.targets is not None and not self.accumulate:
            return
        tensor = leaf.owner()
        if tensor is None:  # nobody can look at the gradient any more
            return
        grad = tensor._grad
        if self.on_tensors:
            note_grad_access(tensor)
            if grad is None:
                # Kept apart from what others hold, so that later sums cannot reach them.
                tensor._grad = bind(TABLE["clone"], value)
                tensor._grad._storage.tag(GRADIENT)
            elif STATE.get().grad or isinstance(grad, Compound):
                tensor._grad = total(grad, value)
            else:
                write_result("accumulate", grad, grad + value)
            return
        if grad is None:
            tensor._grad = _adopt(value, owned, tensor._type)
            return
        if isinstance(grad._storage.value, Var) or not isinstance(grad._value, np.ndarray):
            if isinstance(grad, Compound):
                grad.add_into(added := pool.copy(value))
                tensor._grad = _adopt(added, True, tensor._type)
                return
            raise GradientError("the gradient of a leaf is a traced tensor outside its trace")
        if grad._view is not None:
            refuse_overlap(grad._value)
        add_arrays(grad._value, value, out=grad._value)
        grad._storage.version += 1

    def deposit_compound(self, leaf: Leaf, value: Compound) -> None:
        """Add a sparse or ragged cotangent to a leaf's gradient: sparse ones stay so, a dense
        gradient is added to where it is."""
        tensor = leaf.owner()
        if tensor is None or (self.targets is not None and not self.accumulate):
            return
        grad = tensor._grad
        if grad is None:
            grad = bind(TABLE["clone"], value)
        elif isinstance(grad, Compound):
            grad = grad + value
        else:
            value.add_into(grad._value)
            grad._storage.version += 1
        if isinstance(grad, Compound):
            for part in grad.parts():
                part._storage.tag(GRADIENT)
        tensor._grad = grad

    # -- running ----------------------------------------------------------------------------

    def run(self) -> None:
        heap, waiting, arrive, asked = self.heap, self.waiting, self.arrive, self.asked
        plain = not self.on_tensors and not self.anomaly
        while heap:
            seq = -heappop(heap)
            sums = node, values, owned = waiting.pop(seq)
            if not plain or node.__class__ is not Node or node.hooks is not None or seq in asked:
                self.run_with_care(sums)
                continue
            program = node.vjp_program
            if program.scatter_index is not None:
                self.arrive_part(node, program.scatter_index, values[0])
                if owned[0]:
                    self.count(-values[0].nbytes)
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
            arrays += values
            program.run(arrays)
            if owned[0] and (nbytes := values[0].nbytes) >= LEDGER_MIN_BYTES:
                self.count(-nbytes)
            if not program.single:
                self.uncount(values[1:], owned[1:])
            if not self.keep_graph and saved:
                # Also the names used here let go, or the last kept value would outlive its node.
                node.saved = saved = entry = storage = None
            parents: Any = node.parents  # edges lead to those that are there
            indices = node.indices
            for i, place, source in program.edges:
                own = source == FRESH or (source >= 0 and owned[source])
                arrive(parents[i], 0 if indices is None else indices[i], arrays[place], own)

    def uncount(self, values: list[Any], owned: list[bool]) -> None:
        for value, own in zip(values, owned, strict=True):
            if own:
                self.count(-value.nbytes)

    def run_with_care(self, sums: Sums) -> None:
        """Run one node with everything that may be attached to it."""
        node, values, owned = sums
        self.uncount(values, owned)
        if node.hooks is not None:
            self.call_tensor_hooks(node, values, owned)
        if self.targets is not None:
            self.collect(node, values, owned)
        if node.hooks is not None and node.hooks.before:
            self.call_node_prehooks(node, values, owned)
        if node.__class__ is Leaf:
            self.finish_leaf(node, values[0], owned[0])
            return
        if self.useful is not None and not self.parents_useful(node):
            return
        count = len(node.parents)
        sources = [BORROWED] * count
        if node.__class__ is Node:
            grads = self.run_node(node, values, sources)
        else:
            grads = node.run(values, self.on_tensors, self.keep_graph)  # type: ignore[attr-defined]
        if self.anomaly:
            self.check_finite(node, grads)
        if node.hooks is not None and node.hooks.after:
            grads = self.call_node_hooks(node, grads, values)
            sources = [BORROWED] * count
        indices = node.indices  # type: ignore[attr-defined]
        for i, (parent, grad) in enumerate(zip(node.parents, grads, strict=True)):
            if parent is not None and grad is not None:
                at = 0 if indices is None else indices[i]
                if isinstance(grad, Compound) and not self.on_tensors:
                    self.arrive_compound(parent, at, grad)
                    continue
                own = sources[i] == FRESH or (sources[i] >= 0 and owned[sources[i]])
                self.arrive(parent, at, grad, own)

    def run_node(self, node: Node, values: list[Any], sources: list[int]) -> list[Any]:
        """The cotangents of an op's arguments; fills in where their memory comes from."""
        program = node.vjp_program
        self.fill_missing(node, values)
        if self.on_tensors:
            grads = list(interpret(program.graph, *saved_tensors(node), *values))
        else:
            arrays = node.saved_arrays()
            arrays += values
            program.run(arrays)
            grads = [None] * len(node.parents)
            for i, place, source in program.edges:
                grads[i] = arrays[place]
                sources[i] = source
        if not self.keep_graph and node.saved:
            node.saved = None
        return grads

    def parents_useful(self, node: GraphNode) -> bool:
        useful = self.useful
        assert useful is not None
        return any(p is not None and p.seq in useful for p in node.parents)

    def fill_missing(self, node: Any, values: list[Any]) -> None:
        """Results that nobody used have a cotangent of zero, if anybody looks at it."""
        unread = node.vjp_program.unread
        for i, type in enumerate(node.out_types()):
            if values[i] is None and i not in unread:
                values[i] = self.zeros(type)

    def zeros(self, type: TensorType) -> Any:
        if self.on_tensors:
            return bind(TABLE["full"], 0.0, size=type.shape, dtype=type.dtype)
        return np.zeros(type.shape, type.dtype.np)

    def finish_leaf(self, leaf: Leaf, value: Any, owned: bool) -> None:
        after = list(leaf.hooks.after.values()) if leaf.hooks is not None else []
        given = (self.lent(value, False),) if after else ()
        if isinstance(value, Compound) and not self.on_tensors:
            self.deposit_compound(leaf, value)
        else:
            self.deposit(leaf, value, owned)
        for node_hook in after:
            node_hook((), given)
        if leaf.accumulated and (self.targets is None or self.accumulate):
            tensor = leaf.owner()
            for hook in list(leaf.accumulated.values()):
                hook(tensor)

    def collect(self, node: GraphNode, values: list[Any], owned: list[bool]) -> None:
        """Keep what arrived at a target, in memory that nothing else will touch."""
        assert self.targets is not None
        for index, value in enumerate(values):
            for place in self.targets.get((node.seq, index), ()):
                if value is None or self.on_tensors or isinstance(value, Compound):
                    self.found[place] = self.apart_from_others(value)
                else:
                    apart = owned[index] and not _is_unordered(value)
                    self.found[place] = from_array(value if apart else pool.copy(value))
                    owned[index] = False

    def apart_from_others(self, value: Any) -> Any:
        """A found cotangent in memory that no other found one looks at."""
        if value is not None and any(
            other is not None and other._storage is value._storage for other in self.found
        ):
            return bind(TABLE["clone"], value)
        return value

    # -- hooks and checks -------------------------------------------------------------------

    def lent(self, value: Any, owned: bool) -> Any:
        """A cotangent as a tensor in memory of its own, for a hook to keep or to change."""
        if value is None:
            return None
        if self.on_tensors or isinstance(value, Compound):
            return bind(TABLE["clone"], value)
        return from_array(value if owned else value.copy())

    def returned(self, tensor: Any) -> Any:
        """A cotangent as it travels, from a tensor that a hook may still hold."""
        if tensor is None or self.on_tensors:
            return tensor
        return as_cotangent(tensor)

    def call_tensor_hooks(self, node: GraphNode, values: list[Any], owned: list[bool]) -> None:
        """The hooks on single results; the gradient that is kept is what they leave."""
        hooks = node.hooks
        assert hooks is not None
        for index, on_result in hooks.on_result.items():
            if values[index] is None or not on_result:
                continue
            given = self.lent(values[index], owned[index])
            for hook in list(on_result.values()):
                changed = hook(given)
                if changed is not None:
                    _check_replacement(node, changed, given)
                    given = changed
            values[index], owned[index] = self.returned(given), False
        for index, owner in hooks.retained.items():
            tensor = owner()
            if values[index] is not None and tensor is not None:
                held = self.lent(values[index], False)
                tensor._grad = held if tensor._grad is None else tensor._grad + held

    def call_node_prehooks(self, node: GraphNode, values: list[Any], owned: list[bool]) -> None:
        assert node.hooks is not None
        given = tuple(self.lent(v, own) for v, own in zip(values, owned, strict=True))
        for hook in list(node.hooks.before.values()):
            given = _replaced(node, hook(given), given)
        values[:] = [self.returned(v) for v in given]
        owned[:] = [False] * len(owned)

    def call_node_hooks(self, node: GraphNode, grads: Any, values: list[Any]) -> list[Any]:
        assert node.hooks is not None
        given = tuple(self.lent(g, False) for g in grads)
        arrived = tuple(self.lent(v, False) for v in values)
        for hook in list(node.hooks.after.values()):
            given = _replaced(node, hook(given, arrived), given)
        return [self.returned(g) for g in given]

    def check_finite(self, node: Any, grads: Sequence[Any]) -> None:
        for i, grad in enumerate(grads):
            array = grad._value if isinstance(grad, Tensor) else grad
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fcV":
                continue
            if np.isnan(array).any():
                raise RuntimeError(
                    f"Function '{node.name()}' returned nan values in its {i}th output.\n"
                    f"  computed forward by: {describe(node.location)}"
                )


def _check_replacement(node: GraphNode, changed: Any, given: Any) -> None:
    if not isinstance(changed, Tensor):
        raise TypeError(
            f"a hook on a gradient of {node.name()} returned {type(changed).__name__}; it must "
            "return None or a Tensor"
        )
    if given is not None and not changed._type.same(given._type):
        raise RuntimeError(
            f"a hook on a gradient of {node.name()} returned a {changed._type}; it must return "
            f"None or a {given._type}"
        )


def _replaced(node: GraphNode, changed: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a hook on a node made of the gradients it was given."""
    if changed is None:
        return given
    found = changed if isinstance(changed, tuple) else (changed,)
    if len(found) != len(given):
        raise RuntimeError(
            f"a hook on {node.name()} returned {len(found)} gradients; it was given {len(given)}"
        )
    for new, old in zip(found, given, strict=True):
        if new is not None:
            _check_replacement(node, new, old)
    return found


def _nothing_yet(node: Any) -> Sums:
    """What has arrived at a node before anything has."""
    count = 1 if node.__class__ is Leaf else len(node.out_types())
    return node, [None] * count, [False] * count


def _is_unordered(array: Any) -> bool:
    """Whether a ufunc gave its result the order of its arguments: what an op makes is contiguous,
    only views of it are not."""
    return array.base is None and not array.flags.c_contiguous


def saved_tensors(node: Node) -> list[Any]:
    """The values a node kept, as tensors with their history."""
    if node.saved is None:
        raise freed_error(node)
    specialization = node.vjp_program.specialization
    count = len(specialization.types)
    tensors: list[Any] = []
    for i, entry in zip(node.vjp_program.saves, node.saved, strict=True):
        if i < count:
            parent, type = node.parents[i], specialization.operands[i]
            index = 0 if node.indices is None else node.indices[i]
        else:
            parent, type, index = node, specialization.out_types[i - count], i - count
        if entry.__class__ is Packed:
            source = unpack(entry, node)
            tensor = on_storage(source._value, type, source._storage, None)
        else:
            value, storage, _, _ = entry
            if storage is None:
                tensors.append(as_operand_tensor(value, type))
                continue
            verify(node, entry)
            # The handle shows the value as it was saved; versions have just been compared.
            if isinstance(value, Var):
                tensor = fresh(value, type)
            else:
                tensor = on_storage(value, type, storage, None)
        tensor._node, tensor._index = parent, index
        tensors.append(tensor)
    return tensors


def _adopt(array: np.ndarray[Any, Any], owned: bool, type: TensorType) -> Tensor:
    """Make an array the gradient of a leaf of some type: as it is if nobody else holds it, else a
    copy."""
    base = array.base
    whole = base is None or getattr(base, "nbytes", 0) <= 1.25 * array.nbytes + 8192
    if not (owned and whole and array.flags.c_contiguous):
        array = pool.copy(array)
    is_alike = array.dtype == type.dtype.np and array.shape == type.shape
    grad = fresh(array, type) if is_alike else from_array(array)
    grad._storage.tag(GRADIENT)
    return grad


@provides("frame_namers")
@functools.cache
def frame_namers() -> dict[CodeType, tuple[str, Callable[[Any], str]]]:
    """For functions that run ops: the local variable that holds the op, and how to name it."""
    return {
        bind.__code__: ("op", lambda op: op.name),
        BackwardPass.run.__code__: ("node", lambda node: node.name()),
        BackwardPass.run_with_care.__code__: ("node", lambda node: node.name()),
    }
