"""Horizontal fusion: two groups that read the same value become one.

When an equation joins a group, later readers of the same value are not known yet: the gradient of a
norm's bias precedes that of its scale, which is part of the recomputed norm. Unmerged, both groups
would traverse the value, and the product that computes it could have no epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from evergrad.compiler.schedule.fusibility import MAX_FUSION_DISTANCE
from evergrad.compiler.schedule.nodes import Group, ScheduleNode
from evergrad.core.trace import Var

# A group of this many times fewer elements is no reason to run later.
_SMALL = 16


def fuse_horizontally(
    nodes: Sequence[ScheduleNode],
    node_of: dict[Var, ScheduleNode],
    readers: Mapping[Var, Sequence[Group]],
    recomputed: frozenset[int],
) -> None:
    """Merge groups over the domain of a value that both read, if they have the same large
    dependencies. Equations in ``recomputed`` (by ``id``) are not moved."""
    for root, groups in readers.items():
        over_it = [g for g in groups if prod(g.shape) == root.type.numel > 1]
        for number, group in enumerate(over_it):
            for other in over_it[number + 1 :]:
                pair = (*group.members, *other.members)
                may_move = not any(id(eqn) in recomputed for eqn in pair)
                if may_move and _may_merge(group, other, nodes):
                    _merge(group, other, nodes, node_of)


def _may_merge(group: Group, other: Group, nodes: Sequence[ScheduleNode]) -> bool:
    """Whether two groups have one iteration domain, and neither delays the other."""
    if not (group.members and other.members):
        return False
    if abs(group.position - other.position) > MAX_FUSION_DISTANCE:
        return False
    if (group.shape, group.inner, group.blocks) != (other.shape, other.inner, other.blocks):
        return False
    if (group.dependencies | other.dependencies) & (group.bit | other.bit):
        return False
    differ = [node for node in nodes if node.bit & (group.dependencies ^ other.dependencies)]
    most = prod(group.shape) // _SMALL
    return all(isinstance(node, Group) and prod(node.shape) <= most for node in differ)


def _merge(
    group: Group, other: Group, nodes: Sequence[ScheduleNode], node_of: dict[Var, ScheduleNode]
) -> None:
    group.members += other.members
    group.axes |= other.axes
    group.maps |= other.maps
    group.outer_reductions |= other.outer_reductions
    group.reads |= other.reads
    group.position = max(group.position, other.position)
    group.dependencies |= other.dependencies
    for eqn in other.members:
        node_of[eqn.outs[0]] = group
    for node in nodes:
        if node.dependencies & (group.bit | other.bit):
            node.dependencies |= group.bit | group.dependencies
    other.members = []
