"""Every name that public programs use is there and takes the keywords they give it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import evergrad
from torch_names.names import MODULE_OR_OPTIMIZER, NAMES

Entry = tuple[str, tuple[str, ...]]


def entries() -> list[Entry]:
    found = []
    for line in NAMES.splitlines():
        name, _, keywords = line.removesuffix(" (attr)").partition(": ")
        found.append((name.removeprefix("torch."), tuple(keywords.split())))
    return list(dict.fromkeys(found))


def resolve(root: ModuleType, path: str) -> Any:
    """What a path means; modules on the way are imported as a program would import them."""
    value: Any = root
    parts = path.split(".")
    for i, part in enumerate(parts):
        if not hasattr(value, part):
            import_module(".".join([root.__name__, *parts[: i + 1]]))
        value = getattr(value, part)
    return value


def test_the_list_is_whole() -> None:
    assert len(entries()) > 460
    assert all(" " not in name for name, _ in entries())


@pytest.mark.parametrize("name", [name for name, _ in entries()])
def test_names_are_there(name: str) -> None:
    resolve(evergrad, name)


@pytest.mark.parametrize("entry", [e for e in entries() if e[1]], ids=lambda e: e[0])
def test_keywords_are_accepted(entry: Entry) -> None:
    name, keywords = entry
    parameters = inspect.signature(resolve(evergrad, name)).parameters
    hidden = [keyword for keyword in keywords if keyword not in parameters]
    assert not hidden or name in CALLS, f"a call has to show that {name} takes {hidden}"


# Calls with keywords that no signature shows.
CALLS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda ns: ns.sum(ns.ones(2, 3), axis=0),
    "mean": lambda ns: ns.mean(ns.ones(2, 3), axis=0),
    "chunk": lambda ns: ns.chunk(ns.ones(2, 3), 2, axis=0),
    "randint": lambda ns: ns.randint(0, 3, size=(2,), dtype=ns.int32),
    "Tensor.to": lambda ns: ns.ones(2).to(device="cpu", dtype=ns.float64, non_blocking=True),
    "Tensor.mean": lambda ns: ns.ones(2, 3).mean(axis=0, keepdim=True),
    "Tensor.sum": lambda ns: ns.ones(2, 3).sum(axis=0, keepdims=True),
    "Tensor.std": lambda ns: ns.ones(2, 3).std(axis=0, unbiased=False, keepdim=True),
    "Tensor.argmax": lambda ns: ns.ones(2, 3).argmax(axis=0),
    "Tensor.cumsum": lambda ns: ns.ones(2, 3).cumsum(axis=0),
    "nn.LSTM": lambda ns: (
        ns.nn.LSTM(input_size=2, hidden_size=2, num_layers=2, batch_first=True, bidirectional=True)(
            ns.ones(1, 2, 2)
        )[0].shape
    ),
    "nn.GRU": lambda ns: (
        ns.nn.GRU(2, 3, 2, bidirectional=True, dropout=0.1)(ns.ones(1, 2))[0].shape
    ),
    "nn.RNN": lambda ns: ns.nn.RNN(2, 3, 2, dropout=0.1, nonlinearity="relu").nonlinearity,
    "nn.init.kaiming_normal": lambda ns: ns.nn.init.kaiming_normal_(ns.ones(2, 2), mode="fan_out"),
    "nn.init.normal": lambda ns: ns.nn.init.normal_(ns.ones(2, 2), std=0.1),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_give_what_torch_gives(name: str, torch: ModuleType) -> None:
    from oracle import assert_same

    assert_same(torch, CALLS[name])


def test_methods_of_modules_and_optimizers_are_there() -> None:
    module = evergrad.nn.Linear(1, 1)
    optimizer = evergrad.optim.SGD(module.parameters(), lr=0.1)
    for name in MODULE_OR_OPTIMIZER.split():
        assert hasattr(module, name) or hasattr(optimizer, name), name


def test_former_initializers_warn(torch: ModuleType) -> None:
    for ns in (evergrad, torch):
        with pytest.warns(FutureWarning, match="deprecated"):
            ns.nn.init.constant(ns.ones(2), 3.0)
        with pytest.warns(FutureWarning, match="deprecated"):
            ns.nn.init.kaiming_normal(ns.ones(2, 2), mode="fan_out")


PATHS = """\
torch.nn.modules.activation.MultiheadAttention
torch.nn.modules.batchnorm._BatchNorm
torch.nn.modules.container.Sequential
torch.nn.modules.conv.Conv2d
torch.nn.modules.linear.Linear
torch.nn.modules.loss._Loss
torch.nn.modules.loss.CrossEntropyLoss
torch.nn.modules.module.Module
torch.nn.modules.normalization.LayerNorm
torch.nn.modules.pooling.MaxPool2d
torch.nn.modules.rnn.LSTM
torch.nn.modules.sparse.Embedding
torch.nn.modules.upsampling.Upsample
torch.nn.modules.utils._pair
torch.nn.parallel.distributed.DistributedDataParallel
torch.nn.parameter.Parameter
torch.nn.utils.clip_grad.clip_grad_norm_
torch.nn.utils.convert_parameters.parameters_to_vector
torch.nn.utils.rnn.pad_sequence
torch.nn.utils.skip_init
torch.nn.utils.stateless.functional_call
torch.optim.adam.Adam
torch.optim.adamw.AdamW
torch.optim.optimizer.Optimizer
torch.optim.sgd.SGD
torch.autograd.function.Function
torch.autograd.grad_mode.no_grad
torch.autograd.profiler.record_function
torch.autograd.variable.Variable
torch.backends.cudnn.flags
torch.cpu.amp.autocast
torch.cuda.amp.custom_fwd
torch.utils.checkpoint.checkpoint
torch.utils.data.dataloader.DataLoader
"""


@pytest.mark.parametrize("path", PATHS.split())
def test_module_paths_can_be_imported(path: str, torch: ModuleType) -> None:
    """``from torch.nn.modules.conv import Conv2d`` and the like, as programs write them."""
    module, _, name = path.removeprefix("torch.").rpartition(".")
    theirs = getattr(import_module(f"torch.{module}"), name)
    ours = getattr(import_module(f"evergrad.{module}"), name)
    assert callable(ours) == callable(theirs)
    assert path.endswith("Variable") or ours.__name__ == theirs.__name__
