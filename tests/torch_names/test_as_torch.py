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
    assert "evergrad" in sys.modules and torch.Tensor.__module__.startswith("evergrad")
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
