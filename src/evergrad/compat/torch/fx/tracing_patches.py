"""What is replaced while modules are traced: calls and attributes of modules, wrapped functions.

The replacements are made when the first trace of any thread begins and undone after the last one;
they take effect in the threads that trace, and only for values of a trace.
"""

from __future__ import annotations

import builtins
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.nn.module import Module

from .proxy import Proxy

if TYPE_CHECKING:
    from .symbolic_trace import Tracer

Space = dict[str, Any]  # the globals of a module
# Functions that are recorded as one step, by the globals they are looked up in.
WRAPPED: list[tuple[Space, str]] = []
_MISSING = object()


class _Local(threading.local):
    tracers: tuple[Any, ...] = ()


_local = _Local()


def first_proxy(values: Any) -> Proxy | None:
    """A proxy among arguments, inside of containers too."""
    for value in values:
        if isinstance(value, Proxy):
            return value
        inner = value if isinstance(value, (list, tuple)) else ()
        inner = tuple(value.values()) if isinstance(value, dict) else inner
        found = first_proxy(inner) if inner else None
        if found is not None:
            return found
    return None


def _recording(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        proxy = first_proxy((*args, *kwargs.values()))
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return call


class _Patches:
    """The replaced attributes, with a count of the traces that need them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.active = 0
        self.former: list[tuple[Space, str, object]] = []

    def enter(self, places: list[tuple[Space, str]]) -> None:
        with self.lock:
            self.active += 1
            if self.active == 1:
                self.modules = Module.__call__, Module.__getattr__
                Module.__call__, Module.__getattr__ = _calls(*self.modules)  # type: ignore[method-assign]
            replaced = {(id(space), name) for space, name, _ in self.former}
            for space, name in places:
                plain = space.get(name, getattr(builtins, name, None))
                if (id(space), name) not in replaced and callable(plain):
                    replaced.add((id(space), name))
                    self.former.append((space, name, space.get(name, _MISSING)))
                    space[name] = _recording(plain)

    def leave(self) -> None:
        with self.lock:
            self.active -= 1
            if self.active:
                return
            Module.__call__, Module.__getattr__ = self.modules  # type: ignore[method-assign]
            for space, name, plain in reversed(self.former):
                if plain is _MISSING:
                    del space[name]
                else:
                    space[name] = plain
            self.former = []


def _calls(call: Callable[..., object], read: Callable[..., object]) -> tuple[Any, Any]:
    def traced_call(module: Module, *args: object, **kwargs: object) -> object:
        if not _local.tracers:
            return call(module, *args, **kwargs)
        forward = functools.partial(call, module)
        return _local.tracers[-1].call_module(module, forward, args, kwargs)

    def traced_read(module: Module, name: str) -> object:
        value = read(module, name)
        if not _local.tracers:
            return value
        tracer = _local.tracers[-1]
        return tracer.getattr(name, value, tracer._parameter_proxies)

    return traced_call, traced_read


_patches = _Patches()


class traced_by:  # noqa: N801 - a context
    """Within the context, modules and wrapped functions go through a tracer."""

    def __init__(self, tracer: Tracer, places: list[tuple[Space, str]]) -> None:
        self.tracer, self.places = tracer, places

    def __enter__(self) -> None:
        _patches.enter(self.places)
        _local.tracers = (*_local.tracers, self.tracer)

    def __exit__(self, *exc: object) -> None:
        _local.tracers = _local.tracers[:-1]
        _patches.leave()


class untraced:  # noqa: N801 - a context
    """Within the context, modules are read and called as they are."""

    def __enter__(self) -> None:
        self.former, _local.tracers = _local.tracers, ()

    def __exit__(self, *exc: object) -> None:
        _local.tracers = self.former


def is_fx_tracing() -> bool:
    """Whether this thread traces a module."""
    return bool(_local.tracers)
