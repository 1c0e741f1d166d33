"""Signatures that inspect, help and editors show, beside PyTorch's where that has one."""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from evergrad import nn
from evergrad.core.tensor import Tensor

NAMESPACES = [
    "", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "optim",
    "optim.lr_scheduler", "utils.data", "func", "autograd", "linalg", "fft",
    "special", "random", "distributions", "amp", "sparse", "nested",
]  # fmt: skip
OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# What PyTorch has and these do not, or in another order: constructors of compiled graphs, private
# arguments, arguments without a meaning here, and forms that share one signature.
DIFFERENT = {
    "SymBool", "SymFloat", "SymInt", "TypedStorage", "clip_grad_norm", "compile", "enable_grad",
    "fork_rng", "from_dlpack", "jacrev", "norm", "stft", "UninitializedBuffer",
}  # fmt: skip


def parameters(value: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("path", NAMESPACES)
def test_names_and_order_are_those_of_torch(path: str, torch: ModuleType) -> None:
    del torch
    ours = importlib.import_module(f"evergrad.{path}".rstrip("."))
    theirs = importlib.import_module(f"torch.{path}".rstrip("."))
    for name in getattr(ours, "__all__", dir(ours)):
        value, other = getattr(ours, name), getattr(theirs, name, None)
        here, there = parameters(value), parameters(other)
        is_different = name in DIFFERENT or name.endswith("Storage")
        if not callable(value) or here is None or there is None or is_different:
            continue
        names = [p.name for p in here]
        expected = [p.name for p in there if p.kind not in OPEN]
        assert [n for n in names if n in expected] == expected, (path, name)
        if not any(p.kind in OPEN for p in there):
            assert not any(p.kind in OPEN for p in here), (path, name)


# Public names whose arguments are open on purpose: each takes any number of things of one kind, or
# forwards what it is given to the user's own function.
OPEN_BY_MEANING = {
    # any number of tensors, shapes or modules
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "broadcast_shapes",
    "cartesian_prod", "einsum", "result_type", "broadcast_arrays", "Sequential", "StackDataset",
    "TensorDataset", "Tensor.resize", "Variable.resize", "FunctionCtx.save_for_backward",
    "FunctionCtx.save_for_forward", "FunctionCtx.mark_dirty", "FunctionCtx.mark_non_differentiable",
    "Task.terms", "Batch.reshape",
    # several forms, which the stubs list one by one
    "Tensor.to", "Variable.to", "Module.to", "PackedSequence.to",
    "lstm", "gru", "rnn_tanh", "rnn_relu",  # padded and packed sequences
    # the arguments of the user's function or module
    "Module.forward", "Function.forward", "DataParallel.forward", "DistributedDataParallel.forward",
    "AveragedModel.forward", "Identity.forward", "RandomApply.forward", "Compiled.loop",
    "Compiled.plan", "Module.compile",
    # documented to accept and ignore anything, or to hand it to a cooperative base class
    "Identity", "Module",
    # names of PyTorch that only answer
    "AliasDb", "PyTorchFileWriter", "PyTorchFileReader", "ScriptModule", "DispatchKey",
}  # fmt: skip


def is_open(value: Any) -> bool:
    """Whether a signature says nothing but ``*args`` or ``**kwargs``, or is unknown."""
    found = parameters(value)
    if found is None:
        return True
    kinds = [p.kind for p in found if p.name not in ("self", "cls")]
    return bool(kinds) and all(kind in OPEN for kind in kinds)


@pytest.mark.parametrize(
    "path",
    [*NAMESPACES, "memory", "models", "train", "io", "ragged", "distributed", "transforms",
     "transforms.v2", "datasets", "tokenizers", "signal", "testing", "compiler", "array_api",
     "utils.checkpoint", "serve", "nn.parallel", "nn.attention", "nn.utils.parametrize", "profiler",
     "masked", "optim.swa_utils"],
)  # fmt: skip
def test_every_public_name_has_a_real_signature(path: str) -> None:
    module = importlib.import_module(f"evergrad.{path}".rstrip("."))
    found = []
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name)
        if name.startswith("_") or not callable(value):
            continue
        if isinstance(value, type) and issubclass(value, BaseException):
            continue
        found += [name] * (is_open(value) and not is_enumeration(value))
        methods = list(vars(value).items()) if isinstance(value, type) else []
        methods = [(k, f) for k, f in methods if callable(f) and not is_enumeration(f)]
        found += [f"{name}.{k}" for k, f in methods if k[0] != "_" and is_open(f)]
    assert not set(found) - OPEN_BY_MEANING


def is_enumeration(value: object) -> bool:
    """Its signature is the interpreter's: from CPython 3.13 on ``(*values)``."""
    return isinstance(value, enum.EnumType)


@pytest.mark.parametrize(
    "name", ["LogSigmoid", "Sigmoid", "Softmax2d", "Softsign", "Tanh", "Tanhshrink"]
)
def test_layers_without_settings_take_none(name: str) -> None:
    layer = getattr(nn, name)
    assert not parameters(layer)
    with pytest.raises(TypeError, match=f"{name}.__init__.. takes 1 positional argument but 2"):
        layer(3)


def test_a_module_refuses_arguments_as_torch_does(torch: ModuleType) -> None:
    class Ours(nn.Module): ...

    class Theirs(torch.nn.Module): ...  # type: ignore[name-defined, misc]

    for args, kwargs in (((1, 2), {}), ((), {"a": 1}), ((1,), {"b": 2})):
        with pytest.raises(TypeError) as expected:
            Theirs(*args, **kwargs)
        with pytest.raises(TypeError) as found:
            Ours(*args, **kwargs)
        assert str(found.value) == str(expected.value).replace("Theirs", "Ours")


