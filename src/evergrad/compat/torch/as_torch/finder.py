"""How ``import torch`` finds evergrad: an entry at the front of ``sys.meta_path``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution
from types import ModuleType
from typing import Any

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.package_name import set_package_name
from evergrad.core.settings import set_data_writes_counted
from evergrad.core.tensor import Tensor
from evergrad.nn.parameter import Parameter

from ..overrides import let_layers_dispatch
from . import children, patched_imports, refusals
from .facade import Facade
from .private_names import RENAMED
from .version import TORCH_VERSION

_ALIASES = ("half", "float", "double", "short", "int", "long", "chalf", "cfloat", "cdouble")
_SERVED = ("torch", "torchvision", "functorch")


class _Finder(MetaPathFinder):
    """Finds ``torch``, ``torchvision``, ``functorch`` and all below; also what is patched."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _SERVED:
            return patched_imports.find_spec(fullname, path)
        installed = _of_installed_torchvision(fullname)
        if installed is not None:
            return installed
        return ModuleSpec(fullname, _Loader(_module_for(fullname)), is_package=True)

    def find_distributions(self, context: object = None) -> Iterator[Distribution]:
        """What ``importlib.metadata`` says about ``torch``."""
        name = getattr(context, "name", None)
        if name is None or name.lower() == "torch":
            yield _Torch()


def _of_installed_torchvision(name: str) -> ModuleSpec | None:
    """The spec of a module of the torchvision that is installed, where evergrad has none of its
    own: its models are programs like others. Its compiled operators are not loaded."""
    package, _, rest = name.partition(".")
    if package != "torchvision" or not rest:
        return None
    # start-up: models and datasets, for programs that import torchvision only
    from evergrad.datasets.torchvision_names import MODULES

    whole = PathFinder.find_spec(package)
    if name in MODULES or whole is None or not whole.submodule_search_locations:
        return None
    root = whole.submodule_search_locations[0]
    return PathFinder.find_spec(name, [os.path.join(root, *rest.split(".")[:-1])])


class _Torch(Distribution):
    """The metadata of PyTorch's version whose names are served."""

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            return f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH_VERSION}\n"
        return None

    def locate_file(self, path: object) -> Any:
        return path


class _Loader(Loader):
    """Gives the module that was found."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


# Packages that PyTorch serves under a former name too.
_FORMER = {"torch.distributed._tensor": "torch.distributed.tensor"}


def _module_for(name: str) -> ModuleType:
    if name.startswith("torchvision"):
        return _of_torchvision(name)
    for former, present in _FORMER.items():
        if f"{name}.".startswith(f"{former}."):
            return import_module(present + name.removeprefix(former))
    path = RENAMED.get(name, "evergrad" + name.removeprefix("torch"))
    if name.startswith("functorch"):
        path = "evergrad.func" + name.removeprefix("functorch")
    try:
        target = import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise  # something that evergrad itself needs is missing
        if not refusals.is_module(name):
            raise ModuleNotFoundError(f"evergrad has no {name}", name=name) from None
        target = refusals.empty_module(name)
    own = {"__version__": TORCH_VERSION} if name in ("torch", "torch.version") else {}
    made = Facade(name, target, **own)
    if name == "torch":
        made.__dict__["torch"] = made
        made.__dict__.update(_element_types(target))
    return made


def _element_types(package: ModuleType) -> dict[str, dtype]:
    """The element types under all their names: packages look them up in ``vars(torch)``."""
    names = [found.name for found in vars(dtypes).values() if isinstance(found, dtype)]
    return {name: getattr(package, name) for name in (*names, *_ALIASES) if hasattr(package, name)}


def _of_torchvision(name: str) -> ModuleType:
    # start-up: models and datasets, for programs that import torchvision only
    from evergrad.datasets.torchvision_names import VERSION, find_module

    own: dict[str, Any] = {"__version__": VERSION} if name == "torchvision" else {}
    try:
        target = find_module(name)
    except ModuleNotFoundError:
        if not refusals.is_module(name):
            raise
        target = refusals.empty_module(name)
    return Facade(name, target, **own)


_finder = _Finder()


# Libraries that take several kinds of arrays recognize a tensor by the module of its class.
_HOMES = Tensor.__module__, Parameter.__module__


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
        set_data_writes_counted(False)
        set_package_name("torch")
        let_layers_dispatch()
        Tensor.__module__, Parameter.__module__ = "torch", "torch.nn.parameter"
        children.patch_loaded()


def uninstall() -> None:
    """Undo :func:`install`: forget the modules it served."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        set_data_writes_counted(True)
        set_package_name("evergrad")
        Tensor.__module__, Parameter.__module__ = _HOMES
        children.unpatch()
    for name in [n for n, module in sys.modules.items() if issubclass(type(module), Facade)]:
        del sys.modules[name]
