"""The peers: what each imports, and how it makes a step of a workload.

A step takes no arguments and gives a tuple of tensors. It runs inside the peer's own process, so
only the framework of that peer may be imported there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.peers.tasks import Array, Optimizer, Task
from bench.peers.workloads import build

Step = Callable[[], tuple[Any, ...]]


class NothingToShowError(Exception):
    """A peer that has nothing of its own to show on a workload."""


@dataclass(frozen=True)
class Given:
    """What a peer is told: the workload, and where the arrays of its start are kept."""

    workload: str
    threads: int
    arrays: str


@dataclass(frozen=True)
class Peer:
    """A framework used in one way; ``from_arrays`` says that its parameters come from a file."""

    distribution: str
    modules: tuple[str, ...]
    make_step: Callable[[Given], Step]
    gather: Callable[[tuple[Any, ...]], list[Array]]
    from_arrays: bool = False

    def load(self) -> None:
        """Import what a training program of this framework imports."""
        for module in self.modules:
            importlib.import_module(module)


# -- evergrad and PyTorch ------------------------------------------------------------------------


def step_of(torch: Any, task: Task, function: Callable[..., Any], **options: Any) -> Any:
    """A step as a training program writes it: ``step(*data)``."""
    parameters = list(task.parameters.values())
    if task.optimizer is None:

        def gradients(*data: Any) -> tuple[Any, ...]:
            value = function(*data)
            return value.detach(), *torch.autograd.grad(value, parameters, task.cotangent)

        return gradients

    kind = getattr(torch.optim, task.optimizer.name)
    optimizer = kind(parameters, **task.optimizer.options, **options)

    def train(*data: Any) -> tuple[Any, ...]:
        loss = function(*data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return (loss.detach(),)

    return train


def _evergrad(given: Given) -> tuple[Any, Task]:
    import evergrad

    evergrad.set_num_threads(given.threads)
    return evergrad, build(given.workload, evergrad)


def _evergrad_eager(given: Given) -> Step:
    evergrad, task = _evergrad(given)
    step = step_of(evergrad, task, task.function)
    return lambda: step(*task.data)


def _evergrad_compiled(given: Given) -> Step:
    evergrad, task = _evergrad(given)
    step = evergrad.compile(step_of(evergrad, task, task.function))
    return lambda: step(*task.data)


def _evergrad_looped(given: Given) -> Step:
    """Many steps in each call, all on the same data."""
    evergrad, task = _evergrad(given)
    step = evergrad.compile(step_of(evergrad, task, task.function))
    rows = [tensor.expand(LOOPED_STEPS, *tensor.shape) for tensor in task.data]
    return lambda: step.loop(*rows)


def _torch(given: Given) -> tuple[Any, Task]:
    import torch

    torch.set_num_threads(given.threads)
    return torch, build(given.workload, torch)


def _torch_eager(given: Given) -> Step:
    torch, task = _torch(given)
    step = step_of(torch, task, task.function)
    return lambda: step(*task.data)


def _torch_fused(given: Given) -> Step:
    torch, task = _torch(given)
    if task.optimizer is None:
        raise NothingToShowError("no optimizer to fuse")
    step = step_of(torch, task, task.function, fused=True)
    return lambda: step(*task.data)


def _torch_compile(given: Given) -> Step:
    """The loss compiled, forward and backward, and the fused optimizer: backward itself cannot be
    called inside of ``torch.compile``."""
    torch, task = _torch(given)
    options = {} if task.optimizer is None else {"fused": True}
    step = step_of(torch, task, torch.compile(task.function), **options)
    return lambda: step(*task.data)


def _from_tensors(tensors: tuple[Any, ...]) -> list[Array]:
    return [tensor.detach().numpy() for tensor in tensors]


# -- JAX -----------------------------------------------------------------------------------------


def save_start(workload: str, path: str) -> None:
    """Keep the start of a workload as arrays, for frameworks with another generator."""
    import evergrad

    task = build(workload, evergrad)
    arrays = {f"parameter {name}": p.detach().numpy() for name, p in task.parameters.items()}
    arrays |= {f"data {i}": tensor.numpy() for i, tensor in enumerate(task.data)}
    if task.cotangent is not None:
        arrays["cotangent"] = task.cotangent.numpy()
    if task.optimizer is not None:
        options = sorted(task.optimizer.options.items())
        arrays["optimizer"] = np.array(task.optimizer.name)
        arrays["optimizer names"] = np.array([name for name, _ in options])
        arrays["optimizer values"] = np.array([value for _, value in options], np.float64)
    np.savez(path, **arrays)


def _saved_optimizer(kept: Any) -> Optimizer | None:
    if "optimizer" not in kept:
        return None
    options = zip(kept["optimizer names"].tolist(), kept["optimizer values"].tolist(), strict=True)
    return Optimizer(str(kept["optimizer"]), dict(options))


def _jax(given: Given) -> Step:
    import jax.numpy as jnp
    from bench.peers.jax_workloads import make_step

    with np.load(given.arrays) as kept:
        prefix = "parameter "
        parameters = {
            name.removeprefix(prefix): jnp.asarray(kept[name])
            for name in kept
            if name.startswith(prefix)
        }
        count = sum(name.startswith("data ") for name in kept)
        data = tuple(_without_int64(kept[f"data {i}"]) for i in range(count))
        cotangent = jnp.asarray(kept["cotangent"]) if "cotangent" in kept else None
        return make_step(
            given.workload, parameters, tuple(jnp.asarray(d) for d in data), cotangent,
            _saved_optimizer(kept),
        )  # fmt: skip


def _without_int64(array: Array) -> Array:
    """JAX keeps integers in 32 bits unless told otherwise."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _from_jax(arrays: tuple[Any, ...]) -> list[Array]:
    return [np.asarray(array) for array in arrays]  # waits for what is still being computed


_EVERGRAD = ("evergrad", "evergrad.nn", "evergrad.nn.functional", "evergrad.optim")
_TORCH = ("torch", "torch.nn", "torch.nn.functional", "torch.optim")

PEERS = {
    "evergrad compiled": Peer("evergrad", _EVERGRAD, _evergrad_compiled, _from_tensors),
    "evergrad eager": Peer("evergrad", _EVERGRAD, _evergrad_eager, _from_tensors),
    "torch eager": Peer("torch", _TORCH, _torch_eager, _from_tensors),
    "torch fused": Peer("torch", _TORCH, _torch_fused, _from_tensors),
    "torch.compile": Peer("torch", _TORCH, _torch_compile, _from_tensors),
    "jax jit": Peer("jax", ("jax", "jax.numpy"), _jax, _from_jax, from_arrays=True),
}
# How many steps a call of the one does that loops natively; it is no peer, since others cannot.
LOOPED_STEPS = 4096
LOOPED = Peer("evergrad", _EVERGRAD, _evergrad_looped, _from_tensors)
# The peer whose losses the others must reproduce, and the one whose speed is the question.
REFERENCE = "torch eager"
SUBJECT = "evergrad compiled"
