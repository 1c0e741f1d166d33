"""Fusion: which equations become one kernel.

:func:`fuse` partitions a graph into schedule nodes. A :class:`Group` holds elementwise equations
and reductions over one iteration domain, computed point by point without storing values that only
they use; every other equation is a :class:`SingleNode`. Equations join groups greedily, in program
order.

Inside a group a value is *full* (it varies along all dimensions), *outer* (constant along the
``inner`` dimensions: reductions over these, and what is computed from them) or an *outer reduction*
(complete only when the kernel has ended, so that the group cannot use it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.fusibility import MAX_FUSION_DISTANCE, is_fusible
from evergrad.compiler.schedule.horizontal_fusion import fuse_horizontally
from evergrad.compiler.schedule.index_maps import (
    add_index_map,
    domain_of,
    index_map_through_view,
)
from evergrad.compiler.schedule.nodes import Group, ScheduleNode, SingleNode
from evergrad.compiler.schedule.order import order_nodes
from evergrad.core.row_facts import Cost, Indexing
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.elementwise.basic import ADD

# A chain that is duplicated into another kernel rather than stored has at most this many equations,
_MAX_DUPLICATES = 8
# so many of them expensive; values of this many times fewer elements are stored anyway.
_MAX_EXPENSIVE_DUPLICATES = 1
_SMALL = 16


def fuse(
    graph: Graph,
    recomputed: frozenset[int] = frozenset(),
    overwrites: Sequence[tuple[Var, Sequence[Var]]] = (),
) -> tuple[list[ScheduleNode], DefUse]:
    """The nodes of a graph in the order of their execution.

    Equations in ``recomputed`` (by ``id``) compute a value a second time, and must not be fused
    with the first. ``overwrites`` are outputs with the inputs whose memory they overwrite.
    """
    values = DefUse(graph)
    fuser = _Fuser(values, recomputed, _only_used_for(values, {out for out, _ in overwrites}))
    for eqn in graph.equations:
        if not eqn.op.alias:
            fuser.place(eqn)
    fuser.place_delayed()
    fuse_horizontally(fuser.nodes, fuser.node_of, fuser.readers, recomputed)
    fuser.drop_unused_groups()
    fuser.depend_on_readers(overwrites)
    return order_nodes(fuser.nodes, values, fuser.node_of), values


def _only_used_for(values: DefUse, ends: set[Var]) -> set[int]:
    """The equations (by ``id``) whose results are used for nothing but some outputs."""
    found: set[int] = set()
    for eqn in reversed(values.graph.equations):
        out, users = eqn.outs[0], values.uses.get(eqn.outs[0], ())
        is_end = out in ends or (users and out not in values.outputs)
        if is_end and not eqn.op.combine and all(id(e) in found for e in users):
            found.add(id(eqn))
    return found


class _Fuser:
    def __init__(self, values: DefUse, recomputed: frozenset[int], updates: set[int]) -> None:
        self.values = values
        self.recomputed = recomputed
        self.updates = updates  # equations that compute nothing but values written outside
        self.nodes: list[ScheduleNode] = []
        self.node_of: dict[Var, ScheduleNode] = {}
        self.readers: dict[Var, list[Group]] = {}
        self.scalars: list[Group] = []
        # Equations that join a group only with the first use of their result.
        self.delayed: dict[Var, Equation] = {}
        self.last_random: ScheduleNode | None = None
        self.last_collective: ScheduleNode | None = None
        self.checks: list[ScheduleNode] = []

    # -- where an equation goes -----------------------------------------------------------------

    def place(self, eqn: Equation) -> None:
        values = self.values
        if eqn.outs[0] in values.literal and not self._must_be_stored(eqn.outs[0]):
            return
        is_single = not is_fusible(values, eqn) and eqn.outs[0] not in values.literal
        if not is_single and self._is_delayed(eqn):
            self.delayed[eqn.outs[0]] = eqn
            return
        for root in [values.root(a) for a in eqn.args if isinstance(a, Var)]:
            if root in self.delayed:
                self._place_in_group(self.delayed.pop(root), self._candidates(eqn))
        if is_single:
            self._add_single(eqn)
        elif not self._place_in_group(eqn, self._candidates(eqn), self._joins_user(eqn)):
            self.delayed[eqn.outs[0]] = eqn

    def place_delayed(self) -> None:
        """Place the delayed equations without a use: reductions of inputs, where these are read."""
        for eqn in self.delayed.values():
            self._place_in_group(eqn, self._candidates(eqn))
        self.delayed = {}

    def _is_delayed(self, eqn: Equation) -> bool:
        """Whether an equation reads program inputs and scalars alone, or scatters scalars into a
        larger value."""
        values, out = self.values, eqn.outs[0]
        if eqn.op.looks_up or id(eqn) in self.recomputed or eqn.op.random:
            return False
        if not eqn.op.combine and (out.type.numel == 1 or values.escapes(out)):
            return False
        sources = [values.root(a) for a in eqn.args if isinstance(a, Var)]
        if any(s in self.delayed for s in sources):
            return False
        if eqn.op.indexing is Indexing.SPREAD:
            return all(s.type.numel < out.type.numel for s in sources)
        return bool(sources) and all(s.type.numel == 1 or s not in values.producer for s in sources)

    def _joins_user(self, eqn: Equation) -> bool:
        """Whether an equation that joins no group is delayed to the near first use of its result: a
        gradient with two contributions is summed in the kernel that consumes it. Others would
        delay matrix products, and so extend the live ranges of their factors."""
        values, out = self.values, eqn.outs[0]
        if eqn.op is not ADD or id(eqn) in self.recomputed:
            return False
        if out.type.numel == 1 or values.escapes(out):
            return False
        users = sorted(values.users(out), key=lambda e: values.position[id(e)])
        if not users or not is_fusible(values, users[0]):
            return False
        is_near = values.position[id(users[0])] - values.position[id(eqn)] <= MAX_FUSION_DISTANCE
        return is_near and domain_of(users[0]) == out.type.shape

    def _place_in_group(
        self, eqn: Equation, candidates: Sequence[Group], may_delay: bool = False
    ) -> bool:
        """Add an equation to one of the groups or to a new one; ``False`` if it is delayed."""
        joined = next((g for g in candidates if self._join(g, eqn)), None)
        if joined is None and may_delay:
            return False
        group = joined or self._new_group(eqn)
        if group is not None:
            self._duplicate_producers(group, eqn)
        return True

    def _must_be_stored(self, var: Var) -> bool:
        """Whether a value is an output, or an equation reads it that no loop can compute."""
        values = self.values
        return values.escapes(var) or any(
            e.op.indexing is Indexing.LOOKUP or not is_fusible(values, e) for e in values.users(var)
        )

    def _add_single(self, eqn: Equation) -> None:
        node = SingleNode(len(self.nodes), eqn)
        self.nodes.append(node)
        node.position = self.values.position[id(eqn)]
        self._depend(node, self._sources(eqn))
        if eqn.op.random:  # random ops advance their generators in program order
            if self.last_random is not None:
                node.dependencies |= self.last_random.bit | self.last_random.dependencies
            self.last_random = node
        if eqn.op.communicates:  # in program order on every rank, whatever else its program does
            if self.last_collective is not None:
                self._depend_on(node, self.last_collective)
            self.last_collective = node
        # A NumPy call raises by itself, which must be later than the checks before it.
        for check in self.checks:
            node.dependencies |= check.bit | check.dependencies
        if eqn.op.checks:
            self.checks.append(node)
        for out in eqn.outs:
            self.node_of[out] = node

    def _new_group(self, eqn: Equation) -> Group | None:
        group = Group(len(self.nodes), domain_of(eqn))
        self.nodes.append(group)
        if not self._join(group, eqn):
            self.nodes.pop()
            self._add_single(eqn)
            return None
        if not group.dims:
            self.scalars.append(group)
        return group

    # -- duplication of cheap producers ---------------------------------------------------------

    def _duplicate_producers(self, group: Group, eqn: Equation) -> None:
        """Duplicate the cheap producers of an equation into its group if their operands are stored
        anyway: their results then need not be stored."""
        if eqn.op.indexing is Indexing.LOOKUP:
            return  # it reads its table at other indices
        args = list(eqn.args)
        for number, arg in enumerate(eqn.args):
            if not isinstance(arg, Var) or arg in group.axes or arg.type.numel < prod(group.shape):
                continue
            duplicates: dict[Var, Var] = {}
            chain = self._cheap_chain(arg, group)
            if chain and all(self._add_duplicate(group, step, duplicates) for step in chain):
                axes = self._map_of(group, duplicates[arg])
                expected = group.maps[id(eqn)][len(group.maps[id(eqn)]) - len(arg.type.shape) :]
                if axes is not None and group.varying(axes) == group.dims and axes == expected:
                    args[number] = duplicates[arg]
        if any(a is not b for a, b in zip(args, eqn.args, strict=True)):
            self.values.replace_arguments(eqn, tuple(args))
            group.members.remove(eqn)  # it follows its new operands
            group.members.append(eqn)

    def _cheap_chain(self, var: Var, group: Group) -> list[Equation]:
        """The equations that compute a value from stored ones; none if that is expensive."""
        chain: dict[int, Equation] = {}
        expensive = 0
        pending = [var]
        while pending:
            found = pending.pop()
            eqn = self.values.producer.get(found)
            if eqn is None or id(eqn) in chain or self._is_stored(found):
                continue
            if found.type.numel * _SMALL <= var.type.numel and not eqn.op.alias:
                continue  # so small that it may be stored
            if not eqn.op.alias:
                expensive += eqn.op.emit.cost is Cost.EXPENSIVE
                if eqn.op.combine or eqn.op.looks_up or expensive > _MAX_EXPENSIVE_DUPLICATES:
                    return []
            chain[id(eqn)] = eqn
            if len(chain) > _MAX_DUPLICATES:
                return []
            pending += [a for a in eqn.args if isinstance(a, Var)]
        if all(eqn.op.alias for eqn in chain.values()):
            return []
        return sorted(chain.values(), key=lambda e: self.values.position[id(e)])

    def _is_stored(self, var: Var) -> bool:
        """Whether a value is stored in any case."""
        values = self.values
        root = values.root(var)
        node = self.node_of.get(root)
        if not isinstance(node, Group) or root in node.outer_reductions:
            return True
        if values.producer[root].op.combine or root.type.numel < prod(node.shape):
            return True
        return self._must_be_stored(root)

    def _add_duplicate(self, group: Group, eqn: Equation, duplicates: dict[Var, Var]) -> bool:
        """Add a duplicate of an equation to a group."""
        out = eqn.outs[0]
        args = tuple([duplicates.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
        made = Var(out.type, out.trace, out._layout)
        duplicate = Equation(eqn.specialization, args, (made,), eqn.location)
        self.values.add(duplicate, self.values.position[id(eqn)])
        duplicates[out] = made
        if eqn.op.alias or self._join(group, duplicate):
            return True
        self.values.remove(duplicate)
        return False

    def drop_unused_groups(self) -> None:
        """Drop groups all of whose values other groups compute by duplicates."""
        for node in reversed(self.nodes):
            if isinstance(node, Group) and not any(map(self._is_needed, node.members)):
                for eqn in reversed(node.members):
                    self.values.remove(eqn)
                    del self.node_of[eqn.outs[0]]
                node.members.clear()
        self.nodes = [n for n in self.nodes if not isinstance(n, Group) or n.members]

    def _is_needed(self, eqn: Equation) -> bool:
        """Whether the result of an equation is an output, or used by another node."""
        out, values = eqn.outs[0], self.values
        if values.escapes(out):
            return True
        own = self.node_of[out]
        return any(self.node_of.get(e.outs[0]) is not own for e in values.users(out))

    def _candidates(self, eqn: Equation) -> list[Group]:
        """Groups an equation might join: producers of its arguments, then readers of the same."""
        found: dict[int, Group] = {}
        for arg in eqn.args:
            node = self.node_of.get(self.values.root(arg)) if isinstance(arg, Var) else None
            if isinstance(node, Group) and not self._is_too_far(node, eqn):
                found[node.number] = node
        # The largest domain first: beside it, an outer value could not be used with full ones.
        chosen = sorted(found.values(), key=lambda g: (prod(g.shape), g.number), reverse=True)
        if id(eqn) in self.recomputed:
            return [g for g in chosen if all(id(e) in self.recomputed for e in g.members)]
        domain = domain_of(eqn)
        if prod(domain) == 1:
            # Scalars share a kernel only if none adds to the dependencies of another.
            needed = self._dependencies_of(eqn)
            recent = [g for g in reversed(self.scalars[-4:]) if g.number not in found]
            return chosen + [g for g in recent if g.dependencies == needed]
        for arg in eqn.args:
            if not isinstance(arg, Var) or arg.type.numel < prod(domain):
                continue
            for group in reversed(self.readers.get(self.values.root(arg), ())):
                if group.number in found or self._is_too_far(group, eqn):
                    continue
                if group.shape == domain:
                    found[group.number] = group
                    chosen.append(group)
        return chosen

    def _is_too_far(self, group: Group, eqn: Equation) -> bool:
        """Whether an equation is so far behind a group that its result would be live for long: the
        derivative of a layer is not fused with the layer. A value that is written outside takes no
        memory: the update of a parameter is fused with that of its averages."""
        if id(eqn) in self.updates:
            return False
        return self.values.position[id(eqn)] - group.position > MAX_FUSION_DISTANCE

    def _sources(self, eqn: Equation) -> list[Var]:
        roots = [self.values.root(a) for a in eqn.args if isinstance(a, Var)]
        return [r for r in roots if r in self.node_of]

    def _dependencies_of(self, eqn: Equation) -> int:
        """The bit set of the nodes that an equation depends on."""
        found = 0
        for source in self._sources(eqn):
            found |= self.node_of[source].bit | self.node_of[source].dependencies
        return found

    def _depend(self, node: ScheduleNode, sources: Iterable[Var]) -> None:
        for source in sources:
            other = self.node_of[source]
            if other is not node:
                self._depend_on(node, other)

    def _depend_on(self, node: ScheduleNode, other: ScheduleNode) -> None:
        added = other.bit | other.dependencies
        if node.dependencies & added == added:
            return
        node.dependencies |= added
        for dependent in self.nodes:
            if dependent.dependencies & node.bit:
                dependent.dependencies |= added

    def depend_on_readers(self, overwrites: Sequence[tuple[Var, Sequence[Var]]]) -> None:
        """Order a node that overwrites an input after its readers, where that makes no cycle."""
        for out, sources in overwrites:
            writer = self.node_of.get(self.values.root(out))
            if not isinstance(writer, Group):
                continue
            for source in sources:
                for eqn in self.values.users(source):
                    reader = self.node_of.get(eqn.outs[0])
                    if reader is None or reader is writer or reader.dependencies & writer.bit:
                        continue
                    self._depend_on(writer, reader)

    # -- joining --------------------------------------------------------------------------------

    def _join(self, group: Group, eqn: Equation) -> bool:
        inside = self._maps_inside(group, eqn)
        if inside is None:
            return False
        sources = [r for r in self._sources(eqn) if self.node_of[r] is not group]
        if any(self.node_of[r].dependencies & group.bit for r in sources):
            return False  # a cycle
        if not add_index_map(group, eqn, inside):
            return False
        out = eqn.outs[0]
        group.members.append(eqn)
        group.position = max(group.position, self.values.position[id(eqn)])
        self.node_of[out] = group
        for arg in eqn.args:
            if isinstance(arg, Var) and arg not in group.axes:
                root = self.values.root(arg)
                group.reads.add(root)
                if group not in self.readers.setdefault(root, []):
                    self.readers[root].append(group)
        self._depend(group, sources)
        return True

    def _maps_inside(self, group: Group, eqn: Equation) -> list[tuple[int, ...] | None] | None:
        """For each argument its index map if the group computes it; ``None`` if the group cannot
        use one."""
        found: list[tuple[int, ...] | None] = []
        for arg in eqn.args:
            axes = None
            if isinstance(arg, Var) and self.node_of.get(self.values.root(arg)) is group:
                if self.values.root(arg) in group.outer_reductions:
                    return None
                axes = self._map_of(group, arg)
                if axes is None:
                    return None
            found.append(axes)
        return found

    def _map_of(self, group: Group, var: Var) -> tuple[int, ...] | None:
        """The index map of a value of the group, through views that only add, drop or repeat unit
        dimensions."""
        if var in group.axes:
            return group.axes[var]
        source = self.values.view_of(var)
        if source is None:
            return None
        before = self._map_of(group, source)
        if before is None:
            return None
        axes = index_map_through_view(self.values.producer[var], before)
        if axes is not None:
            group.axes[var] = axes
        return axes