def test_a_module_hands_arguments_on_where_its_class_says_so() -> None:
    class Named:
        def __init__(self, name: str, **rest: object) -> None:
            super().__init__(**rest)
            self.name = name

    class Both(nn.Module, Named):
        call_super_init = True

        def __init__(self, name: str) -> None:
            super().__init__(name=name)
            self.linear = nn.Linear(2, 2)

    made = Both("x")
    assert made.name == "x" and len(list(made.parameters())) == 2


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.RNN, "input_size hidden_size num_layers nonlinearity bias batch_first dropout "
                 "bidirectional device dtype proj_size"),
        (nn.LSTM, "input_size hidden_size num_layers bias batch_first dropout bidirectional "
                  "proj_size device dtype"),
        (nn.GRU, "input_size hidden_size num_layers bias batch_first dropout bidirectional device "
                 "dtype proj_size"),
    ],
)  # fmt: skip
def test_recurrent_layers_name_their_arguments(layer: Any, expected: str) -> None:
    assert list(inspect.signature(layer).parameters) == expected.split()


@pytest.mark.parametrize("layer", [nn.RNN, nn.GRU])
def test_only_lstm_projects(layer: Any) -> None:
    with pytest.raises(ValueError, match="proj_size argument is only supported for LSTM"):
        layer(3, 4, proj_size=2)


def test_recurrent_arguments_by_position(torch: ModuleType) -> None:
    for given in ((3, 4, 2, "relu", False, True), (3, 4, 1, "tanh")):
        ours, theirs = nn.RNN(*given), torch.nn.RNN(*given)
        assert ours.mode == theirs.mode and ours.bias == theirs.bias
        assert ours.batch_first == theirs.batch_first


def test_functions_with_out_show_it() -> None:
    assert str(inspect.signature(eg.exp)) == "(input: 'Tensor', *, out: 'Tensor | None' = None)" + (
        " -> 'Tensor'"
    )
    assert "out" in inspect.signature(eg.index_add).parameters
    assert "out" not in inspect.signature(Tensor.exp).parameters


def test_a_derived_signature_is_a_whole_signature() -> None:
    signature = inspect.signature(eg.add)
    bound = signature.bind(1, 2, out=None)
    assert bound.arguments["other"] == 2
    assert signature.replace(return_annotation="int").return_annotation == "int"
    assert signature == inspect.signature(eg.add)


@pytest.mark.parametrize("name", ["mul_", "clamp_", "scatter_add_", "index_copy_", "addmm_"])
def test_in_place_methods_show_the_arguments_of_their_function(name: str) -> None:
    method = inspect.signature(getattr(Tensor, name)).parameters
    function = inspect.signature(getattr(Tensor, name[:-1])).parameters
    assert list(method) == list(function)
    bound = inspect.signature(getattr(eg.ones(2), name)).parameters
    assert list(bound) == list(function)[1:]


@pytest.mark.parametrize(
    ("find", "suggested"),
    [
        (lambda: nn.Conv2D, "Conv2d"),  # type: ignore[attr-defined]
        (lambda: eg.relUU, "relu"),  # type: ignore[attr-defined]
        (lambda: eg.nn.functional.sofmax, "softmax"),  # type: ignore[attr-defined]
        (lambda: eg.optim.Adamw, "AdamW"),  # type: ignore[attr-defined]
        (lambda: eg.linalg.solv, "solve"),  # type: ignore[attr-defined]
        (lambda: eg.fft.rftt, "rfft"),  # type: ignore[attr-defined]
        (lambda: eg.sparse.addm, "addmm"),  # type: ignore[attr-defined]
        (lambda: eg.optim.lr_scheduler.CosineAnealingLR, "CosineAnnealingLR"),  # type: ignore[attr-defined]
        (lambda: eg.distributions.Gausian, None),  # type: ignore[attr-defined]
        (lambda: eg.zzqqxx, None),  # type: ignore[attr-defined]
    ],
)  # fmt: skip
def test_unknown_names_suggest_the_nearest(find: Any, suggested: str | None) -> None:
    with pytest.raises(AttributeError) as caught:
        find()
    ending = "" if suggested is None else f"; did you mean {suggested!r}?"
    assert str(caught.value).endswith(ending) and "has no attribute" in str(caught.value)
    assert suggested or "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("find", "suggested"),
    [
        (lambda: eg.ones(2).sofmax, "softmax"),  # type: ignore[attr-defined]
        (lambda: eg.ones(2).reshap, "reshape"),  # type: ignore[attr-defined]
        (lambda: nn.Parameter(eg.ones(2)).requires_grd, "requires_grad"),  # type: ignore[attr-defined]
    ],
)
def test_unknown_attributes_of_tensors_suggest_the_nearest(
    find: Any, suggested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the interpreter, in what it prints."""
    with pytest.raises(AttributeError, match="has no attribute") as caught:
        find()
    sys.__excepthook__(type(caught.value), caught.value, None)
    assert capsys.readouterr().err.rstrip().endswith(f"Did you mean: {suggested!r}?")


def test_an_attribute_error_inside_a_property_is_not_hidden() -> None:
    class Broken(Tensor):
        @property
        def inside(self) -> int:
            raise AttributeError("from the property")

    with pytest.raises(AttributeError, match="from the property"):
        eg.ones(2).as_subclass(Broken).inside  # noqa: B018
