"""Eager mode in a process that cannot import llvmlite; run by ``test_without_llvm.py``."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable
from typing import Any

import evergrad as eg
from evergrad import config, nn
from evergrad.nn import functional as F
from evergrad.testing.checks import CHECKS
from evergrad.testing.samples.table import all_samples


class Blocked(importlib.abc.MetaPathFinder):
    """Fails every import of llvmlite, as if it were not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "llvmlite":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
config.EAGER_KERNEL_ELEMENTS = 1  # every op that has a kernel wants to use it


def check_rows() -> int:
    """Values and gradients of all samples."""
    count = 0
    for samples in all_samples().values():
        for sample in samples:
            for name in ("value", "gradient"):
                if CHECKS[name].applies(sample):
                    CHECKS[name].run(sample)
                    count += 1
    return count


def layers() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    x, sequence, image = eg.randn(4, 6), eg.randn(5, 4, 6), eg.randn(2, 4, 9, 9)
    tokens = eg.randint(0, 7, (3, 5))
    return {
        "linear": (nn.Linear(6, 3), (x,)), "layer_norm": (nn.LayerNorm(6), (x,)),
        "rms_norm": (nn.RMSNorm(6), (x,)), "batch_norm": (nn.BatchNorm2d(4), (image,)),
        "group_norm": (nn.GroupNorm(2, 4), (image,)), "conv": (nn.Conv2d(4, 3, 3), (image,)),
        "transposed": (nn.ConvTranspose2d(4, 3, 3), (image,)), "lstm": (nn.LSTM(6, 5), (sequence,)),
        "gru": (nn.GRU(6, 5), (sequence,)), "rnn": (nn.RNN(6, 5), (sequence,)),
        "attention": (nn.MultiheadAttention(6, 2), (sequence,) * 3),
        "encoder": (nn.TransformerEncoderLayer(6, 2, 8), (sequence,)),
        "embedding": (nn.Embedding(7, 4), (tokens,)), "max_pool": (nn.MaxPool2d(2), (image,)),
        "avg_pool": (nn.AvgPool2d(2), (image,)), "gelu": (nn.GELU(), (x,)),
        "dropout": (nn.Dropout(), (x,)), "softmax": (nn.Softmax(-1), (x,)),
    }  # fmt: skip


def check_layers() -> int:
    """A step of each layer with an optimizer."""
    made = layers()
    for layer, arguments in made.values():
        given = [a.clone().requires_grad_(a.is_floating_point()) for a in arguments]
        found = layer(*given)
        found = found[0] if isinstance(found, tuple) else found
        found.square().mean().backward()
        parameters = list(layer.parameters())
        for kind in (eg.optim.AdamW, eg.optim.SGD, eg.optim.RMSprop) if parameters else ():
            kind(parameters, lr=1e-3).step()
    return len(made)


def check_losses() -> int:
    scores, labels = eg.randn(6, 4, requires_grad=True), eg.tensor([0, 1, 2, 3, 1, 0])
    found = [
        F.cross_entropy(scores, labels), F.nll_loss(scores.log_softmax(1), labels),
        F.mse_loss(scores, scores.detach() + 1), F.huber_loss(scores, scores.detach() + 1),
        F.binary_cross_entropy_with_logits(scores, eg.ones(6, 4)),
        F.kl_div(scores.log_softmax(1), eg.full((6, 4), 0.25), reduction="batchmean"),
    ]  # fmt: skip
    eg.stack(found).sum().backward()
    return len(found)


def check_refusals() -> int:
    """``compile`` says what is missing, in each spelling."""
    spellings: list[Callable[[], Any]] = [
        lambda: eg.compile(lambda x: x.exp())(eg.ones(3)), lambda: eg.compile(nn.Linear(3, 2)),
        lambda: eg.compile(mode="default")(lambda x: x),
        lambda: eg.compile(nn.Linear(3, 2), fullgraph=True)(eg.ones(3)),
    ]  # fmt: skip
    for spelling in spellings:
        try:
            spelling()
        except ImportError as error:
            assert "llvmlite" in str(error) and "pip install llvmlite" in str(error)
        else:
            raise AssertionError("compiled without a compiler")
    return len(spellings)


if __name__ == "__main__":
    eg.manual_seed(0)
    print(check_layers(), check_losses(), check_refusals(), check_rows())
    assert not [name for name in sys.modules if name.startswith("llvmlite")]
