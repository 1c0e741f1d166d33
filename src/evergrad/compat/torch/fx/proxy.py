"""Symbolic values: what is done with a proxy becomes a step of a graph."""

from __future__ import annotations

import dis
import enum
import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from evergrad.core.device import Device
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import layout, memory_format
from evergrad.core.tensor import Tensor

from .graph import Graph
from .node import Node, map_aggregate

_PLAIN = (str, int, float, bool, complex, bytes, dtype, Tensor, Device, layout, memory_format)


class TraceError(ValueError):
    """A value was needed that is known only when the program runs."""


class Proxy:
    """The result of a step that will be computed when the graph runs."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.node = node
        self.tracer: TracerBase | GraphAppendingTracer = (
            tracer if tracer is not None else GraphAppendingTracer(node.graph)
        )

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: object, **kwargs: object) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        """Unpacking into a known number of names takes that many elements."""
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is not None:
            for step in dis.get_instructions(caller.f_code):
                if step.offset == caller.f_lasti and step.opname == "UNPACK_SEQUENCE":
                    return iter([self[place] for place in range(step.argval)])  # type: ignore[index]
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    def keys(self) -> Any:
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., object], types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        tracers: dict[int, Any] = {}

        def note(value: object) -> None:
            if isinstance(value, Proxy):
                tracers[id(value.tracer)] = value.tracer

        map_aggregate((tuple(args), kwargs or {}), note)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers.values())} while trying to trace "
                f"operations {func}"
            )
        (tracer,) = tracers.values()
        name = getattr(func, "__name__", "")
        if vars(Tensor).get(name) is func:
            return tracer.create_proxy("call_method", name, args, kwargs or {})
        return tracer.create_proxy("call_function", func, args, kwargs or {})


class Attribute(Proxy):
    """``x.name``: a step once it is used, or a method once it is called."""

    tracer: TracerBase | GraphAppendingTracer
    attr: str
    root: Proxy

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            made = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = made.node
        return self._node

    def __call__(self, *args: object, **kwargs: object) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


_BINARY = (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "lshift", "rshift", "and_", "or_",
    "xor", "matmul",
)  # fmt: skip
_ONE_SIDED = ("lt", "le", "eq", "ne", "gt", "ge", "getitem", "neg", "pos", "invert", "abs")


def _operators(name: str) -> None:
    target = getattr(operator, name)
    stem = name.rstrip("_")

    def forward(self: Proxy, *others: object) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, *others), {})

    def reflected(self: Proxy, other: object) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    setattr(Proxy, f"__{stem}__", forward)
    if name in _BINARY:
        setattr(Proxy, f"__r{stem}__", reflected)


for _name in (*_BINARY, *_ONE_SIDED):
    _operators(_name)
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


class TracerBase:
    """What makes steps and proxies of them."""

    graph: Graph
    record_stack_traces = False

    def create_node(
        self, kind: str, target: object, args: tuple[object, ...], kwargs: dict[str, object],
        name: str | None = None, type_expr: object = None,
    ) -> Node:  # fmt: skip
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: object, args: tuple[object, ...], kwargs: dict[str, object],
        name: str | None = None, type_expr: object = None, proxy_factory_fn: Any = None,
    ) -> Proxy:  # fmt: skip
        """A step, and the proxy of its result."""
        positional, named = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, positional, named, name, type_expr)
        found: Proxy = proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)
        return found

    def create_arg(self, a: object) -> Any:
        """Proxies as their nodes, inside of containers too."""
        return map_aggregate(a, self._argument)

    def _argument(self, a: object) -> object:
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, range):
            return range(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if is_dataclass(a) and not isinstance(a, type):
            members = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), members)
        if not (isinstance(a, (*_PLAIN, enum.Enum)) or a is None or a is ... or callable(a)):
            raise NotImplementedError(f"argument of type: {type(a)}")
        return a

    def iter(self, obj: Proxy) -> Iterator[Any]:
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. See the torch.fx docs on "
            "pytorch.org for a more detailed explanation of what types of control flow can be "
            "traced, and check out the Proxy docstring for help troubleshooting Proxy iteration "
            "errors"
        )

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def keys(self, obj: Proxy) -> Proxy:
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds steps to a graph that exists."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
