"""List scheduling of nodes: program order, but early where that frees memory."""

from __future__ import annotations

import heapq

from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.nodes import Group, ScheduleNode
from evergrad.core.trace import Var


def order_nodes(
    nodes: list[ScheduleNode], values: DefUse, node_of: dict[Var, ScheduleNode]
) -> list[ScheduleNode]:
    """A topological order of the nodes: program order, but a node that frees more memory than it
    allocates runs as soon as it is ready (the update of a parameter after its gradient)."""
    return _ListScheduler(nodes, values, node_of).run()


class _ListScheduler:
    def __init__(
        self, nodes: list[ScheduleNode], values: DefUse, node_of: dict[Var, ScheduleNode]
    ) -> None:
        self.nodes = {node.number: node for node in nodes}
        self.values = values
        self.missing: dict[int, int] = {}
        self.dependents: dict[int, list[int]] = {}
        # Of the nodes that each one depends on the two last: (position, number).
        self.last_needed: dict[int, list[tuple[int, int]]] = {}
        for node in nodes:
            needed = [n for n in self.nodes if n != node.number and node.dependencies >> n & 1]
            self.missing[node.number] = len(needed)
            positions = [(self.nodes[n].position, n) for n in needed]
            self.last_needed[node.number] = heapq.nlargest(2, positions)
            for n in needed:
                self.dependents.setdefault(n, []).append(node.number)
        self.deadline = {n: self._deadline(n) for n in self.nodes}
        # The nodes that have yet to read each value that passes from one node to another.
        self.readers: dict[Var, set[int]] = {}
        self.reads: dict[int, list[Var]] = {}
        for node in nodes:
            roots: dict[Var, None] = {}
            for eqn in node.equations:
                for arg in eqn.args:
                    root = values.root(arg) if isinstance(arg, Var) else None
                    if root is not None and root in node_of and node_of[root] is not node:
                        roots[root] = None
            self.reads[node.number] = list(roots)
            for root in roots:
                self.readers.setdefault(root, set()).add(node.number)
        self.allocated = {node.number: self._bytes_allocated(node) for node in nodes}
        # A collective may fail, and writes to outside memory follow it: before the last one a final
        # value is kept in the arena, so computing it early frees no memory.
        self.staged = {node.number: self._bytes_written(node) for node in nodes}
        # Communication keeps its place: what overlaps it is between its start and its wait.
        self.communicating = {
            node.number for node in nodes if any(e.op.communicates for e in node.equations)
        }

    def _deadline(self, number: int) -> int:
        """The position of a node, or that of its first dependent. A group of scalars takes no
        memory, and updates of parameters depend on it: its deadline is the position at which a
        dependent has everything else."""
        node, dependents = self.nodes[number], self.dependents.get(number, ())
        if isinstance(node, Group) and not node.dims and dependents:
            return min(self._position_ready(n, number) for n in dependents)
        return min(self.nodes[n].position for n in (number, *dependents))

    def _position_ready(self, number: int, but: int) -> int:
        """The position of the last node that one depends on, beside one of them."""
        others = (position for position, n in self.last_needed[number] if n != but)
        return next(others, 0)

    def _bytes_allocated(self, node: ScheduleNode) -> int:
        return sum(
            out.type.nbytes
            for eqn in node.equations
            for out in eqn.outs
            if out in self.readers and not self.values.escapes(out)
        )

    def _bytes_written(self, node: ScheduleNode) -> int:
        return sum(
            out.type.nbytes
            for eqn in node.equations
            for out in eqn.outs
            if self.values.escapes(out)
        )

    def bytes_freed(self, number: int) -> int:
        """The bytes of the values whose last reader a node is."""
        return sum(
            root.type.nbytes
            for root in self.reads[number]
            if len(self.readers[root]) == 1 and not self.values.escapes(root)
        )

    def run(self) -> list[ScheduleNode]:
        ready = {n for n, count in self.missing.items() if not count}
        done: list[ScheduleNode] = []
        while ready:
            number = self.choose(ready)
            ready.remove(number)
            self.communicating.discard(number)
            done.append(self.nodes[number])
            for root in self.reads[number]:
                self.readers[root].discard(number)
            for other in self.dependents.get(number, ()):
                self.missing[other] -= 1
                if not self.missing[other]:
                    ready.add(other)
        assert len(done) == len(self.nodes), "the dependencies of the schedule have a cycle"
        return done

    def choose(self, ready: set[int]) -> int:
        first = min(ready, key=lambda n: (self.deadline[n], n))
        movable = ready - self.communicating
        gain, best = max(
            ((self.bytes_freed(n) - self.bytes_taken(n), -n) for n in movable), default=(0, 0)
        )
        return -best if gain > 0 else first

    def bytes_taken(self, number: int) -> int:
        """The bytes of the arena that a node takes if it runs now."""
        return self.allocated[number] + (self.staged[number] if self.communicating else 0)
