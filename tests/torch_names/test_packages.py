"""What packages of the PyTorch world touch: subclasses, fx, the meta device, private names."""

from __future__ import annotations

import copy
import subprocess
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad import nn
from evergrad.nn.utils import prune

PROGRAM = """
import importlib.metadata

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn.modules.module import _IncompatibleKeys
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

assert importlib.metadata.version("torch") == torch.__version__
assert torch.torch.Tensor is torch.Tensor and torch.functional.einsum is torch.einsum
assert ShardingStrategy.FULL_SHARD.name == "FULL_SHARD"
assert "Normal" in torch.distributions.__dict__ and "Adam" in torch.optim.__dict__


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, flag=True):
        return torch.relu(self.layer(x)) * self.scale + x.sum(dim=1, keepdim=True)


net = Net()
assert not isinstance(net, FullyShardedDataParallel)
try:
    dcp.save({})
except NotImplementedError as error:
    assert "torch.distributed.checkpoint.save" in str(error)
else:
    raise AssertionError("a stand-in was called without an error")

traced = torch.fx.symbolic_trace(net)
kinds = [node.op for node in traced.graph.nodes]
assert kinds == [
    "placeholder", "placeholder", "call_module", "call_function", "get_attr", "call_function",
    "call_method", "call_function", "output",
], kinds
x = torch.randn(2, 3)
assert torch.equal(traced(x), net(x))
for node in traced.graph.nodes:
    if node.target is torch.relu:
        node.target = torch.tanh
assert torch.equal(traced(x), torch.tanh(net.layer(x)) * net.scale + x.sum(1, keepdim=True))


class Units(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


calls = []
units = torch.ones(3).as_subclass(Units)
results = (units + 1, torch.sin(units), units[0], units.T, 2 * units, torch.cat([units, units]))
assert all(type(result) is Units for result in results), [type(r) for r in results]
assert calls == ["add", "sin", "__getitem__", "__get__", "mul", "cat"], calls


class Foreign:
    def __radd__(self, other):
        return "radd"

    __rmul__ = __gt__ = __radd__


calls.clear()
units += 1
units /= 2
units[0] = 3
results = 1 - units, 1 / units, units % 2, units @ units
results = units > 1, units != 1, units == 1, units**2
assert (units + Foreign(), units * Foreign(), units < Foreign()) == ("radd",) * 3
assert calls == [
    "add_", "div_", "__setitem__", "__rsub__", "__rdiv__", "remainder", "matmul", "gt", "ne",
    "__eq__", "pow",
], calls
try:
    units + "text"
except TypeError as error:
    assert "unsupported operand" in str(error)
HANDLED = {torch.Tensor.add: 1, torch.Tensor.mul: 2, torch.Tensor.gt: 3, torch.Tensor.div: 4}


class Table(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return HANDLED.get(func, 0)


table = torch.ones(2).as_subclass(Table)
assert (table + 1, 1 + table, table * 2, 2 * table, table > 1, table / 2, table - 1) == (
    1, 1, 2, 2, 3, 4, 0
)


class Diagonal:
    def __init__(self, values):
        self.values = values

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.matmul:
            return args[0].values[:, None] * args[1]
        return NotImplemented


product = torch.matmul(Diagonal(torch.tensor([1.0, 2.0])), torch.ones(2, 2))
assert product.tolist() == [[1.0, 1.0], [2.0, 2.0]]
assert torch.ops.aten.add.Tensor(torch.ones(2), 1).tolist() == [2.0, 2.0]
"""


