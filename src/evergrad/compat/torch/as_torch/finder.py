"""How ``import torch`` finds evergrad: an entry at the front of ``sys.meta_path``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .facade import Facade
from .version import TORCH_VERSION

_SERVED = ("torch", "torchvision")


class _Finder(MetaPathFinder):
    """Finds the modules of ``torch`` and ``torchvision``, and only those."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _SERVED:
            return None
        return ModuleSpec(fullname, _Loader(_module_for(fullname)), is_package=True)


class _Loader(Loader):
    """Gives the module that was found."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


def _module_for(name: str) -> ModuleType:
    if name.startswith("torchvision"):
        return _of_torchvision(name)
    path = "evergrad" + name.removeprefix("torch")
    try:
        target = import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise  # something that evergrad itself needs is missing
        raise ModuleNotFoundError(f"evergrad has no {name}", name=name) from None
    own = {"__version__": TORCH_VERSION} if name in ("torch", "torch.version") else {}
    return Facade(name, target, **own)


def _of_torchvision(name: str) -> ModuleType:
    # start-up: models and datasets, for programs that import torchvision only
    from evergrad.datasets.torchvision_names import VERSION, find_module

    own: dict[str, Any] = {"__version__": VERSION} if name == "torchvision" else {}
    return Facade(name, find_module(name), **own)


_finder = _Finder()


def install() -> None:
    """Let ``import torch`` and ``import torchvision`` find evergrad, from now on.

    Refused if PyTorch itself is already imported: a program with two of them would mix tensors
    that do not fit together.
    """
    for name in _SERVED:
        if name in sys.modules and not isinstance(sys.modules[name], Facade):
            raise RuntimeError(
                f"{name} is already imported from {getattr(sys.modules[name], '__file__', None)}. "
                "Call evergrad.as_torch.install() before anything imports it."
            )
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Undo :func:`install`: forget the modules it served."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [n for n, module in sys.modules.items() if isinstance(module, Facade)]:
        del sys.modules[name]
