"""Symbolic tracing: a module or function called with proxies leaves a graph."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.nn.containers import Sequential
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter
from evergrad.utils import _pytree as pytree

from .graph import Graph
from .graph_module import GraphModule
from .proxy import Proxy, TracerBase
from .tracing_patches import WRAPPED, Space, is_fx_tracing, traced_by, untraced

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class PHBase:
    """A concrete argument that stays a placeholder."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


def wrap(fn_or_name: Any) -> Any:
    """Record a function of the calling module as one step, instead of what it does."""
    if not (callable(fn_or_name) or isinstance(fn_or_name, str)):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    if frame.f_back.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    WRAPPED.append((frame.f_back.f_globals, name))
    return fn_or_name


def _assert_is_none(value: object, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


def _assert_equal(condition: object, message: str) -> None:
    assert condition, message


_assert_equal.__name__, _assert_equal.__module__ = "_assert", "torch"


def _without_stars(function: Callable[..., object], count: int) -> FunctionType:
    """The function with ``*args`` and ``**kwargs`` as plain parameters, for which proxies stand."""
    code = function.__code__.replace(
        co_flags=function.__code__.co_flags & ~_VARIADIC, co_argcount=count,
        co_posonlyargcount=0, co_kwonlyargcount=0,
    )  # fmt: skip
    return FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def _annotation(function: object, name: str) -> Any:
    """The type that a program gives a parameter; evergrad's own say more than PyTorch's."""
    own = str(function.__module__).startswith("evergrad")
    return None if own else function.__annotations__.get(name)


class Tracer(TracerBase):
    """Runs a module's ``forward`` with proxies. Modules of ``nn`` are single steps."""

    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,), autowrap_functions: Any = (),
        param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        self.graph: Graph = Graph()
        self.root: Any = None
        self.scope: object = None
        self.param_shapes_constant = param_shapes_constant
        self._autowrap_modules = tuple(autowrap_modules)
        self._autowrap_functions = tuple(autowrap_functions)
        self._parameter_proxies: dict[str, Proxy] = {}
        self._names: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._constants: dict[int, str] = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is recorded as one step: those of ``nn`` but containers."""
        return m.__module__.startswith(("evergrad.nn", "torch.nn")) and not isinstance(
            m, Sequential
        )

    def path_of_module(self, mod: Module) -> str:
        path = self._paths.get(id(mod))
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    def call_module(
        self, m: Module, forward: Callable[..., object], args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> Any:  # fmt: skip
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: object, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Parameters, and buffers on demand, as proxies."""
        is_proxied = isinstance(attr_val, Parameter) or (
            self.proxy_buffer_attributes and isinstance(attr_val, Tensor)
        )
        name = self._names.get(id(attr_val)) if is_proxied else None
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
        return parameter_proxy_cache[name]

    def _argument(self, a: object) -> object:
        if isinstance(a, Tensor) and isinstance(self.root, Module):
            name = self._names.get(id(a)) or self._constant(a)
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, Module) and id(a) in self._paths:
            return self.create_node("get_attr", self._paths[id(a)], (), {})
        return super()._argument(a)

    def _constant(self, tensor: Tensor) -> str:
        """The attribute of the root that holds a tensor of the program."""
        with untraced():
            number = len(self._constants)
            while hasattr(self.root, f"_tensor_constant{number}"):
                number += 1
            if id(tensor) not in self._constants:
                self._constants[id(tensor)] = f"_tensor_constant{number}"
                setattr(self.root, f"_tensor_constant{number}", tensor)
        return self._constants[id(tensor)]

    # -- arguments ------------------------------------------------------------------------------

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, Leaves]:
        """The function to call, and the placeholders to call it with."""
        function = inspect.unwrap(root_fn)
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        args: Leaves = [self.root] if is_module else []
        if is_module and not count:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        names = list(code.co_varnames[len(args) : count])
        if isinstance(concrete_args, tuple):
            if len(names) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(names)} arguments but got {len(concrete_args)} "
                    "concrete arguments"
                )
            concrete_args = dict(zip(names, concrete_args, strict=True))
        stars = list(code.co_varnames[count:])
        if code.co_flags & inspect.CO_VARARGS:
            names.append("*" + stars.pop(0))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            names.append("**" + stars.pop(0))
        args += [self._placeholder(function, name, concrete_args or {}) for name in names]
        if code.co_kwonlyargcount or code.co_flags & _VARIADIC:
            root_fn = _without_stars(root_fn, len(args))
        return root_fn, args

    def _placeholder(
        self, function: Callable[..., object], name: str, concrete: Mapping[str, object]
    ) -> object:
        parameter = inspect.signature(function).parameters[name.strip("*")]
        default = () if parameter.default is parameter.empty else (parameter.default,)
        if name not in concrete:
            kind = _annotation(function, name)
            return self.create_proxy("placeholder", name, default, {}, type_expr=kind)
        number = 0

        def specialize(value: object) -> object:
            nonlocal number
            number += 1
            made = self.create_proxy("placeholder", f"{name}_{number}", default, {})
            return made if isinstance(value, PHBase) else self._specialized(made, name, value)

        return pytree.tree_map(specialize, concrete[name])

    def _specialized(self, made: object, name: str, value: object) -> object:
        """A concrete value; the graph checks that it is called with the same one."""
        message = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (made, message), {})
        elif isinstance(value, (bool, int, float, str, complex)):
            self.create_proxy("call_function", _assert_equal, (made == value, message), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized "
                "function. It is up to the user to make sure that your inputs match the inputs "
                "you specialized the function with.",
                stacklevel=2,
            )
        return value

    # -- tracing --------------------------------------------------------------------------------

    def _patched_places(self, function: Callable[..., object]) -> list[tuple[Space, str]]:
        """Where the functions are looked up that are recorded as one step."""
        places = list(WRAPPED)
        for module in self._autowrap_modules:
            functions = vars(module).items()
            places += [(vars(module), n) for n, f in functions if callable(f) and n[0] != "_"]
        wanted = {id(f) for f in self._autowrap_functions} | {
            id(space[name]) for space, name in places if name in space and space is not vars(math)
        }
        wanted |= {id(f) for m in self._autowrap_modules for f in vars(m).values() if callable(f)}
        space = inspect.unwrap(function).__globals__
        places += [(space, name) for name, value in space.items() if id(value) in wanted]
        return places

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """The graph of a module's ``forward``, or of a function."""
        is_module = isinstance(root, Module)
        self.root = root if is_module else Module()
        self.graph = Graph(tracer_cls=type(self))
        self._parameter_proxies, self._constants = {}, {}
        tensors = (*self.root.named_buffers(), *self.root.named_parameters())
        self._names = {id(value): name for name, value in tensors}
        self._paths = {id(m): name for name, m in self.root.named_modules()}
        function = getattr(type(root), self.traced_func_name) if is_module else root
        function = getattr(function, "__func__", function)
        called, args = self.create_args_for_root(function, is_module, concrete_args)
        with traced_by(self, self._patched_places(function)):
            result = called(*args)
            with untraced():
                kind = _annotation(inspect.unwrap(function), "return")
                self.create_node("output", "output", (self.create_arg(result),), {}, None, kind)
        return self.graph


def symbolic_trace(root: Any, concrete_args: object = None) -> GraphModule:
    """A module that runs the graph of another module or of a function."""
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


__all__ = ["PH", "PHBase", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]
