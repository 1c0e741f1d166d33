"""Two hundred training steps in float64 end where PyTorch's end.

Small models of each kind of layer, each with a few optimizers. Every 20 steps the outputs and the
gradients of inputs and parameters are compared, at the end the parameters, buffers and the
optimizer's state: to 1e-9 of their size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad

STEPS = 200
LOOK_EVERY = 20
TOLERANCE = 1e-9

Array = np.ndarray[Any, Any]
Namespace = Any
# Makes the model, and calls it on a float input.
Model = tuple[Callable[[Namespace], Any], Callable[[Any, Any], Any]]


def plain(model: Any, x: Any) -> Any:
    return model(x)


def first_result(model: Any, x: Any) -> Any:
    return model(x)[0]


def self_attention(model: Any, x: Any) -> Any:
    return model(x, x, x)[0]


def with_memory(model: Any, x: Any) -> Any:
    return model(x, x.flip(0))


def as_picture(model: Any, x: Any) -> Any:
    return model(x.reshape(3, 2, 6, 8))


def as_signal(model: Any, x: Any) -> Any:
    return model(x.reshape(3, 4, 24))


def by_number(model: Any, x: Any) -> Any:
    """Embeds fixed numbers; the input weighs what comes out."""
    embedded = model(x.detach().argsort(dim=-1).flatten(1) % 10)
    weights = x.reshape(6, -1)[:, :8]
    return embedded * (weights if embedded.dim() == 2 else weights.unsqueeze(1))


def both_halves(model: Any, x: Any) -> Any:
    return model(x, x.flip(-1))


# The input is always (6, 6, 8).
MODELS: dict[str, Model] = {
    "linear": (lambda ns: ns.nn.Linear(8, 5), plain),
    "perceptron": (
        lambda ns: ns.nn.Sequential(ns.nn.Linear(8, 9), ns.nn.Tanh(), ns.nn.Linear(9, 4)),
        plain,
    ),
    "dropout": (
        lambda ns: ns.nn.Sequential(
            ns.nn.Dropout(0.3), ns.nn.Linear(8, 9), ns.nn.AlphaDropout(0.1)
        ),
        plain,
    ),
    "activations": (
        lambda ns: ns.nn.Sequential(
            ns.nn.Linear(8, 8), ns.nn.PReLU(), ns.nn.Linear(8, 8), ns.nn.GELU(),
            ns.nn.Linear(8, 8), ns.nn.SiLU(), ns.nn.Linear(8, 8), ns.nn.GLU(),
        ),
        plain,
    ),
    "bilinear": (lambda ns: ns.nn.Bilinear(8, 8, 3), both_halves),
    "conv1d": (
        lambda ns: ns.nn.Sequential(
            ns.nn.Conv1d(4, 6, 5, padding=2, padding_mode="replicate"), ns.nn.ELU(),
            ns.nn.Conv1d(6, 4, 3, dilation=2, groups=2),
        ),
        as_signal,
    ),
    "conv2d": (
        lambda ns: ns.nn.Sequential(
            ns.nn.Conv2d(2, 4, 3, padding=1), ns.nn.Softplus(), ns.nn.MaxPool2d(2),
            ns.nn.Conv2d(4, 3, 2),
        ),
        as_picture,
    ),
    "conv_transpose2d": (
        lambda ns: ns.nn.Sequential(
            ns.nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), ns.nn.Mish(),
            ns.nn.AvgPool2d(3, 2, 1),
        ),
        as_picture,
    ),
    "batch_norm": (
        lambda ns: ns.nn.Sequential(
            ns.nn.Conv2d(2, 4, 3, bias=False), ns.nn.BatchNorm2d(4), ns.nn.ReLU(),
            ns.nn.Conv2d(4, 2, 1),
        ),
        as_picture,
    ),
    "layer_norm": (
        lambda ns: ns.nn.Sequential(ns.nn.LayerNorm(8), ns.nn.Linear(8, 8), ns.nn.RMSNorm((6, 8))),
        plain,
    ),
    "group_norm": (
        lambda ns: ns.nn.Sequential(
            ns.nn.Conv2d(2, 4, 3), ns.nn.GroupNorm(2, 4), ns.nn.Hardswish(),
            ns.nn.InstanceNorm2d(4, affine=True),
        ),
        as_picture,
    ),
    "embedding": (lambda ns: ns.nn.Embedding(10, 8, padding_idx=3), by_number),
    "embedding_bag": (lambda ns: ns.nn.EmbeddingBag(10, 8, mode="mean"), by_number),
    "rnn": (lambda ns: ns.nn.RNN(8, 5, num_layers=2, nonlinearity="relu"), first_result),
    "lstm": (lambda ns: ns.nn.LSTM(8, 5, num_layers=2, dropout=0.2, proj_size=3), first_result),
    "gru": (lambda ns: ns.nn.GRU(8, 5, bidirectional=True, batch_first=True), first_result),
    "attention": (
        lambda ns: ns.nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True), self_attention
    ),
    "encoder_layer": (
        lambda ns: ns.nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True),
        plain,
    ),
    "decoder_layer": (lambda ns: ns.nn.TransformerDecoderLayer(8, 2, 16), with_memory),
}  # fmt: skip

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.02}),
    "momentum": ("SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}),
    "nesterov": ("SGD", {"lr": 0.01, "momentum": 0.8, "nesterov": True}),
    "adam": ("Adam", {"lr": 3e-3}),
    "amsgrad": ("Adam", {"lr": 3e-3, "amsgrad": True, "weight_decay": 1e-2}),
    "adamw": ("AdamW", {"lr": 3e-3, "betas": (0.9, 0.95)}),
    "adamax": ("Adamax", {"lr": 3e-3}),
    "nadam": ("NAdam", {"lr": 3e-3}),
    "radam": ("RAdam", {"lr": 3e-3}),
    "rmsprop": ("RMSprop", {"lr": 1e-3, "momentum": 0.5, "centered": True}),
    "adagrad": ("Adagrad", {"lr": 0.02, "lr_decay": 1e-2}),
    "adadelta": ("Adadelta", {"lr": 0.5}),
    "asgd": ("ASGD", {"lr": 0.02, "t0": 50}),
    "adafactor": ("Adafactor", {"lr": 1e-3}),
    "rprop": ("Rprop", {"lr": 1e-3}),
}

COMBINATIONS = [
    *(("perceptron", optimizer) for optimizer in OPTIMIZERS),
    ("linear", "momentum"), ("linear", "adam"), ("linear", "adafactor"),
    ("dropout", "momentum"), ("dropout", "adamw"),
    ("activations", "rmsprop"), ("activations", "adamax"),
    ("bilinear", "adagrad"), ("bilinear", "sgd"),
    ("conv1d", "adam"), ("conv1d", "asgd"),
    ("conv2d", "momentum"), ("conv2d", "rmsprop"), ("conv2d", "adadelta"),
    ("conv_transpose2d", "nesterov"), ("conv_transpose2d", "nadam"),
    ("batch_norm", "momentum"), ("batch_norm", "adam"),
    ("layer_norm", "adamw"), ("layer_norm", "radam"),
    ("group_norm", "amsgrad"), ("group_norm", "sgd"),
    ("embedding", "adagrad"), ("embedding", "adam"), ("embedding_bag", "momentum"),
    ("rnn", "rmsprop"), ("rnn", "sgd"),
    ("lstm", "adam"), ("lstm", "nesterov"),
    ("gru", "adamw"), ("gru", "adagrad"),
    ("attention", "momentum"), ("attention", "adam"),
    ("encoder_layer", "adamw"), ("encoder_layer", "momentum"),
    ("decoder_layer", "adam"),
]  # fmt: skip


def training(ns: Namespace, model_name: str, optimizer_name: str) -> Iterator[dict[str, list[Any]]]:
    """What can be seen every so many steps, then what is left at the end."""
    ns.set_default_dtype(ns.float64)
    ns.manual_seed(0)
    make, call = MODELS[model_name]
    model = make(ns)
    kind, options = OPTIMIZERS[optimizer_name]
    optimizer = getattr(ns.optim, kind)(model.parameters(), **options)
    x = ns.randn(6, 6, 8, requires_grad=True)
    target = ns.randn_like(call(model, x).detach())
    for step in range(STEPS):
        optimizer.zero_grad()
        x.grad = None
        output = call(model, x)
        ns.nn.functional.mse_loss(output, target).backward()
        if step % LOOK_EVERY == 0 or step == STEPS - 1:
            gradients = [p.grad for p in model.parameters()]
            yield {"output": [output], "input": [x.grad], "gradients": gradients}
        optimizer.step()
    state = [part for entry in optimizer.state.values() for part in entry.values()]
    yield {
        "parameters": list(model.parameters()),
        "buffers": list(model.buffers()),
        "state": [part for part in state if hasattr(part, "detach")],
        "numbers": [part for part in state if isinstance(part, int | float)],
        "drawn": [ns.rand(4)],
    }


def as_arrays(seen: dict[str, list[Any]]) -> dict[str, list[Array]]:
    """Copies, since gradients and parameters go on changing."""
    return {
        name: [np.array(v.detach() if hasattr(v, "detach") else v) for v in values]
        for name, values in seen.items()
    }


def assert_close(ours: list[Array], theirs: list[Array], what: str) -> None:
    """To 1e-9 of a tensor's size, or of a millionth of the largest one where it is only rounding.

    (The gradient of a key's bias is nothing but that.)
    """
    assert len(ours) == len(theirs), what
    largest = max((np.abs(b).max() for b in theirs if b.size), default=0.0)
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, what
        size = max(np.abs(b).max(initial=0.0), 1e-6 * largest)
        difference = np.abs(a - b).max(initial=0.0)
        assert difference <= TOLERANCE * size, f"{what}, tensor {number}: {difference / size:.1e}"


@pytest.mark.parametrize(("model", "optimizer"), COMBINATIONS)
def test_two_hundred_steps(model: str, optimizer: str, reference: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = [as_arrays(seen) for seen in training(reference, model, optimizer)]
    ours = [as_arrays(seen) for seen in training(evergrad, model, optimizer)]
    for look, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for name in b:
            assert_close(a[name], b[name], f"{name} at look {look}")
