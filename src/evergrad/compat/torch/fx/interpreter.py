"""Runs a graph step by step, or makes another graph of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.types import Args, Kwargs
from evergrad.nn.module import Module

from .graph import Graph
from .node import Node, map_arg
from .proxy import Proxy, TracerBase

if TYPE_CHECKING:
    from evergrad.compat.torch.fx.proxy import Proxy

    from .graph_module import GraphModule


class Interpreter:
    """Subclass it and change what a kind of step does."""

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.submodules: dict[str, Module] = (
            dict(module.named_modules()) if isinstance(module, Module) else {}
        )
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self._arguments: list[object] = []
        self._named: dict[str, object] = {}

    def run(
        self, *args: object, initial_env: dict[Node, object] | None = None,
        enable_io_processing: bool = True, **kwargs: object,
    ) -> Any:  # fmt: skip
        """The value of the output, given those of the placeholders."""
        self.env = dict(initial_env or {})
        self._arguments, self._named = list(args), dict(kwargs)
        for node in self.graph.nodes:
            if node not in self.env:
                self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
        return None

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: object, n: Node) -> Any:
        return map_arg(args, lambda node: self.env[node])

    def placeholder(self, target: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        if target.startswith("**"):
            found, self._named = self._named, {}
            return found
        if target.startswith("*"):
            rest, self._arguments = self._arguments, []
            return tuple(rest)
        if self._arguments:
            return self._arguments.pop(0)
        if target in self._named:
            return self._named.pop(target)
        if args:
            return args[0]
        raise RuntimeError(
            f"Expected positional argument for parameter {target}, but one was not passed in!"
        )

    def get_attr(self, target: str, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        return self.fetch_attr(target)

    def fetch_attr(self, target: str) -> Any:
        value = self.module
        for name in target.split("."):
            value = getattr(value, name)
        return value

    def call_function(self, target: Any, args: Args, kwargs: Kwargs) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[object, ...], kwargs: Kwargs) -> Any:
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target: str, args: Args, kwargs: Kwargs) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: object, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        return args[0]


class Transformer(Interpreter):
    """An interpreter whose values are proxies: the result is another module."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph: Graph = Graph()
        self.tracer: TracerBase = TracerBase()
        self.tracer.graph = self.new_graph

    def placeholder(
        self, target: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Proxy:
        return self.tracer.create_proxy("placeholder", target, args, kwargs)

    def get_attr(
        self, target: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Proxy:
        return self.tracer.create_proxy("get_attr", target, (), {})

    def call_function(
        self, target: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Proxy:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_module(
        self, target: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Proxy:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module that the steps of this one become."""
        # a cycle: modules of graphs are interpreted
        from .graph_module import GraphModule

        found = super().run()
        if found is not None:
            self.new_graph.output(map_proxies(found))
        return GraphModule(self.module, self.new_graph)


def map_proxies(value: object) -> Any:
    """Proxies as their nodes."""
    if isinstance(value, Proxy):
        return value.node
    if isinstance(value, (list, tuple)):
        return type(value)(map_proxies(v) for v in value)
    if isinstance(value, dict):
        return {k: map_proxies(v) for k, v in value.items()}
    return value
