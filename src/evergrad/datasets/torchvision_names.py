"""Where each module of torchvision is found here, for programs that import it by its own name."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

VERSION = "0.28.0"

# Whole modules that have a counterpart.
MODULES = {
    "torchvision.datasets": "evergrad.datasets",
    "torchvision.datasets.cifar": "evergrad.datasets.cifar",
    "torchvision.datasets.fakedata": "evergrad.datasets.fake",
    "torchvision.datasets.folder": "evergrad.datasets.folder",
    "torchvision.datasets.mnist": "evergrad.datasets.mnist",
    "torchvision.datasets.vision": "evergrad.datasets.vision",
    "torchvision.datasets.utils": "evergrad.datasets.files",
    "torchvision.transforms": "evergrad.transforms",
    "torchvision.transforms.functional": "evergrad.transforms.functional",
    "torchvision.transforms.transforms": "evergrad.transforms",
    "torchvision.transforms.v2": "evergrad.transforms.v2",
    "torchvision.transforms.v2.functional": "evergrad.transforms.v2.functional",
    "torchvision.utils": "evergrad.datasets.images",
}

# Modules that have none, and what to say instead of "no module named".
ABSENT = {
    "torchvision.io": "read_image and save_image of evergrad.datasets read and write PNG files",
    "torchvision.models": "define the network with evergrad.nn",
    "torchvision.ops": "define the operation with evergrad's ops",
    "torchvision.tv_tensors": "images are plain tensors",
}

_HIGHEST = ("datasets", "transforms", "utils")


def find_module(name: str) -> ModuleType:
    """The replacement of ``torchvision`` or of one of its modules."""
    if name == "torchvision":
        return _top()
    if name in MODULES:
        return import_module(MODULES[name])
    for absent, advice in ABSENT.items():
        if name == absent or name.startswith(absent + "."):
            raise ModuleNotFoundError(f"evergrad has no {name}: {advice}", name=name)
    raise ModuleNotFoundError(f"evergrad has no {name}", name=name)


def _top() -> ModuleType:
    """A module ``torchvision`` whose parts are found on first access."""
    module = ModuleType("torchvision", "torchvision's names, served by evergrad.")
    module.__path__ = []
    module.__dict__["__version__"] = f"{VERSION}+evergrad"
    module.__dict__["__getattr__"] = _attribute
    return module


def _attribute(name: str) -> ModuleType:
    if name in _HIGHEST:
        return find_module(f"torchvision.{name}")
    advice = ABSENT.get(f"torchvision.{name}")
    reason = f": {advice}" if advice else ""
    raise AttributeError(f"evergrad has no torchvision.{name}{reason}")
