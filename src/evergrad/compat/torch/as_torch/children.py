"""Processes that a program starts afresh (``spawn``, ``forkserver``, ``loky``) find ``torch`` too.

The first message to such a process is a dictionary, unpickled before the program's main module is
imported. One more value in it, whose unpickling calls ``install()``, does what
``python -m evergrad.as_torch`` did in the first process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import spawn
from types import ModuleType

from evergrad.ops.surface.sharing import register_with_processes

_KEY = "evergrad.as_torch"
# Modules with a `get_preparation_data` of their own, patched when they are there.
LOKY = ("joblib.externals.loky.backend.spawn", "loky.backend.spawn")


class _Installer:
    """Unpickles as a call of ``install()``."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _install, ()


def _install() -> None:
    # start-up: the finder patches through this module
    from .finder import install

    install()


def patch(module: ModuleType = spawn) -> None:
    """Let the processes that a module prepares begin with ``install()``."""
    original = module.get_preparation_data
    if hasattr(original, "unpatched"):
        return

    def get_preparation_data(*args: object, **kwargs: object) -> dict[str, object]:
        return {_KEY: _Installer(), **original(*args, **kwargs)}

    get_preparation_data.unpatched = original  # type: ignore[attr-defined]
    module.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


def patch_loaded() -> None:
    """Patch Python's module, and the others as far as they are imported. Tensors are sent as
    PyTorch sends them also by programs that only import Python's ``multiprocessing``."""
    register_with_processes()
    patch()
    for module in _loaded():
        patch(module)


def _loaded() -> list[ModuleType]:
    """The modules of ``LOKY`` that are there: an import that was blocked leaves None."""
    found = [sys.modules.get(name) for name in LOKY]
    return [module for module in found if isinstance(module, ModuleType)]


def unpatch() -> None:
    """Undo all of it."""
    for module in (spawn, *_loaded()):
        found = module.get_preparation_data
        module.get_preparation_data = getattr(found, "unpatched", found)  # type: ignore[attr-defined]