def test_names_that_packages_touch() -> None:
    silent = "ignore:The use of `x.T`"  # of a vector, which PyTorch warns of too
    options = ["-W", "error", "-W", silent, "-m", "evergrad.as_torch", "-c", PROGRAM]
    done = subprocess.run([sys.executable, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- devices --------------------------------------------------------------------------------------


def test_devices_are_named_and_accelerators_refused() -> None:
    assert str(evergrad.device("cuda", 1)) == "cuda:1"
    assert evergrad.device("cpu:0") != evergrad.device("cpu")
    assert evergrad.device("cpu") != "auto"
    for call in (lambda: evergrad.ones(2, device="cuda"), lambda: evergrad.ones(2).to("cuda")):
        with pytest.raises(RuntimeError, match="there is no device"):
            call()
    with pytest.raises(RuntimeError, match="nowhere"):
        evergrad.device("nowhere")


def test_meta_tensors_have_no_memory() -> None:
    layer = nn.Linear(1 << 20, 1 << 20, device="meta")  # 4 TB
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.requires_grad
    out = layer(evergrad.empty(3, 1 << 20, device="meta"))
    assert out.shape == (3, 1 << 20) and out.is_meta and (out + 1).sum().device.type == "meta"
    with pytest.raises(NotImplementedError, match="no data"):
        layer.to("cpu")
    with pytest.raises(NotImplementedError, match="no data"):
        out.tolist()
    nn.init.normal_(layer.weight)
    assert copy.deepcopy(layer).weight.device == evergrad.device("meta")


def test_modules_leave_the_meta_device() -> None:
    with evergrad.device("meta"):
        empty = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LSTM(3, 2))
        made = [evergrad.zeros(2), evergrad.randn(2), evergrad.arange(3), evergrad.tensor([1.0])]
    assert all(tensor.is_meta for tensor in (*made, *empty.parameters(), *empty.buffers()))
    full = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LSTM(3, 2))
    assigned = copy.deepcopy(empty)
    assigned.load_state_dict(full.state_dict(), assign=True)
    x = evergrad.ones(4, 2)
    assert evergrad.equal(assigned(x)[0], full(x)[0])
    empty.to_empty(device="cpu")
    empty.load_state_dict(full.state_dict())
    full.load_state_dict(assigned.state_dict())
    assert {p.device.type for p in empty.parameters()} == {"cpu"}
    assert full.to("meta")[0].weight.is_meta


# -- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x: x.flip(dims=(0, 1)),
        lambda t, x: x.permute(dims=(1, 0)),
        lambda t, x: t.permute(x, dims=(1, 0)),
        lambda t, x: x.reshape(shape=(3, 2)),
        lambda t, x: x.view(size=(6,)),
        lambda t, x: x.view(dtype=t.int64),
        lambda t, x: x[:1].expand(size=(4, 3)),
        lambda t, x: x.repeat(repeats=(2, 1)),
        lambda t, x: x.tile(dims=(2,)),
        lambda t, x: t.swapaxes(x, axis0=0, axis1=1),
        lambda t, x: x[:1].expand(2, 3).sum_to_size(size=(1, 3)),
        lambda t, x: x.clone().mul_(np.float64(2)),
        lambda t, x: t._foreach_add([x, x], [x, x])[1],
        lambda t, x: t._foreach_addcmul([x], [x], [x], value=2)[0],
        lambda t, x: t._foreach_norm([x])[0],
    ],
)
def test_keywords_and_lists(torch: ModuleType, call: Any) -> None:
    array = np.arange(6.0).reshape(2, 3)
    ours = call(evergrad, evergrad.tensor(array))
    theirs = call(torch, torch.tensor(array))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_storage_types(torch: ModuleType) -> None:
    for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"):
        ours = evergrad.tensor([1.0, 2.0]).to(getattr(evergrad, name))
        theirs = torch.tensor([1.0, 2.0]).to(getattr(torch, name))
        assert ours.element_size() == theirs.element_size()
        assert ours.float().tolist() == theirs.float().tolist()


@pytest.mark.parametrize(
    "rule",
    [
        lambda p, layer: p.l1_unstructured(layer, "weight", amount=0.4),
        lambda p, layer: p.random_unstructured(layer, "weight", amount=5),
        lambda p, layer: p.ln_structured(layer, "weight", amount=0.5, n=2, dim=0),
        lambda p, layer: p.random_structured(layer, "weight", amount=2, dim=1),
        lambda p, layer: p.ln_structured(
            p.l1_unstructured(layer, "weight", 0.3), "weight", 1, 1, 1
        ),
        lambda p, layer: p.global_unstructured(
            [(layer, "weight"), (layer, "bias")], p.L1Unstructured, amount=0.5
        ),
    ],
)
def test_pruning(torch: ModuleType, rule: Any) -> None:
    theirs = import_module(f"{torch.__name__}.nn.utils.prune")
    results = []
    for library, rules in ((evergrad, prune), (torch, theirs)):
        library.manual_seed(3)
        layer = library.nn.Linear(4, 6)
        rule(rules, layer)
        assert rules.is_pruned(layer)
        out = layer(library.ones(1, 4))
        rules.remove(layer, "weight")
        results.append((layer.weight.detach().numpy(), out.detach().numpy()))
        assert sorted(name for name, _ in layer.named_parameters())[-1] == "weight"
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-6)


