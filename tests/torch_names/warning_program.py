"""Calls at which PyTorch warns, or does not; prints the beginnings of the warnings as JSON."""

import json
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

warned: dict[str, list[tuple[str, str]]] = {}


def note(name: str, call: Callable[[], object]) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    warned[name] = [(w.category.__name__, str(w.message)[:70]) for w in found]


def step_scheduler() -> None:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    scheduler.step(3)


def encoder(**options: object) -> Callable[[], object]:
    heads = options.pop("heads", 2)
    return lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8 * 3, heads, **options), 1)


torch.set_warn_always(True)
x = torch.arange(6.0).reshape(2, 3)
square = torch.eye(2)
leaf = torch.ones(2, requires_grad=True)
attend = nn.MultiheadAttention(8, 2)
steps = torch.ones(2, 1, 8)
note("meshgrid", lambda: torch.meshgrid(x[0], x[1]))
note("meshgrid ij", lambda: torch.meshgrid(x[0], x[1], indexing="ij"))
note("x.T of three dimensions", lambda: x[None].T)
note("x.T", lambda: x.T)
note("tensor of tensor", lambda: torch.tensor(x))
note("gumbel_softmax", lambda: F.gumbel_softmax(x, eps=1e-3))
note("qr", lambda: torch.qr(x))
note("lu", lambda: torch.lu(square))
note("cholesky", lambda: torch.cholesky(square))
note("triangular_solve", lambda: torch.triangular_solve(torch.ones(2, 1), square))
note("linalg.qr", lambda: torch.linalg.qr(x))
note("checkpoint", lambda: torch.utils.checkpoint.checkpoint(torch.sin, leaf))
note(
    "checkpoint without inputs that differentiate",
    lambda: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True),
)
note(
    "checkpoint, as advised",
    lambda: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False),
)
note("var of one", lambda: torch.var(x[:1], 0))
note("std of one", lambda: torch.std(x[:1, :1]))
note("std of one, uncorrected", lambda: torch.std(x[:1, :1], correction=0))
note("where of bytes", lambda: torch.where((x > 1).byte(), x, x))
note("anomalies", lambda: torch.autograd.detect_anomaly())
note("backward with a graph", lambda: leaf.square().sum().backward(create_graph=True))
note("nested tensor", lambda: torch.nested.nested_tensor([x]))
note("jagged tensor", lambda: torch.nested.nested_tensor([x], layout=torch.jagged))
note("storage", lambda: x.storage())
note("stft", lambda: torch.stft(torch.ones(99), 8, window=torch.ones(8), return_complex=False))
note("epoch", step_scheduler)
note("a parameter twice", lambda: torch.optim.SGD([leaf, leaf], lr=0.1))
note("encoder", encoder())
note("encoder, batch first", encoder(batch_first=True))
note("encoder, norm first", encoder(batch_first=True, norm_first=True))
note("encoder, tanh", encoder(batch_first=True, activation=torch.tanh))
note("encoder, odd heads", encoder(batch_first=True, heads=3))
note("encoder, no bias", encoder(batch_first=True, bias=False))
note(
    "masks of two types",
    lambda: attend(
        steps, steps, steps, key_padding_mask=torch.zeros(1, 2).bool(), attn_mask=torch.zeros(2, 2)
    ),
)
torch.set_warn_always(False)
print(json.dumps(warned))
