"""Modules that run a graph."""

from __future__ import annotations

import copy
from typing import Any

from evergrad.nn.module import Module

from .interpreter import Interpreter
from .node import Graph


def _copy_attribute(source: object, target: Module, path: str) -> None:
    """Give ``target`` the attribute at a dotted path, with the modules on the way."""
    *modules, last = path.split(".")
    for name in modules:
        found = getattr(source, name)
        if name not in target._modules:
            target.add_module(name, Module())
        source, target = found, getattr(target, name)
    value = getattr(source, last)
    if last in getattr(source, "_buffers", {}):
        target.register_buffer(last, value)
    else:
        setattr(target, last, value)


class GraphModule(Module):
    """A module whose ``forward`` interprets its graph."""

    def __init__(self, root: object, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        self.__dict__["_class_name"] = class_name
        if isinstance(root, Module):
            self.training: bool = root.training
        for node in graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            if isinstance(root, dict):
                setattr(self, node.target, root[node.target])
            else:
                _copy_attribute(root, self, node.target)
        self.graph = graph

    @property
    def graph(self) -> Graph:
        found: Graph = self.__dict__["_graph"]
        return found

    @graph.setter
    def graph(self, value: Graph) -> None:
        self.__dict__["_graph"] = value
        value.owning_module = self

    def recompile(self) -> None:
        """Nothing to do: the graph is interpreted."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return Interpreter(self).run(*args, **kwargs)

    @property
    def code(self) -> str:
        return str(self.graph)

    def print_readable(self, print_output: bool = True, **options: object) -> str:
        if print_output:
            print(self.graph)
        return str(self.graph)

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a module at a dotted path."""
        *names, last = target.split(".")
        place: Module = self
        for name in names:
            if name not in place._modules:
                place.add_module(name, Module())
            place = getattr(place, name)
        place.add_module(last, m)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Drop the modules that no step calls."""
        used = {node.target for node in self.graph.nodes if node.op in ("call_module", "get_attr")}
        for name in list(self._modules):
            if not any(target == name or target.startswith(f"{name}.") for target in used):
                delattr(self, name)

    def __deepcopy__(self, memo: dict[int, object]) -> GraphModule:
        holder = Module()
        holder.__dict__.update(
            {k: copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k != "_graph"}
        )
        return GraphModule(holder, copy.deepcopy(self.graph, memo), self._class_name)

    def __reduce__(self) -> Any:
        fields = {k: v for k, v in self.__dict__.items() if k != "_graph"}
        return _rebuild, (fields, self.graph, self._class_name)


def _rebuild(fields: dict[str, object], graph: Graph, name: str) -> GraphModule:
    holder = Module()
    holder.__dict__.update(fields)
    return GraphModule(holder, graph, name)
