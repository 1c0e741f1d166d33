"""Lazy imports: names that are imported at their first use, so that ``import evergrad`` is fast.

A fork waits for imports of this package in other threads: the child would deadlock on the lock of a
half-imported module. :mod:`evergrad.core.fork` calls the functions here.
"""

from __future__ import annotations

import _imp
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import _bootstrap, import_module
from typing import TYPE_CHECKING, Any

from evergrad.errors import UnknownNameError

if TYPE_CHECKING:
    from types import ModuleType


def lazy_names(package: str, homes: dict[str, tuple[str, ...]]) -> Callable[[str], object]:
    """A module's ``__getattr__`` that imports each name from the submodule it is listed under."""
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(f"{package}.{home[name]}"), name)
        raise unknown_name(package, name, home)

    return find


def lazy_modules(package: str, *names: str) -> Callable[[str], ModuleType]:
    """A package's ``__getattr__`` that imports these submodules at their first use."""

    def find(name: str) -> ModuleType:
        if name in names:
            return import_module(f"{package}.{name}")
        raise unknown_name(package, name, names)

    return find


def known_names(module: str) -> Callable[[str], object]:
    """The ``__getattr__`` of a module without lazy names: suggests the nearest name."""

    def find(name: str) -> Any:
        raise unknown_name(module, name)

    return find


def unknown_name(module: str, name: str, lazy: Iterable[str] = ()) -> AttributeError:
    """What to raise for an attribute that a module does not have."""
    if name.startswith("_"):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return UnknownNameError(f"module {module!r}", name, lambda: [*vars(sys.modules[module]), *lazy])


# The locks of modules that are being imported, by weak references. A private name of CPython;
# without it a fork does not wait.
_locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
# Bounds the wait: imports of two threads may deadlock, which Python resolves by itself.
_MOST_WAITS = 1000


def hold_imports() -> None:
    """Wait for imports of this package in other threads, and block new ones until the fork."""
    for _ in range(_MOST_WAITS):
        _imp.acquire_lock()
        names = [name for name in list(_locks) if _is_awaited(name)]
        if not names:
            return
        _imp.release_lock()
        for name in names:
            with suppress(Exception):  # raised in the importing thread
                import_module(name)
    _imp.acquire_lock()


def _is_awaited(name: str) -> bool:
    """Whether it is a module of this package (importing others may run a whole program) that
    another thread is importing."""
    lock = _locks[name]() if name.partition(".")[0] == "evergrad" else None
    return lock is not None and lock.owner not in (None, threading.get_ident())


def release_imports() -> None:
    """Let imports begin again, in the parent as in the child."""
    _imp.release_lock()
