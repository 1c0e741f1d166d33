"""Names that are imported when they are first used, so that ``import evergrad`` stays quick."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: dict[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` that finds each name in the submodule it is listed under."""
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(f"{package}.{home[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def lazy_modules(package: str, *names: str) -> Callable[[str], Any]:
    """A package's ``__getattr__`` that imports these submodules when they are first asked for."""

    def find(name: str) -> Any:
        if name in names:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
