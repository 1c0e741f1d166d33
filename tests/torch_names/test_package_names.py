"""Names that packages import from PyTorch's depths, under ``as_torch``: there, or refusing."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad import nn
from twins import agree

IMPORTS = """
import torch
from torch._functorch.vmap import _add_batch_dim, _maybe_remove_batch_dim
from torch._guards import GuardSource
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.utils import CheckpointException
from torch.distributed._tensor import DeviceMesh, DTensor, Shard, distribute_tensor, zeros
from torch.utils._foreach_utils import _foreach_supported_types
from torch.utils.checkpoint import get_device_states, set_device_states
from torch.utils.flop_counter import FlopCounterMode
from torch.cuda.random import manual_seed
from torch.cuda.streams import Event, Stream
from torch._vmap_internals import _vmap
from torch.jit._script import script
from torch.jit._state import _enabled
from torch.nn.modules.linear import LazyLinear
from torch.optim._muon import Muon
from torch.signal.windows.windows import hann
from torch.nn.quantized import BatchNorm2d, FloatFunctional  # through an import of all names
from torchvision.datasets import STL10, SVHN
from torchvision.datasets.utils import download_and_extract_archive
from torchvision.transforms import RandAugment
from torchvision.models import VGG16_Weights
from torchvision.models.resnet import ResNet50_Weights
import torch.utils.data._utils.pin_memory
import torchvision

assert VGG16_Weights.DEFAULT.name == "DEFAULT" and ResNet50_Weights.IMAGENET1K_V2.value
assert len(torch._sample_dirichlet(torch.ones(3))) == len(torch._standard_gamma(torch.ones(3))) == 3
with torch._dynamo.utils.disable_cache_limit():
    pass

# What a package re-exports is the same thing in the module that defines it.
assert LazyLinear is torch.nn.LazyLinear and Muon is torch.optim.Muon and script(3) == 3
assert torch.equal(_vmap(torch.sin)(torch.ones(2)), torch.ones(2).sin())
assert Stream is torch.cuda.Stream and Event is torch.cuda.Event and manual_seed(1) is None
assert torch.equal(hann(4), torch.signal.windows.hann(4))
assert hasattr(torch.cuda.random, "seed_all") and torch.cuda.random.seed_all() is None
assert not _enabled and not hasattr(torchvision.datasets, "STL10")
assert not hasattr(torch.mps, "Event") and getattr(torch.mps, "Event", None) is None
assert isinstance(torch.mps.Event, type)  # read by its path
assert not hasattr(torch.mps, "Event")
assert GuardSource.LOCAL.name == "LOCAL"
try:
    raise ValueError("mine")
except (CheckpointException, ValueError):
    pass
for use in (
    FlopCounterMode, lambda: _add_batch_dim(torch.ones(1), 0, 1), STL10, RandAugment, SVHN,
    BatchNorm2d, FloatFunctional, lambda: download_and_extract_archive("url", "folder"),
):
    try:
        use()
    except NotImplementedError as error:
        assert "nothing behind it" in str(error)
    else:
        raise AssertionError("a stand-in was used without an error")
try:
    from torch.utils.checkpoint import no_such_name_anywhere
except ImportError as error:
    assert "no_such_name_anywhere" in str(error)
else:
    raise AssertionError("a name that PyTorch does not have was found")
try:
    torch.no_such_name_anywhere
except AttributeError:
    pass
else:
    raise AssertionError("a name that PyTorch does not have was found")
assert get_device_states(torch.ones(1)) == ([], [])
assert not torch.cuda._initialized and torch.qint8 != torch.int8


@torch.cuda.nvtx.range("part")
def part():
    return 3


assert part() == 3
lazy = torch.nn.LazyLinear(3)
assert isinstance(lazy.weight, torch.nn.parameter.UninitializedTensorMixin)

from torch.utils.weak import WeakIdKeyDictionary
key, table = torch.ones(2), WeakIdKeyDictionary()
table[key] = 1
assert table[key] == 1 and torch.ones(2) not in table and len(table) == 1
del key
assert len(table) == 0

from torch.utils._contextlib import _DecoratorContextManager


class Within(_DecoratorContextManager):
    depth = 0

    def __enter__(self):
        Within.depth += 1

    def __exit__(self, *error):
        Within.depth -= 1


assert Within()(lambda: Within.depth)() == 1 and Within.depth == 0
"""

# A stand-in for the package: what it exports that registering needs.
OPTREE = """
NODES = {}


class registry:
    pass


setattr(registry, "__GLOBAL_NAMESPACE", "everywhere")


def register_pytree_node(cls, flatten, unflatten, namespace):
    NODES[cls] = flatten, unflatten, namespace
