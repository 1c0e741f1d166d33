"""Replaces the places where one graph occurs in another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evergrad.nn.module import Module

from .graph import Graph
from .graph_module import GraphModule, _copy_attribute
from .node import Node
from .passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from .symbolic_trace import symbolic_trace

if TYPE_CHECKING:
    from evergrad.compat.torch.fx.graph import Graph
    from evergrad.compat.torch.fx.passes.utils.matcher_utils import InternalMatch


class Match(NamedTuple):
    """The last node of a place that matched, and its nodes by those of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A match with the nodes that took its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


MatchFilter = Callable[[InternalMatch, Graph, Graph], bool]


def _graph_of(source: object) -> Graph:
    if isinstance(source, GraphModule):
        return source.graph
    return source if isinstance(source, Graph) else symbolic_trace(source).graph


def replace_pattern(gm: GraphModule, pattern: object, replacement: object) -> list[Match]:
    """Replace all places that do not overlap where ``pattern`` occurs.

    Both are functions, modules or graphs; the parameters of the one stand for those of the other.
    """
    found = _replace(gm, pattern, replacement, None, False, None)
    return [Match(each.anchor, each.nodes_map) for each in found]


def replace_pattern_with_filters(
    gm: GraphModule, pattern: object, replacement: object = None,
    match_filters: list[MatchFilter] | None = None, ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    **options: object,
) -> list[ReplacedPatterns]:  # fmt: skip
    """:func:`replace_pattern` of the matches that every filter accepts."""
    return _replace(gm, pattern, replacement, match_filters, ignore_literals, replacement_callback)


def _replace(
    gm: GraphModule, pattern: object, replacement: object, filters: list[MatchFilter] | None,
    ignore_literals: bool, callback: Callable[[InternalMatch, Graph, Graph], Graph] | None,
) -> list[ReplacedPatterns]:  # fmt: skip
    original, wanted = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(
        wanted, match_output=False, match_placeholder=False, remove_overlapping_matches=True,
        ignore_literals=ignore_literals,
    )  # fmt: skip
    matches = [
        match for match in matcher.match(original)
        if all(accepts(match, original, wanted) for accepts in filters or ())
    ]  # fmt: skip
    changed: dict[Node, Node] = {}
    made: list[ReplacedPatterns] = []
    for match in matches:
        other = callback(match, original, wanted) if callback else _graph_of(replacement)
        made.append(_put(original, match, other, changed))
    gm.recompile()
    if isinstance(replacement, Module):
        for node in _graph_of(replacement).nodes:
            if node.op in ("call_module", "get_attr"):
                _copy_attribute(replacement, gm, str(node.target))
    return made


def _put(
    graph: Graph, match: InternalMatch, replacement: Graph, changed: dict[Node, Node]
) -> ReplacedPatterns:
    """Insert the replacement's steps before the first use of a match, and drop its own."""
    inputs = [n for n in replacement.nodes if n.op == "placeholder"]
    if len(inputs) != len(match.placeholder_nodes):
        raise AssertionError("pattern and replacement take different numbers of arguments")
    copies: dict[Node, Node] = {}
    for own, given in zip(inputs, match.placeholder_nodes, strict=True):
        copies[own] = changed.get(given, given) if isinstance(given, Node) else given
    own_nodes = set(match.nodes_map.values()) - set(match.placeholder_nodes)
    last = max((n for n in own_nodes if isinstance(n, Node)), key=list(graph.nodes).index)
    before = set(graph.nodes)
    with graph.inserting_after(last):
        results = graph.graph_copy(replacement, copies)
    made = [n for n in graph.nodes if n not in before]
    found = list(results) if isinstance(results, (tuple, list)) else [results]
    if len(found) != len(match.returning_nodes):
        raise AssertionError("pattern and replacement return different numbers of values")
    for old, new in zip(match.returning_nodes, found, strict=True):
        if isinstance(new, Node):
            old.replace_all_uses_with(new)
            changed[old] = new
    for node in reversed(list(graph.nodes)):
        if node in own_nodes and not node.users:
            graph.erase_node(node)
    return ReplacedPatterns(match.anchors[0], match.nodes_map, made)
