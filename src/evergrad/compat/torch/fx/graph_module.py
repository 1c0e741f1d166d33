"""Modules that run a graph."""

from __future__ import annotations

import copy
from typing import Any, Self

from evergrad.nn.module import Module

from .codegen import PythonCode, python_code
from .graph import Graph
from .interpreter import Interpreter


def _copy_attribute(source: object, target: Module, path: str) -> None:
    """Give ``target`` the attribute at a dotted path, with the modules on the way."""
    *modules, last = path.split(".")
    for name in modules:
        found = getattr(source, name)
        if found is getattr(target, name, None):
            return  # an outer module was copied whole
        if name not in target._modules:
            target.add_module(name, Module())
        source, target = found, getattr(target, name)
    _assign(target, last, getattr(source, last), last in getattr(source, "_buffers", {}))


def _assign(target: Module, name: str, value: Any, is_buffer: bool = False) -> None:
    if is_buffer:
        target.register_buffer(name, value)
    else:
        setattr(target, name, value)


def _place(root: Module, path: str) -> tuple[Module, str]:
    """The module that has the last name of a path; modules on the way are made."""
    *names, last = path.split(".")
    for name in names:
        if name not in root._modules:
            root.add_module(name, Module())
        root = getattr(root, name)
    return root, last


class GraphModule(Module):
    """A module whose ``forward`` interprets its graph."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        # A class of its own, as users change the class's name and forward.
        for base in cls.__mro__:
            if "GraphModuleImpl" not in base.__qualname__:
                plain = base
                break
        made = type("GraphModuleImpl", (plain,), {"__qualname__": "GraphModuleImpl"})
        return super().__new__(made)

    def __init__(
        self, root: object, graph: Graph, class_name: str = "GraphModule", **options: object
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            self.training: bool = root.training
        paths = [str(n.target) for n in graph.nodes if n.op in ("call_module", "get_attr")]
        if isinstance(root, dict):
            missing = [path for path in paths if path not in root]
            if missing:
                raise RuntimeError(
                    f"Node in graph referenced target {missing[0]} but that target was not "
                    "provided in ``root``!"
                )
            for path in sorted(dict.fromkeys(paths), key=lambda p: p.count(".")):
                _assign(*_place(self, path), root[path])
        else:
            for path in dict.fromkeys(paths):
                _copy_attribute(root, self, path)
        self.__dict__["meta"] = dict(getattr(root, "meta", {})) if isinstance(root, Module) else {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        found: Graph = self.__dict__["_graph"]
        return found

    @graph.setter
    def graph(self, value: Graph) -> None:
        self.__dict__["_graph"] = value
        value.owning_module = self

    def recompile(self) -> PythonCode:
        """The source text; nothing else is to be done, as the graph is interpreted."""
        return self.graph.python_code("self")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return Interpreter(self).run(*args, **kwargs)

    @property
    def code(self) -> str:
        return self.graph.python_code("self").src

    def print_readable(self, print_output: bool = True, **options: object) -> str:
        """The source as that of a class, with those of the graph modules below."""
        code = python_code(self.graph.nodes, "self", self.graph._codegen, verbose=True).src
        text = f"class {self._get_name()}(torch.nn.Module):\n" + "\n".join(
            f"    {line}" if line else line for line in code.lstrip("\n").split("\n")
        )
        for module in self.children():
            if isinstance(module, GraphModule):
                below = module.print_readable(print_output=False)
                text += "\n" + "\n".join(f"    {line}" for line in below.split("\n"))
        if print_output:
            print(text)
        return text

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a module at a dotted path; False if something else is on the way."""
        place: Module = self
        *names, last = target.split(".")
        for name in names:
            found = getattr(place, name, None)
            if found is None:
                place.add_module(name, Module())
                found = getattr(place, name)
            if not isinstance(found, Module):
                return False
            place = found
        place.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Drop the module at a dotted path; False if there is none."""
        place: Any = self
        *names, last = target.split(".")
        for name in names:
            place = getattr(place, name, None)
            if not isinstance(place, Module):
                return False
        if not isinstance(getattr(place, last, None), Module):
            return False
        delattr(place, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Drop the modules that no step calls."""
        used = {
            str(node.target) for node in self.graph.nodes if node.op in ("call_module", "get_attr")
        }
        for path, _ in list(self.named_modules()):
            inside = any(path == u or path.startswith(f"{u}.") for u in used)
            if path and not inside and not any(u.startswith(f"{path}.") for u in used):
                self.delete_submodule(path)

    def __deepcopy__(self, memo: dict[int, object]) -> GraphModule:
        holder = Module()
        fields = {k: v for k, v in self.__dict__.items() if k != "_graph"}
        holder.__dict__.update(copy.deepcopy(fields, memo))
        made = GraphModule(holder, copy.deepcopy(self.graph, memo), type(self).__name__)
        made.__dict__.update({k: v for k, v in holder.__dict__.items() if k != "_graph"})
        return made

    def __copy__(self) -> GraphModule:
        return GraphModule(self, copy.deepcopy(self.graph), type(self).__name__)

    def __reduce__(self) -> Any:
        fields = {k: v for k, v in self.__dict__.items() if k != "_graph"}
        return _rebuild, (fields, self.graph, type(self).__name__)

    def __str__(self) -> str:
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self.code, reminder])


def _rebuild(fields: dict[str, object], graph: Graph, name: str) -> GraphModule:
    holder = Module()
    holder.__dict__.update(fields)
    return GraphModule(holder, graph, name)
