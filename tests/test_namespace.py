"""What ``import evergrad`` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS
from oracle import assert_same


def test_all_is_exactly_what_is_public() -> None:
    names = {
        name
        for name, value in vars(evergrad).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    late = {"default_generator", *(n for n in evergrad._LAZY_NAMES if not n.startswith("_"))}
    assert sorted(names | late) == sorted(evergrad.__all__)
    for name in evergrad.__all__:
        assert hasattr(evergrad, name)


def test_every_exposed_function_is_public() -> None:
    assert set(FUNCTIONS) <= set(evergrad.__all__)
    for name, function in FUNCTIONS.items():
        assert getattr(evergrad, name) is function


# What is public here and not in PyTorch's namespace.
OWN_NAMES: set[str] = set()


def test_public_names_are_those_of_torch(torch: ModuleType) -> None:
    missing = {name for name in evergrad.__all__ if not hasattr(torch, name)}
    assert missing == OWN_NAMES


def test_public_methods_are_those_of_torch(torch: ModuleType) -> None:
    ours = {name for name in vars(Tensor) if not name.startswith("_")}
    own = {"array", "layout_array", "to_device"}  # the last is the array API standard's
    assert {name for name in ours if not hasattr(torch.Tensor, name)} == own


def test_functions_explain_themselves() -> None:
    for name in evergrad.__all__:
        value = getattr(evergrad, name)
        if callable(value):
            assert value.__doc__, f"evergrad.{name} has no docstring"


def test_constants() -> None:
    assert evergrad.pi == pytest.approx(3.141592653589793)
    assert evergrad.newaxis is None and evergrad.inf == float("inf")
    assert evergrad.nan != evergrad.nan
    assert repr(evergrad.strided) == "evergrad.strided"


def test_packages_are_attributes() -> None:
    assert evergrad.nn.__name__ == "evergrad.nn"
    assert evergrad.autograd.__name__ == "evergrad.autograd"
    with pytest.raises(AttributeError, match="no attribute 'wrong'"):
        evergrad.wrong  # noqa: B018 - the access is what is tested


def test_threads_can_be_set() -> None:
    before = evergrad.get_num_threads()
    assert before >= 1
    evergrad.set_num_threads(2)
    assert evergrad.get_num_threads() == 2
    evergrad.set_num_threads(before)
    with pytest.raises(RuntimeError, match="positive"):
        evergrad.set_num_threads(0)


def test_switches_of_other_machines_are_accepted(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not evergrad.cuda.is_available() and evergrad.cuda.device_count() == 0
    assert not evergrad.backends.mps.is_available()
    monkeypatch.setattr(evergrad.backends.cudnn, "benchmark", True)
    evergrad.cuda.manual_seed_all(1)
    evergrad.use_deterministic_algorithms(True)
    assert evergrad.are_deterministic_algorithms_enabled()
    evergrad.use_deterministic_algorithms(False)
    evergrad.set_float32_matmul_precision("high")
    assert evergrad.get_float32_matmul_precision() == "high"
    evergrad.set_float32_matmul_precision("highest")
    evergrad.set_default_device("cpu")
    assert str(evergrad.get_default_device()) == "cpu"
    for call in (lambda ns: ns.set_num_threads(-1),):
        assert_same(torch, call)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_importing_is_cheap() -> None:
    """Packages that take long are imported by what uses them, not by ``import evergrad``."""
    loaded = run("import sys, evergrad; print(*sys.modules)").split()
    heavy = ("llvmlite", "opt_einsum", "scipy", "torch", "evergrad.nn", "evergrad.optim")
    assert not [name for name in heavy if name in loaded]


def test_everything_can_be_imported_by_star() -> None:
    assert run("from evergrad import *; print(float32, tensor([1, 2]).sum().item())") == (
        "evergrad.float32 3"
    )