"""

TREES = """
import torch, optree
layer = torch.nn.Linear(2, 1)
flatten, unflatten, namespace = optree.NODES[type(layer._parameters)]
children, keys, entries = flatten(layer._parameters)
assert namespace == "everywhere" and keys == ("bias", "weight") and children[0] is layer.bias
assert unflatten(keys, children) == dict(layer._parameters)
"""


def run(program: str, folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "evergrad.as_torch", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr


def test_any_name_of_pytorch_can_be_imported(tmp_path: Path) -> None:
    run(IMPORTS, tmp_path)


def test_tables_of_modules_are_containers_of_optree(tmp_path: Path) -> None:
    (tmp_path / "optree.py").write_text(OPTREE)
    run(TREES, tmp_path)


def test_hooks_on_what_modules_register(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        seen: list[Any] = []
        hooks = ns.nn.modules.module
        handles = [
            hooks.register_module_parameter_registration_hook(
                lambda module, name, value: seen.append(("parameter", name))
            ),
            hooks.register_module_buffer_registration_hook(
                lambda module, name, value: seen.append(("buffer", name))
            ),
            hooks.register_module_module_registration_hook(
                lambda module, name, value: seen.append(("module", name))
            ),
        ]
        block = ns.nn.Sequential(ns.nn.BatchNorm1d(2))
        block.extra = ns.nn.ReLU()
        block.register_buffer("count", ns.zeros(1))
        block.count = ns.ones(1)
        for handle in handles:
            handle.remove()
        block.late = ns.nn.ReLU()
        return seen

    agree(program, torch)


def test_a_registration_hook_gives_another_parameter() -> None:
    from evergrad.nn.modules.module import register_module_parameter_registration_hook as register

    class Shared(nn.Parameter):
        pass

    with register(lambda module, name, value: Shared(value.detach())):
        assert isinstance(nn.Linear(2, 2).weight, Shared)
    assert type(nn.Linear(2, 2).weight) is nn.Parameter


def test_subclasses_made_from_data() -> None:
    class Marked(evergrad.Tensor):
        def __new__(cls, data: Any) -> Any:
            return evergrad.Tensor._make_subclass(cls, data, True)

        def __init__(self, data: Any) -> None:
            pass

    base = evergrad.ones(2)
    made = Marked(base)
    assert type(made) is Marked and made.is_leaf and made.requires_grad
    made.detach()[0] = 3
    assert base.tolist() == [3, 1]
    (made * 2).sum().backward()
    assert made.grad is not None and made.grad.tolist() == [2, 2]


def test_optimizers_that_wrap_others_ask_for_their_hooks() -> None:
    class Wrapper(evergrad.optim.Optimizer):
        def __init__(self, inner: Any) -> None:
            self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state
            self._patch_step_function()

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

    layer, seen = nn.Linear(1, 1), []
    wrapper = Wrapper(evergrad.optim.SGD(layer.parameters(), 0.1))
    wrapper.register_step_post_hook(lambda *given: seen.append(1))
    layer(evergrad.ones(1)).sum().backward()
    wrapper.step()
    assert seen == [1]


def test_the_line_search_under_its_private_name(torch: ModuleType) -> None:
    from evergrad.as_torch import rare_functions

    def search(ns: Any, strong_wolfe: Any) -> list[float]:
        x, d = ns.tensor([1.3, 0.7]), ns.tensor([-1.0, 0.8])

        def evaluate(x: Any, t: float, d: Any) -> tuple[float, Any]:
            point = (x + t * d).requires_grad_()
            value = (point**4).sum() + point.prod()
            (gradient,) = ns.autograd.grad(value, point)
            return value.item(), gradient

        found = []
        for step in (0.1, 1.0, 5.0):
            f, g = evaluate(x, 0.0, d)
            f, g, t, used = strong_wolfe(evaluate, x, step, d, f, g, g.dot(d))
            found += [f, *g.tolist(), t, used]
        return found

    reference: Any = import_module("torch.optim.lbfgs")
    theirs = search(torch, reference._strong_wolfe)
    ours = search(evergrad, rare_functions.strong_wolfe)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    args = (0.0, 1.0, -2.0, 1.0, 0.5, 1.0)
    lowest = reference._cubic_interpolate(*map(torch.tensor, args))
    assert abs(rare_functions.cubic_interpolate(*args) - lowest.item()) < 1e-6


def test_subclasses_whose_new_takes_further_arguments() -> None:
    class Tagged(evergrad.Tensor):
        tag: str

        def __new__(cls, *data: Any, tag: str = "", requires_grad: bool = False) -> Any:
            made = evergrad.Tensor._make_subclass(cls, evergrad.tensor(data[0]), requires_grad)
            made.tag = tag
            return made

    class TaggedParameter(Tagged, nn.Parameter):
        pass

    for kind in (Tagged, TaggedParameter):
        made = kind([1.0, 2.0], tag="metres", requires_grad=True)
        assert type(made) is kind and made.tag == "metres" and made.requires_grad
    assert isinstance(made, nn.Parameter)
    with pytest.raises(TypeError, match="tag"):
        evergrad.Tensor([1.0], tag="metres")
