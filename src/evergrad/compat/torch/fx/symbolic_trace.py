"""Symbolic tracing: a module or function called with proxies leaves a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.nn.containers import Sequential
from evergrad.nn.module import Module

from .graph_module import GraphModule
from .node import Graph, Node
from .proxy import Proxy, TracerBase

# Functions that are recorded as one step, by the globals they are looked up in.
_wrapped: list[tuple[dict[str, Any], str]] = []


def wrap(fn_or_name: Any) -> Any:
    """Record a function of the calling module as one step, instead of what it does."""
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    _wrapped.append((frame.f_back.f_globals, name))
    return fn_or_name


def _recording(function: Callable[..., object]) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> Any:
        proxy = next((a for a in (*args, *kwargs.values()) if isinstance(a, Proxy)), None)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", function, args, kwargs)

    return call


class Tracer(TracerBase):
    """Runs a module's ``forward`` with proxies. Modules of ``nn`` are single steps."""

    def __init__(
        self, autowrap_modules: object = (), autowrap_functions: Any = (),
        param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        self.graph: Graph = Graph()
        self.root: Any = None
        self.scope: Any = None
        self.param_shapes_constant = param_shapes_constant
        self._autowrap_functions = tuple(autowrap_functions)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is recorded as one step: those of ``nn`` but containers."""
        return m.__module__.startswith("evergrad.nn") and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        for name, module in self.root.named_modules():
            if module is mod:
                return str(name)
        raise NameError("module is not installed as a submodule")

    def call_module(
        self, m: Module, forward: Callable[..., object], args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> Any:  # fmt: skip
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: object, parameter_proxy_cache: dict[str, object]) -> Any:
        return attr_val

    def _argument(self, a: object) -> Any:
        if isinstance(a, Tensor) and isinstance(self.root, Module):
            for name, value in (*self.root.named_parameters(), *self.root.named_buffers()):
                if value is a:
                    return self.create_node("get_attr", name, (), {})
            return self._constant(a)
        return super()._argument(a)

    def _constant(self, tensor: Tensor) -> Node:
        number = 0
        while hasattr(self.root, f"_tensor_constant{number}"):
            number += 1
        name = f"_tensor_constant{number}"
        setattr(self.root, name, tensor)
        return self.create_node("get_attr", name, (), {})

    def _placeholders(self, function: Callable[..., object], concrete: dict[str, object]) -> Any:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name in concrete:
                value = concrete[name]
            else:
                empty = parameter.default is inspect.Parameter.empty
                default = () if empty else (parameter.default,)
                stars: dict[Any, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
                target = stars.get(parameter.kind, "") + name
                value = self.create_proxy("placeholder", target, default, {}, name=name)
            if parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return args, kwargs

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's ``forward``, or of a function."""
        self.root = root if isinstance(root, Module) else Module()
        self.graph = Graph(tracer_cls=type(self))
        function = root.forward if isinstance(root, Module) else root
        args, kwargs = self._placeholders(function, concrete_args or {})
        former = [(space, name, space[name]) for space, name in _wrapped if name in space]
        plain_call = Module.__call__
        tracer = self

        def call(module: Module, *args: object, **kwargs: object) -> Any:
            def forward(*args: object, **kwargs: object) -> Any:
                return plain_call(module, *args, **kwargs)

            return tracer.call_module(module, forward, args, kwargs)

        try:
            Module.__call__ = call  # type: ignore[method-assign, assignment]
            for space, name, plain in former:
                space[name] = _recording(plain)
            self.create_node("output", "output", (self.create_arg(function(*args, **kwargs)),), {})
        finally:
            Module.__call__ = plain_call  # type: ignore[method-assign]
            for space, name, plain in former:
                space[name] = plain
        return self.graph


def symbolic_trace(root: Any, concrete_args: dict[str, object] | None = None) -> GraphModule:
    """A module that runs the graph of another module or of a function."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