def test_optimizers_that_wrap_another() -> None:
    class Wrapper(evergrad.optim.Optimizer):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    weight = nn.Parameter(evergrad.ones(2))
    wrapped = Wrapper(evergrad.optim.SGD([weight], lr=1.0))
    weight.sum().backward()
    wrapped.step()
    assert weight.tolist() == [0.0, 0.0]


LAYERS = """
import torch
from torch import nn


class Kind(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Like:  # no tensor
    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert func in (nn.functional.linear, torch.nn.functional.relu, nn.functional.layer_norm)
        plain = [arg.tensor if isinstance(arg, Like) else arg for arg in args]
        return Like(func(*plain, **(kwargs or {})))


seen = []
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.LayerNorm(3))
x = torch.ones(2, 4)
made = net(x.as_subclass(Kind))
assert type(made) is Kind and seen == ["linear", "relu", "layer_norm"], (type(made), seen)
loss = nn.CrossEntropyLoss()(made, torch.tensor([0, 1]))
assert type(loss) is Kind and seen[3:] == ["cross_entropy"], seen
loss.backward()
assert type(net[0].weight.grad) is torch.Tensor
assert type(nn.Conv2d(1, 1, 3)(torch.ones(1, 1, 4, 4).as_subclass(Kind))) is Kind
like = net(Like(x))
assert type(like) is Like and torch.equal(like.tensor, net(x))
assert type(net(x)) is torch.Tensor
step = torch.compile(net, fullgraph=True)
assert torch.allclose(step(x), net(x))
"""


def test_layers_dispatch_to_classes_that_take_over() -> None:
    command = [sys.executable, "-W", "error", "-m", "evergrad.as_torch", "-c", LAYERS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_subclasses_pass_through_layers_without_as_torch() -> None:
    class Length(evergrad.Tensor):
        pass

    made = nn.Linear(2, 1)(evergrad.ones(3, 2).as_subclass(Length))
    assert type(made) is Length
    assert type(nn.Linear(2, 1)(evergrad.ones(3, 2))) is evergrad.Tensor


MODES = """
import torch
from torch.overrides import TorchFunctionMode


class Log(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(func.__name__)
        out = func(*args, **(kwargs or {}))
        return out * 2 if func in (torch.Tensor.add, torch.add) else out


seen = []
x = torch.ones(3, requires_grad=True)
before = torch.Tensor.add
with Log():
    y = x.add(1)
    assert torch.Tensor.add == before and hash(torch.Tensor.add) == hash(before)
    z = torch.nn.functional.relu(y.sin()[0] * 2)
    with Log():
        w = torch.cat([x, x])
assert seen == ["add", "sin", "__getitem__", "mul", "relu", "cat", "cat"], seen
assert y.tolist() == [4.0, 4.0, 4.0] and torch.Tensor.add is before
z.backward()
x.add(1)
assert len(seen) == 7

a, b = [torch.ones(2)], [torch.tensor([0.0, 3.0])]
torch._foreach_maximum_(a, b)
assert a[0].tolist() == [1.0, 3.0]
torch._foreach_minimum_(a, 2.0)
assert a[0].tolist() == [1.0, 2.0]
"""


def test_function_modes_see_methods() -> None:
    command = [sys.executable, "-W", "error", "-m", "evergrad.as_torch", "-c", MODES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_PICKLED = """
import pickle
import evergrad as eg
import evergrad.nn.modules.transformer

class Units(eg.Tensor):
    pass

eg.nn.Linear(2, 2)(eg.ones(1, 2).as_subclass(Units))
for name in ("gelu", "relu"):
    layer = eg.nn.TransformerEncoderLayer(4, 2, 8, activation=name)
    assert pickle.loads(pickle.dumps(layer)).activation is layer.activation
"""


def test_transformers_are_pickled_after_layers_dispatch() -> None:
    """Their activation is pickled by its name, whatever the name by which they were imported."""
    subprocess.run([sys.executable, "-c", _PICKLED], check=True)
