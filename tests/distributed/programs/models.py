"""Checks of whole models: steps on several ranks against steps of one process."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import evergrad as eg
import evergrad.distributed as dist
from evergrad import nn, optim
from evergrad.nn import functional as F
from evergrad.nn.parallel import DistributedDataParallel
from evergrad.train.checkpoint import CheckpointStore
from evergrad.train.config import override, preset, to_toml
from evergrad.train.ranks import Ranks
from evergrad.train.state import TrainingState
from evergrad.train.task import task_class

from .collectives import rank, size
from .ddp import batches, close, same_on_all, share
from .ddp import model as mlp


class Alone(Ranks):
    """One rank, inside of a larger job."""

    def __init__(self) -> None:
        self.group, self.rank, self.size, self.is_first = None, 0, 1, True


def losses(name: str, words: list[str], ranks: Ranks, steps: int) -> tuple[list[float], Any]:
    config = override(preset(name, "tiny"), [*words, "--batch", "8"])
    state = TrainingState(config, task_class(config.task)(config), ranks)
    step = state.training_step()
    return [step(number).loss for number in range(steps)], state.model


def compare(name: str, *words: str, steps: int = 3, rtol: float = 2e-5) -> None:
    expected, alone = losses(name, list(words), Alone(), steps)
    found, model = losses(name, list(words), Ranks(), steps)
    np.testing.assert_allclose(found, expected, rtol=rtol, err_msg=name)
    close(model, alone, 1e-3)
    same_on_all(model)


def check_mlp() -> None:
    compare("mlp")


def check_mlp_with_accumulation() -> None:
    compare("mlp", "--accumulate", "2")


def check_gpt() -> None:
    compare("gpt", "--dropout", "0")


def check_gpt_eager() -> None:
    compare("gpt", "--dropout", "0", "--eager", "true")


def base() -> str:
    """A small GPT to fine-tune, in a folder that all ranks read."""
    folder: list[Any] = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(folder)
    if rank() == 0:
        sizes = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16"]
        config = override(preset("gpt", "tiny"), sizes)
        state = TrainingState(config, task_class("gpt")(config), Alone())
        content = {**state.capture(), "config": to_toml(config), "metrics_offset": 0}
        CheckpointStore(Path(folder[0]), keep=1, ranks=Alone()).write(content, best=False)
    dist.barrier()
    return str(folder[0])


def compare_fine_tuning(name: str, *words: str) -> None:
    folder = base()
    compare(name, "--init-from", folder, "--context", "64", *words)
    dist.barrier()
    if rank() == 0:
        shutil.rmtree(folder)


def check_answers_of_different_lengths() -> None:
    """Each token of an answer counts the same, on whichever rank it is."""
    compare_fine_tuning("chat", "--eager", "true")


def check_preferences() -> None:
    """Both answers of a preference are computed on one rank."""
    compare_fine_tuning("dpo", "--eager", "true")


def check_training_is_bitwise_a_sum_in_order() -> None:
    """Two ranks add two numbers: one process that adds the gradients of both halves of the batch
    has the same bits after ten steps."""
    if size() != 2:
        return
    net, alone = DistributedDataParallel(mlp()), mlp()
    optimizers = [optim.AdamW(m.parameters(), lr=0.01) for m in (net, alone)]
    for x, y in batches(10):
        optimizers[0].zero_grad()
        F.mse_loss(net(share(x)), share(y)).backward()
        optimizers[0].step()
        grads = []
        for half in range(2):
            alone.zero_grad()
            F.mse_loss(alone(x[4 * half :][:4]), y[4 * half :][:4]).backward()
            grads.append([p.grad for p in alone.parameters()])
        for p, a, b in zip(alone.parameters(), *grads, strict=True):
            p.grad = (a + b) / 2
        optimizers[1].step()
    close(net.module, alone, 0)


class Residual(nn.Module):
    """Convolutions with batch norms around which the input passes on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: Any) -> Any:
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(inner)))


def check_resnet_with_synchronized_norms() -> None:
    eg.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), Residual(4), Residual(4)]
    alone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone))
    net = DistributedDataParallel(converted)
    x, y = eg.randn(8, 3, 7, 7), eg.randint(0, 5, (8,))
    losses: list[list[float]] = [[], []]
    for number, (model, cut) in enumerate(((alone, lambda t: t), (net, share))):
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(cut(x)), cut(y))
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            if number:
                dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses[number].append(mean.item())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    close(net.module, alone, 1e-3)
    same_on_all(net)


def check_sync_batch_norm_is_batch_norm_of_the_whole_batch() -> None:
    eg.manual_seed(0)
    x = eg.randn(size() * 3, 4, 5)
    alone = nn.BatchNorm1d(4)
    with eg.no_grad():
        alone.weight.copy_(eg.rand(4))
    net = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone))
    whole = x.clone().requires_grad_()
    weights = eg.randn(size() * 3, 4, 5)
    (alone(whole) * weights).sum().backward()
    part = share(x).clone().requires_grad_()
    (net(part) * share(weights)).sum().backward()
    np.testing.assert_allclose(part.grad.numpy(), share(whole.grad).numpy(), atol=2e-5)
    for name in ("running_mean", "running_var"):
        found, expected = getattr(net, name).numpy(), getattr(alone, name).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=name)
    total = net.weight.grad.clone()
    dist.all_reduce(total)
    np.testing.assert_allclose(total.numpy(), alone.weight.grad.numpy(), rtol=1e-4, atol=1e-4)


def check_sync_batch_norm_with_batches_of_different_sizes() -> None:
    eg.manual_seed(0)
    x = eg.randn(3 * size(), 2, 3)
    bounds = [0, *[3 * r + 1 for r in range(1, size())], 3 * size()]
    net, alone = nn.SyncBatchNorm(2), nn.BatchNorm1d(2)
    part = net(x[bounds[rank()] : bounds[rank() + 1]])
    expected = alone(x)[bounds[rank()] : bounds[rank() + 1]]
    np.testing.assert_allclose(part.detach().numpy(), expected.detach().numpy(), atol=1e-5)


def check_dit_with_given_noise() -> None:
    config = override(preset("dit", "tiny"), [])
    task = task_class("dit")(config)
    eg.manual_seed(0)
    alone = task.model()
    for p in alone.parameters():  # gates begin at zero, which would hide most gradients
        nn.init.normal_(p, std=0.05)
    net = DistributedDataParallel(copy.deepcopy(alone))
    pictures, labels = (t[:8] for t in task.batch(0))
    noise, times = eg.randn_like(pictures), eg.rand(8)
    for model, cut in ((alone, lambda t: t), (net, share)):
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(3):
            x, target, t, y = (cut(v) for v in (pictures + noise, noise - pictures, times, labels))
            optimizer.zero_grad()
            F.mse_loss(model(x, t, y), target).backward()
            optimizer.step()
    close(net.module, alone, 1e-3)
    same_on_all(net)
