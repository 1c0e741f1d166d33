"""Functions that a lower layer calls and a higher one provides.

A module imports only modules of its own layer and of layers below. Where it calls a function of a
higher layer (a conversion to a sparse tensor, a native kernel), it declares an
:class:`ExtensionPoint` with the function's name, and the higher module registers the function under
that name with :func:`provides`. A provider that is not imported at start-up is named by the root of
the package, ``evergrad/__init__.py``, and imported by the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# The registered functions by name, and the modules that register the others when imported.
_functions: dict[str, Callable[..., object]] = {}
_providers: dict[str, str] = {}


class ExtensionPoint(Generic[P, R]):
    """A function of a higher layer, by name; resolved at the first call."""

    __slots__ = ("_function", "name")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self._function: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        function = self._function
        if function is None:
            function = self._function = resolved(self.name)
        return function(*args, **kwargs)


def provides(name: str) -> Callable[[F], F]:
    """Register the decorated function as the one that extension points of this name call."""

    def register(function: F) -> F:
        if name in _functions:
            raise ValueError(f"two functions are registered as {name!r}")
        _functions[name] = function
        return function

    return register


def provided_by(modules: dict[str, tuple[str, ...]]) -> None:
    """State which modules register which functions when they are imported: {module: names}."""
    _providers.update({name: module for module, names in modules.items() for name in names})


def resolved(name: str) -> AnyFunction:
    """The function registered under a name, after the import of its provider is complete."""
    if name in _providers:  # another thread may be in the midst of importing it
        import_module(_providers[name])
    return _functions[name]
