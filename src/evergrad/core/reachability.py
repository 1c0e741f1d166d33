"""Which nodes of a graph a walk back comes to, and which of them lead where it is to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergrad.core.node import GraphNode


def nodes_between(
    roots: Sequence[tuple[GraphNode, int, Any]], targets: Sequence[GraphNode]
) -> tuple[set[int], set[int]]:
    """The numbers of the nodes that are met on the way from the roots back, and of those among them
    from which a target can be reached. Nothing behind the oldest target is looked at."""
    wanted = {node.seq for node in targets}
    oldest = min(wanted, default=0)
    met: dict[int, GraphNode] = {node.seq: node for node, _, _ in roots}
    waiting = list(met.values())
    while waiting:
        node = waiting.pop()
        if node.seq < oldest:
            continue
        for parent in node.parents:
            if parent is not None and parent.seq not in met:
                met[parent.seq] = parent
                waiting.append(parent)
    useful = wanted & met.keys()
    for seq in sorted(met):  # the parents of a node are older than it is
        for parent in met[seq].parents:
            if parent is not None and parent.seq in useful:
                useful.add(seq)
                break
    return set(met), useful
