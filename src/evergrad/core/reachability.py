"""Reachability in the autograd graph: which nodes lie on a path from roots to targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergrad.core.node import GraphNode


def nodes_between(
    roots: Sequence[tuple[GraphNode, int, Any]], targets: Sequence[GraphNode]
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
