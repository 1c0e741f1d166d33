"""Programs written for PyTorch, run by ``python -m evergrad.as_torch``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from evergrad.as_torch import TORCH_VERSION, TorchVersion
from evergrad.as_torch.runner import main

PROGRAM = """
import pickle
import sys

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from helper import double
from torch.nn.modules.linear import Linear
from torch.optim.lr_scheduler import StepLR
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return F.relu(self.layer(x))


if __name__ == "__main__":
    cudnn.benchmark = True
    torch._dynamo.config.suppress_errors = True
    torch.manual_seed(0)
    net = Net()
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    schedule = StepLR(optimizer, 1)
    loss = checkpoint(net, torch.ones(3, 4), use_reentrant=False).sum()
    loss.backward()
    optimizer.step()
    schedule.step()
    assert torch.nn is nn is sys.modules["torch.nn"]
    assert isinstance(net.layer, Linear) and cudnn.benchmark
    assert type(pickle.loads(pickle.dumps(net))) is Net
    assert "evergrad" in sys.modules and torch.nn.Linear.__module__.startswith("evergrad")
    print(sys.argv[1:], double(2), torch.__version__, torch.version.__version__)
    sys.exit(7)
"""

HELPER = """
import torch


def double(n):
    return (torch.tensor(n) * 2).item()
"""

MISSING = """
import importlib

import torch


def message(call):
    try:
        call()
    except (AttributeError, ImportError) as error:
        return f"{type(error).__name__}: {error}"


def from_import():
    from torch.nn import Nothing


def plain_import():
    import torch.nowhere.deep


print(hasattr(torch, "nothing"), torch.nn.Linear is importlib.import_module("torch.nn").Linear)
print(message(lambda: torch.nothing))
print(message(lambda: torch.nn.functional.nothing))
print(message(from_import))
print(message(plain_import))
print(message(lambda: importlib.import_module("torchvision.models")))
from torchvision import datasets, transforms
from torchvision.utils import make_grid
print(transforms.Compose.__module__.split(".")[0], callable(make_grid), datasets.MNIST.__name__)
from torch import *
print(tensor([1, 2]).sum().item(), torch.nn.__name__)
"""

FAILING = """
import torch


def inner():
    return torch.ones(2) @ torch.ones(3)


inner()
"""


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "evergrad.as_torch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_a_script_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text(HELPER)
    done = run(str(tmp_path / "script.py"), "--lr", "3")
    assert done.stderr == ""
    assert done.stdout.strip() == "['--lr', '3'] 4 2.13.0+evergrad 2.13.0+evergrad"
    assert done.returncode == 7


def test_a_module_runs_unchanged(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys, torch\nprint(__name__, sys.argv[1:], torch.ones(2).sum().item())\n"
    )
    done = run("-m", "package", "x", folder=tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("__main__ ['x'] 2.0", "")


def test_code_runs_and_missing_names_are_named() -> None:
    done = run("-c", MISSING)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "False True",
        "AttributeError: evergrad has no torch.nothing",
        "AttributeError: evergrad has no torch.nn.functional.nothing",
        "ImportError: evergrad has no torch.nn.Nothing",
        "ModuleNotFoundError: evergrad has no torch.nowhere",
        "None",
        "evergrad True MNIST",
        "3 torch.nn",
    ]


def test_errors_show_the_program_only(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    done = run(str(script))
    assert done.returncode == 1
    files = [line for line in done.stderr.splitlines() if line.strip().startswith("File ")]
    assert len(files) == 2 and all(str(script) in line for line in files)
    assert "inconsistent tensor size" in done.stderr


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing.py"]) == main(["-m"]) == main([]) == 2
    said = capsys.readouterr()
    assert "no such file" in said.err and "argument expected" in said.err and "usage" in said.out
    assert main(["--help"]) == 0


INSTALLED = """
import sys

import evergrad.as_torch

evergrad.as_torch.install()
evergrad.as_torch.install()  # a second time changes nothing
import torch
assert torch.zeros(1).item() == 0
evergrad.as_torch.uninstall()
assert not [name for name in sys.modules if name.split(".")[0] == "torch"]
sys.modules["torch"] = sys
try:
    evergrad.as_torch.install()
except RuntimeError as error:
    print("already imported" in str(error))
