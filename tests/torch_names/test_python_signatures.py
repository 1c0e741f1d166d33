"""Classes, methods and functions that PyTorch writes in Python take its arguments and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

Parameter = inspect.Parameter
OPEN = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
NAMESPACES = [
    "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.prune",
    "nn.utils.parametrize", "nn.utils.parametrizations", "nn.utils.stateless",
    "nn.utils.clip_grad", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data",
    "utils.data.distributed", "utils.checkpoint", "utils.dlpack", "utils._pytree", "func",
    "autograd", "autograd.functional", "autograd.graph", "autograd.forward_ad", "distributions",
    "distributions.constraints", "distributions.transforms", "distributions.kl", "amp",
    "signal.windows", "masked", "nested", "multiprocessing", "quasirandom",
]  # fmt: skip
_DISPATCH = "PyTorch's dispatches on return_indices; ours states what it takes"
_FURTHER = "takes what the method of its kind takes, as *args"
_OPEN = "PyTorch's takes anything and reads it later"
_PRIVATE = "a private argument"
_NOTHING = "PyTorch's shows those of Module, which refuses them; ours takes none"
DIFFERENT = {
    **dict.fromkeys(
        (f"nn.{name}" for name in (
            "LogSigmoid", "Sigmoid", "Softmax2d", "Softsign", "Tanh", "Tanhshrink",
        )),
        _NOTHING,
    ),
    **{f"nn.functional.{kind}_pool{rank}d": _DISPATCH for kind in ("adaptive_max", "max")
       for rank in (1, 2, 3)},
    **{f"nn.functional.fractional_max_pool{rank}d": _DISPATCH for rank in (2, 3)},
    **{f"nn.utils.prune.{name}.apply": _FURTHER for name in (
        "CustomFromMask", "L1Unstructured", "LnStructured", "RandomStructured",
        "RandomUnstructured")},
    "nn.utils.rnn.PackedSequence.cpu": "there is no other device",
    "nn.GRU": _OPEN,
    "nn.LSTM": _OPEN,
    "nn.RNN": _OPEN,
    "nn.NLLLoss2d": _OPEN,
    "autograd.graph.RemovableHandle": "made by the methods that register hooks",
    "multiprocessing.ProcessContext": "made by start_processes",
    "multiprocessing.SpawnContext": "made by start_processes",
    "multiprocessing.ProcessRaisedException": "raised by join",
    "autograd.Function": "an instance has no use",
    "autograd.enable_grad": _PRIVATE,
    "func.jacrev": _PRIVATE,
    "autograd.graph.Node.register_hook": "an interface; the argument is called hook",
    "autograd.graph.Node.register_prehook": "an interface; the argument is called hook",
    "distributions.Wishart.rsample": _PRIVATE,
    "distributions.CorrCholeskyTransform.log_abs_det_jacobian": _PRIVATE,
    "distributions.transforms.CorrCholeskyTransform.log_abs_det_jacobian": _PRIVATE,
    "distributions.constraints.multinomial.check": "called value, as in every other constraint",
    "utils._pytree.TreeSpec": "made by tree_flatten",
    "utils._pytree.register_pytree_node": "how PyTorch writes structures to files",
}  # fmt: skip


def parameters(value: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None


def complaints(ours: Any, theirs: Any) -> Iterator[str]:
    here, there = parameters(ours), parameters(theirs)
    if here is None or there is None:
        return
    by_name = {p.name: p for p in here}
    for wanted in there:
        if wanted.kind in OPEN:
            if not any(p.kind is wanted.kind for p in here):
                yield f"no {wanted}"
        elif wanted.name not in by_name:
            yield f"no {wanted.name}="
        else:
            own = by_name[wanted.name].default
            if wanted.default is not Parameter.empty and not same(own, wanted.default):
                yield f"{wanted.name}={own!r} instead of {wanted.default!r}"
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    order = [p.name for p in there if p.kind in by_place]
    if [p.name for p in here if p.kind in by_place][: len(order)] != order:
        yield f"not in the order {order}"


def same(ours: Any, theirs: Any) -> bool:
    """Defaults that are objects of a library are compared by what they are called."""
    if isinstance(theirs, (bool, int, float, str, tuple, type(None))):
        return bool(ours == theirs)
    return ours is not Parameter.empty


def members(ours: Any, theirs: Any, label: str) -> Iterator[tuple[str, Any, Any]]:
    yield label, ours, theirs
    if inspect.isclass(ours) and inspect.isclass(theirs):
        for name, value in vars(theirs).items():
            own = getattr(ours, name, None)
            if not name.startswith("_") and inspect.isfunction(value) and callable(own):
                yield f"{label}.{name}", own, value


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_arguments_and_defaults(namespace: str, torch: ModuleType) -> None:
    del torch
    ours, theirs = (import_module(f"{lib}.{namespace}") for lib in ("evergrad", "torch"))
    found = []
    for name in getattr(ours, "__all__", dir(ours)):
        value, other = getattr(ours, name), getattr(theirs, name, None)
        is_own = str(getattr(value, "__module__", "")).startswith("evergrad")
        if is_own and callable(value) and callable(other):
            for label, mine, its in members(value, other, f"{namespace}.{name}"):
                what = list(complaints(mine, its))
                if what and label not in DIFFERENT:
                    found.append(f"{label}: {'; '.join(what)}")
    assert not found, "\n".join(found)
