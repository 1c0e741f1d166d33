"""Signatures of modules, optimizers and functions: PyTorch's names, order, kinds and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad import nn, optim

# PyTorch's take anything and look at it later, or write a default in another way.
OWN_WAY = {
    "Buffer", "GRU", "LSTM", "Parameter", "RNN", "UninitializedBuffer", "UninitializedParameter",
    "Transformer",
    "TransformerDecoderLayer", "TransformerEncoderLayer", "DataParallel", "Lion",
}  # fmt: skip


def signature(function: Callable[..., Any]) -> list[tuple[str, Any, str]]:
    """Names, kinds and defaults of all parameters."""
    return [
        (p.name, p.kind, "" if p.default is p.empty else repr(p.default).partition(" at ")[0])
        for p in inspect.signature(function).parameters.values()
    ]


def compare(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    assert signature(ours) == signature(theirs)


@pytest.mark.parametrize("name", sorted(n for n in nn.__all__ if n[0].isupper()))
def test_layers_are_made_alike(name: str, torch: ModuleType) -> None:
    ours, theirs = getattr(nn, name).__init__, getattr(torch.nn, name).__init__
    if theirs is torch.nn.Module.__init__ and name != "Module":
        # PyTorch's layers without settings show (*args, **kwargs), and refuse both.
        assert list(inspect.signature(ours).parameters) == ["self"]
    elif name not in OWN_WAY:
        compare(ours, theirs)


@pytest.mark.parametrize("name", sorted(n for n in optim.__all__ if n[0].isupper()))
def test_optimizers_are_made_alike(name: str, torch: ModuleType) -> None:
    if name not in OWN_WAY:
        compare(getattr(optim, name).__init__, getattr(torch.optim, name).__init__)


@pytest.mark.parametrize("name", optim.lr_scheduler.__all__)
def test_schedules_are_made_alike(name: str, torch: ModuleType) -> None:
    theirs = getattr(torch.optim.lr_scheduler, name)
    compare(getattr(optim.lr_scheduler, name).__init__, theirs.__init__)


@pytest.mark.parametrize("name", nn.init.__all__)
def test_starting_values_are_asked_for_alike(name: str, torch: ModuleType) -> None:
    compare(getattr(nn.init, name), getattr(torch.nn.init, name))


@pytest.mark.parametrize("name", nn.functional.__all__)
def test_functions_take_the_same_arguments(name: str, torch: ModuleType) -> None:
    theirs = getattr(torch.nn.functional, name)
    try:
        expected = [parameter[:2] for parameter in signature(theirs)]
    except ValueError:
        return  # PyTorch's is built in
    if expected[0][0] == "args":
        return  # PyTorch's chooses between two functions by a flag
    assert [parameter[:2] for parameter in signature(getattr(nn.functional, name))] == expected


def test_nothing_of_torch_nn_is_missing(torch: ModuleType) -> None:
    missing = {n for n in dir(torch.nn) if n[0].isupper()} - set(dir(evergrad.nn))
    assert missing == {"Container", "LinearCrossEntropyOptions"}
