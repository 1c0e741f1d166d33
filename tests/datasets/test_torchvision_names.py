"""torchvision's modules by their names, and that nothing is loaded before it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from evergrad import datasets, transforms
from evergrad.datasets import torchvision_names
from evergrad.datasets.torchvision_names import find_module


@pytest.mark.parametrize("name", torchvision_names.MODULES)
def test_modules_are_found(name: str) -> None:
    assert inspect.ismodule(find_module(name))


def test_names_programs_use() -> None:
    torchvision = find_module("torchvision")
    assert torchvision.datasets.MNIST is datasets.MNIST
    assert torchvision.transforms.v2.ToDtype is transforms.v2.ToDtype
    assert torchvision.utils.save_image is datasets.save_image
    assert find_module("torchvision.transforms.functional").hflip is transforms.functional.hflip
    assert torchvision.__version__.startswith("0.28")


@pytest.mark.parametrize("name", ["torchvision.models", "torchvision.models.resnet"])
def test_absent_modules_say_so(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"evergrad has no {name}: define the network"):
        find_module(name)


def test_absent_attributes_say_so() -> None:
    torchvision = find_module("torchvision")
    with pytest.raises(AttributeError, match=r"no torchvision\.models: define"):
        _ = torchvision.models
    with pytest.raises(AttributeError, match=r"no torchvision\.nothing$"):
        _ = torchvision.nothing
    with pytest.raises(ModuleNotFoundError, match=r"no torchvision\.nothing$"):
        find_module("torchvision.nothing")


@pytest.mark.parametrize("module", [datasets, transforms, transforms.functional, transforms.v2])
def test_all_is_there_in_order(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert len(set(names)) == len(names)
    assert all(hasattr(module, name) for name in names)


def test_importing_evergrad_loads_neither() -> None:
    code = (
        "import sys, evergrad\n"
        "loaded = [m for m in sys.modules if m.startswith(('evergrad.datasets', "
        "'evergrad.transforms', 'PIL'))]\n"
        "assert not loaded, loaded\n"
        "evergrad.transforms.ToTensor, evergrad.datasets.MNIST\n"
        "assert 'PIL' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
