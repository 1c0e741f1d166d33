"""Names that are imported when they are first used, so that ``import evergrad`` stays quick.

Another thread may be in the midst of it when a process is forked. The child would wait forever for
a module that nobody goes on with, so a fork waits for imports of this package to end
(:mod:`evergrad.core.fork` calls what is here).
"""

from __future__ import annotations

import _imp
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import _bootstrap, import_module
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


# The locks of modules that are being imported now, by weak references. Python does not promise that
# it has them; without them a fork does not wait.
_locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
# Imports of two threads may wait for each other, and Python lets one go on; no fork waits for that.
_MOST_WAITS = 1000


def hold_imports() -> None:
    """Wait for imports of this package in other threads; none begins until the fork is done."""
    for _ in range(_MOST_WAITS):
        _imp.acquire_lock()
        names = [name for name in list(_locks) if _is_awaited(name)]
        if not names:
            return
        _imp.release_lock()
        for name in names:
            with suppress(Exception):  # who imports it is told
                import_module(name)
    _imp.acquire_lock()


def _is_awaited(name: str) -> bool:
    """Whether it is ours (others may run for as long as their program does) and not of this
    thread."""
    lock = _locks[name]() if name.partition(".")[0] == "evergrad" else None
    return lock is not None and lock.owner not in (None, threading.get_ident())


def release_imports() -> None:
    """Let imports begin again, in the parent as in the child."""
    _imp.release_lock()