"""


def test_it_can_be_installed_in_a_running_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSTALLED], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("True", "")


@pytest.mark.parametrize("other", ["2.5", "1.13.1", (2, 12), "2.13"])
def test_versions_compare_by_numbers(other: object) -> None:
    assert TORCH_VERSION.__ge__(other) and not TORCH_VERSION.__lt__(other)
    assert TORCH_VERSION.split(".")[:2] == ["2", "13"]


def test_later_versions_are_larger() -> None:
    assert TORCH_VERSION < "3.0" and TorchVersion("2.9") < (2, 13) and TORCH_VERSION <= "2.13.0"


def test_element_types_are_in_the_dictionary_of_torch() -> None:
    """``vars(torch)["float32"]``; programs have their own annotations, and print torch's names."""
    program = (
        "import torch\n"
        "class A:\n    x: int = 1\n"
        "assert A.__annotations__ == {'x': int}\n"
        "print(vars(torch)['float32'], vars(torch)['long'], torch.ones(2).shape, torch.strided)\n"
    )
    command = [sys.executable, "-m", "evergrad.as_torch", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert done.stdout.strip() == "torch.float32 torch.int64 torch.Size([2]) torch.strided"


KINDS = """
import copy, pickle
import torch

x, p = torch.ones(2), torch.nn.Parameter(torch.ones(1))
assert str(type(x)) == "<class 'torch.Tensor'>" and type(x).__module__ == "torch"
assert str(type(p)) == "<class 'torch.nn.parameter.Parameter'>"
assert repr(x) == "tensor([1., 1.])" and repr(p).startswith("Parameter containing:\\ntensor(")
for value in (x, p, torch.ones(1, requires_grad=True)):
    for made in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert type(made) is type(value) and torch.equal(made, value)
assert pickle.loads(pickle.dumps(torch.Tensor)) is torch.Tensor


class Own(torch.Tensor):
    pass


own = x.as_subclass(Own)
assert repr(own) == "Own([1., 1.])" and type(own + 1) is Own
step = torch.compile(lambda a, w: {"sum": (a * w).sum(), "kind": type(a), "same": w})
found = step(x, p)
assert found["sum"].item() == 2 and found["kind"] is torch.Tensor and found["same"] is p
"""


def test_tensors_are_named_as_in_pytorch() -> None:
    command = [sys.executable, "-W", "error", "-m", "evergrad.as_torch", "-c", KINDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check = "import evergrad, evergrad.as_torch as a; a.install(); a.uninstall()\n"
    check += "assert evergrad.Tensor.__module__ == 'evergrad.core.tensor'"
    subprocess.run([sys.executable, "-c", check], check=True)


# What programs and packages put into sys.modules: attributes missing, raising, made on demand.
ODD_MODULES = """
import sys
import types

class Plain: pass
class Slots: __slots__ = ()
class Raising:
    def __getattr__(self, name): raise RuntimeError("not bound: " + name)
class RaisingClass:
    @property
    def __class__(self): raise RuntimeError("unbound proxy")
class Anything:
    def __getattr__(self, name): return Anything()
class Lazy(types.ModuleType):
    def __getattr__(self, name): raise ImportError("the import of " + name + " failed")
class Unequal:
    __name__ = property(lambda self: 1 / 0)
    __eq__ = lambda self, other: 1 / 0
    __hash__ = None

nameless = types.ModuleType("nameless")
del nameless.__name__
for place, value in enumerate([
    None, 0, "text", Plain, Plain(), Slots(), Raising(), RaisingClass(), Anything(), Lazy("lazy"),
    Unequal(), nameless, types.SimpleNamespace(), {},
]):
    sys.modules[f"odd{place}"] = value
    sys.modules[f"evergrad.nn.odd{place}"] = value
sys.modules["loky.backend.spawn"] = None
before = dict(sys.modules)

import evergrad.as_torch

evergrad.as_torch.install()
import torch
class Own(torch.Tensor): pass
assert type(torch.nn.Linear(2, 3)(torch.ones(1, 2).as_subclass(Own))) is Own
evergrad.as_torch.uninstall()
assert not [name for name in sys.modules if name.split(".")[0] == "torch"]
assert all(sys.modules[name] is value for name, value in before.items())
"""


def test_objects_of_any_kind_in_sys_modules() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ODD_MODULES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
