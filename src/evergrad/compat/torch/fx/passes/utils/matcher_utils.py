"""Finds the places of a graph that have the form of another one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...graph import Graph
from ...node import Node


@dataclass
class InternalMatch:
    """One place: nodes by those of the pattern."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Matches from the outputs of the pattern backwards."""

    def __init__(
        self, pattern: Graph, match_output: bool = False, match_placeholder: bool = False,
        remove_overlapping_matches: bool = True, ignore_literals: bool = False,
    ) -> None:  # fmt: skip
        self.pattern = pattern
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        self.placeholders: list[Node] = [n for n in pattern.nodes if n.op == "placeholder"]
        self.output: Node = pattern.output_node()
        returned = self.output.args[0]
        members = returned if isinstance(returned, (tuple, list)) else [returned]
        self.returned: list[Node] = [n for n in members if isinstance(n, Node)]
        self.anchors: list[Node] = [self.output] if match_output else [
            n for n in self.returned if set(n.users) <= {self.output}
        ]  # fmt: skip

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places, in the order of the graph; those that overlap an earlier one left out."""
        partial = [InternalMatch([])]
        for anchor in self.anchors:
            further = []
            for match in partial:
                for node in graph.nodes:
                    found = _copy(match)
                    if self._matches(anchor, node, found):
                        found.anchors.append(node)
                        further.append(found)
            partial = further
        complete = [m for m in partial if self._is_contained(m)]
        taken: set[Node] = set()
        kept = []
        for match in complete:
            inner = {
                n for p, n in match.nodes_map.items()
                if p.op not in ("placeholder", "output") and isinstance(n, Node)
            }  # fmt: skip
            if self.remove_overlapping_matches and inner & taken:
                continue
            taken |= inner
            match.placeholder_nodes = [match.nodes_map[p] for p in self.placeholders
                                       if p in match.nodes_map]  # fmt: skip
            match.returning_nodes = [match.nodes_map[n] for n in self.returned]
            kept.append(match)
        return kept

    def _is_contained(self, match: InternalMatch) -> bool:
        """Whether no value inside of a place is used outside, but for those returned."""
        inside = set(match.nodes_map.values())
        for wanted, node in match.nodes_map.items():
            if wanted.op in ("placeholder", "output") or wanted in self.returned:
                continue
            if not set(node.users) <= inside:
                return False
        return True

    def _matches(self, wanted: Any, node: Any, match: InternalMatch) -> bool:
        if not isinstance(wanted, Node):
            if isinstance(wanted, (tuple, list)) and isinstance(node, (tuple, list)):
                return len(wanted) == len(node) and all(
                    self._matches(a, b, match) for a, b in zip(wanted, node, strict=True)
                )
            return not isinstance(node, Node) and (self.ignore_literals or wanted == node)
        if wanted in match.nodes_map:
            return match.nodes_map[wanted] is node
        if wanted.op == "placeholder" and not self.match_placeholder:
            match.nodes_map[wanted] = node
            return True
        if not isinstance(node, Node) or node in match.nodes_map.values():
            return False
        if wanted.op != node.op or (wanted.op != "output" and not _same_target(wanted, node)):
            return False
        match.nodes_map[wanted] = node
        if self._arguments_match(wanted, node, match):
            return True
        del match.nodes_map[wanted]
        return False

    def _arguments_match(self, wanted: Node, node: Node, match: InternalMatch) -> bool:
        if set(wanted.kwargs) != set(node.kwargs) or len(wanted.args) != len(node.args):
            return False
        pairs = list(zip(wanted.args, node.args, strict=True))
        pairs += [(wanted.kwargs[name], node.kwargs[name]) for name in wanted.kwargs]
        return all(self._matches(a, b, match) for a, b in pairs)


def _same_target(wanted: Node, node: Node) -> bool:
    if wanted.op == "call_module":
        return type(_module_of(wanted)) is type(_module_of(node))
    return wanted.target == node.target or (
        wanted.op == "get_attr" and wanted.graph is not node.graph
    )


def _module_of(node: Node) -> object:
    owner: Any = node.graph.owning_module
    for name in str(node.target).split("."):
        owner = getattr(owner, name, None)
    return owner


def _copy(match: InternalMatch) -> InternalMatch:
    return InternalMatch(list(match.anchors), dict(match.nodes_map))
