"""Reachability in the autograd graph: which nodes lie on a path from roots to targets."""

from __future__ import annotations

from collections.abc import Sequence

from evergrad.core.node import GraphNode, Leaf


def nodes_between(
    roots: Sequence[tuple[GraphNode, int, object]], targets: Sequence[GraphNode]
) -> tuple[set[int], set[int]]:
    """The numbers of the nodes reachable from the roots, and of those from which a target is
    reachable. Nodes older than the oldest target are not visited."""
    wanted = {node.seq for node in targets}
    oldest = min(wanted, default=0)
    reached: dict[int, GraphNode] = {node.seq: node for node, _, _ in roots}
    stack = list(reached.values())
    while stack:
        node = stack.pop()
        if node.seq < oldest:
            continue
        for parent in node.parents:
            if parent is not None and parent.seq not in reached:
                reached[parent.seq] = parent
                stack.append(parent)
    needed = wanted & reached.keys()
    for seq in sorted(reached):  # the parents of a node are older than it is
        for parent in reached[seq].parents:
            if parent is not None and parent.seq in needed:
                needed.add(seq)
                break
    return set(reached), needed


def edges_to_hooked_leaves(roots: Sequence[tuple[GraphNode, int, object]]) -> dict[int, int]:
    """For each leaf with hooks after accumulation, how many edges lead to it from nodes reachable
    from the roots: its gradient is complete when as many nodes have run."""
    counts: dict[int, int] = {}
    seen = {node.seq for node, _, _ in roots}
    stack = [node for node, _, _ in roots]
    while stack:
        for parent in stack.pop().parents:
            if parent is None:
                continue
            if isinstance(parent, Leaf):
                if parent.accumulated:
                    counts[parent.seq] = counts.get(parent.seq, 0) + 1
            elif parent.seq not in seen:
                seen.add(parent.seq)
                stack.append(parent)
    return counts
