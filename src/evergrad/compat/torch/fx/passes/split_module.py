"""Cuts a graph into submodules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.nn.module import Module

from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg

if TYPE_CHECKING:
    from evergrad.compat.torch.fx.graph_module import GraphModule


class Partition:
    """The steps that become one submodule, with what goes in and out."""

    def __init__(self, name: str) -> None:
        self.name, self.submod_name = name, f"submod_{name}"
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}


def _partitions(m: GraphModule, number_of: Callable[[Node], object]) -> dict[str, Partition]:
    found: dict[str, Partition] = {}
    owner: dict[Node, str] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        owner[node] = name = str(number_of(node))
        found.setdefault(name, Partition(name)).nodes.append(node)
    for node in m.graph.nodes:
        for source in node.all_input_nodes:
            here, there = owner.get(node), owner.get(source)
            if here == there:
                continue
            if there is not None:
                found[there].outputs.setdefault(source)
            if here is not None and source.op != "get_attr":
                found[here].inputs.setdefault(source)
    return found


def _ordered(found: dict[str, Partition]) -> list[Partition]:
    """Partitions behind those whose results they take."""
    owner = {node: part for part in found.values() for node in part.nodes}
    ordered: list[Partition] = []
    waiting = list(found.values())
    while waiting:
        ready = next(
            (
                part for part in waiting
                if all(owner.get(n) in (None, part, *ordered) for n in part.inputs)
            ),
            None,
        )  # fmt: skip
        if ready is None:
            raise RuntimeError("cycle exists between partitions!")
        waiting.remove(ready)
        ordered.append(ready)
    return ordered


def _submodule(m: GraphModule, part: Partition) -> GraphModule:
    graph, made = Graph(), dict[Node, Node]()
    for source in part.inputs:
        made[source] = graph.placeholder(source.name, source.type)
        made[source].meta = dict(source.meta)

    def local(node: Node) -> Node:
        if node not in made and node.op == "get_attr":
            made[node] = graph.node_copy(node)
        return made[node]

    for node in part.nodes:
        made[node] = graph.node_copy(node, local)
    outputs = tuple(made[n] for n in part.outputs)
    graph.output(outputs[0] if len(outputs) == 1 else outputs or None)
    return GraphModule(m, graph)


def split_module(
    m: GraphModule, root_m: Module, split_callback: Callable[[Node], object],
    qualname_map: dict[str, str] | None = None, keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False, **options: object,
) -> GraphModule:  # fmt: skip
    """A module that calls ``submod_<number>`` for each number that ``split_callback`` gives."""
    found = _partitions(m, split_callback)
    parts = list(found.values()) if keep_original_order else _ordered(found)
    base, graph, made = dict[str, Any](), Graph(), dict[Node, Any]()
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            used = any(set(node.users) - set(part.nodes) for part in parts)
            if node.op == "placeholder" or used:
                made[node] = graph.node_copy(node)
    for part in parts:
        base[part.submod_name] = _submodule(m, part)
        call = graph.call_module(part.submod_name, tuple(made[n] for n in part.inputs))
        outputs = list(part.outputs)
        for place, node in enumerate(outputs):
            made[node] = (
                call if len(outputs) == 1 else graph.call_function(operator.getitem, (call, place))
            )
        if qualname_map is not None:
            names = (str(n.target) for n in part.nodes if n.op == "call_module")
            qualname_map.update({f"{part.submod_name}.{name}": name for name in names})
    graph.output(map_arg(m.graph.output_node().args[0], lambda n: made[n]))
    for node in graph.nodes:
        if node.op == "get_attr":
            base[str(node.target)] = _attribute(m, str(node.target))
    return GraphModule(base, graph)


def _attribute(owner: GraphModule, path: str) -> GraphModule:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


__all__ = ["Partition", "split_module"]
