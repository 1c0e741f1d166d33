"""Steps that one process compiles and another takes from the disk: ``python warm_steps.py``, with
``warm`` where nothing may be lowered and no text compiled. Prints what came of each step."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.core.rng.default_generator import using_generator


def normal(*shape: int, seed: int = 0) -> Any:
    return eg.tensor(np.random.default_rng([3, seed]).standard_normal(shape), dtype=eg.float32)


def trained(model: Any, given: Any, clip: float = 0.0, **options: Any) -> Any:
    """A compiled step of AdamW, what it is called with, and what it changes."""
    eg.manual_seed(0)
    with eg.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_(normal(*p.shape, seed=number) * 0.2)
    optimizer = eg.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip, error_if_nonfinite=True)
        optimizer.step()
        return loss.detach()

    return eg.compile(step, **options), given, list(model.parameters())


def mlp(width: int = 24, **options: Any) -> Any:
    layers = [nn.Linear(8, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 3)]
    return trained(nn.Sequential(*layers), normal(16, 8), **options)


def deep(**options: Any) -> Any:
    layers = [part for _ in range(6) for part in (nn.Linear(64, 64), nn.Tanh())]
    return trained(nn.Sequential(*layers), normal(128, 64), **options)


def wide() -> Any:
    """Products that are so large that loops take their rows over."""
    layers = [nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64)]
    return trained(nn.Sequential(*layers), normal(512, 64))


def bfloat16() -> Any:
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 3)).to(eg.bfloat16)
    return trained(model, normal(16, 8).to(eg.bfloat16))


def dropout() -> Any:
    model = nn.Sequential(nn.Linear(8, 24), nn.Dropout(0.3), nn.Linear(24, 3), nn.Dropout(0.1))
    return trained(model, normal(16, 8))


class Attention(nn.Module):
    """Lookups, attention with dropout, a constant of its own, a loss over classes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 32)
        self.project = nn.Linear(32, 96)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens) + eg.arange(32.0).sin()
        q, k, v = self.project(x).reshape(2, 40, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2)
        logits = mixed.transpose(1, 2).reshape(-1, 32) @ self.table.weight.T
        return F.cross_entropy(logits, tokens.reshape(-1))


def attention() -> Any:
    tokens = np.random.default_rng(5).integers(0, 11, (2, 40))
    return trained(Attention(), eg.tensor(tokens))


class Shared(nn.Module):
    """Parameters that are views of one memory, one of them turned."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.Parameter(eg.zeros(2, 8, 8))

    def forward(self, x: Any) -> Any:
        return x @ self.memory[0] @ self.memory[1].T


def differentiated() -> Any:
    """A function whose gradient is asked for from outside."""
    weight = normal(8, 8, seed=1).requires_grad_()
    inner = eg.compile(lambda x: (x @ weight).tanh().sum())

    def step(x: Any) -> Any:
        loss = inner(x)
        loss.backward()
        return loss.detach()

    step.plan = inner.plan  # type: ignore[attr-defined]
    return step, normal(16, 8), [weight]


def by_norm(parameters: list[Any], norm_type: float = 2.0, **options: Any) -> None:
    nn.utils.clip_grad_norm_(parameters, 0.1, norm_type=norm_type, **options)


def by_value(parameters: list[Any], **options: Any) -> None:
    nn.utils.clip_grad_value_(parameters, 0.01, **options)


def by_hand(parameters: list[Any]) -> None:
    total = eg.stack([p.grad.norm() for p in parameters]).norm()
    factor = eg.clamp(0.1 / (total + 1e-6), max=1.0)
    for p in parameters:
        p.grad.mul_(factor)


def by_elements(parameters: list[Any]) -> None:
    for p in parameters:
        p.grad.clamp_(-0.01, 0.01)


def clipped(clip: Callable[[list[Any]], None] = by_norm, in_hook: bool = False) -> Any:
    """Gradients clipped before the update, by the step or by a hook of the optimizer."""
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 3))
    parameters = list(model.parameters())
    optimizer = eg.optim.SGD(parameters, lr=0.01)
    if in_hook:
        optimizer.register_step_pre_hook(lambda *_: clip(parameters))
    eg.manual_seed(0)
    with eg.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_(normal(*p.shape, seed=number) * 0.2)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if not in_hook:
            clip(parameters)
        optimizer.step()
        return loss.detach()

    return eg.compile(step), normal(16, 8), parameters


class NumpyCalls(nn.Module):
    """Ops that NumPy evaluates, with attributes and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(eg.zeros(8, 8))

    def forward(self, x: Any) -> Any:
        found = eg.cumsum(x @ self.weight, 1)
        best, order = found.detach().argmax(1), found.detach().argsort(dim=0, descending=True)
        triangle = eg.tril(found[:8], -1).sum() + found.median(1).values.sum()
        return found * best[:, None] + order.float() + triangle + found.abs().norm(3.0)


STEPS: dict[str, tuple[str, Callable[[], Any]]] = {
    "mlp": ("mt19937", mlp),
    "check_finite": ("mt19937", lambda: mlp(20, check_finite=True)),
    "memory": ("mt19937", deep),
    "memory_limit": ("mt19937", lambda: deep(memory_limit=200_000)),
    "wide": ("mt19937", wide),
    "bfloat16": ("mt19937", bfloat16),
    "dropout": ("mt19937", dropout),
    "counted dropout": ("philox", dropout),
    "attention": ("mt19937", attention),
    "counted attention": ("philox", attention),
    "shared memory": ("mt19937", lambda: trained(Shared(), normal(16, 8))),
    "differentiated": ("mt19937", differentiated),
    "clipped": ("mt19937", clipped),
    "clipped by the greatest": ("mt19937", lambda: clipped(partial(by_norm, norm_type=math.inf))),
    "clipped by the third power": ("mt19937", lambda: clipped(partial(by_norm, norm_type=3.0))),
    "clipped one by one": ("mt19937", lambda: clipped(partial(by_norm, foreach=False))),
    "clipped together": ("mt19937", lambda: clipped(partial(by_norm, foreach=True))),
    "clipped by value": ("mt19937", lambda: clipped(by_value)),
    "clipped by value together": ("mt19937", lambda: clipped(partial(by_value, foreach=True))),
    "clipped by hand": ("mt19937", lambda: clipped(by_hand)),
    "clipped by elements": ("mt19937", lambda: clipped(by_elements)),
    "clipped in a hook": ("mt19937", lambda: clipped(by_norm, in_hook=True)),
    "clipped by value in a hook": ("mt19937", lambda: clipped(by_value, in_hook=True)),
    "NumPy calls": ("mt19937", lambda: trained(NumpyCalls(), normal(16, 8))),
}


def outcome(name: str) -> dict[str, Any]:
    """Losses, parameters, gradients and random streams after three calls, and the plan."""
    algorithm, make = STEPS[name]
    generator = eg.Generator(algorithm=algorithm)
    with using_generator(generator):
        step, given, state = make()
        generator.manual_seed(11)
        losses = [step(given).item().hex() for _ in range(3)]
    bits = hashlib.sha256()
    for tensor in (*state, *(t.grad for t in state), generator.get_state()):
        bits.update(tensor.detach().contiguous().view(eg.uint8).numpy().tobytes())
    plan = step.plan(given)
    buffers = [(b.label, b.nbytes, b.offset, b.first, b.last) for b in plan.buffers]
    return {"losses": losses, "bits": bits.hexdigest(), "plan": str(plan), "buffers": buffers}


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("made again, though it is on the disk")


def forbid_making() -> None:
    """Let everything fail that a program from the disk does not need."""
    from evergrad.compiler import build
    from evergrad.compiler.eager.checksum import memory_hash
    from evergrad.compiler.native import jit
    from evergrad.compiler.schedule import lower, memory_plan

    memory_hash()  # a kernel of exported arrays, which outcome() reads, and of no program
    eg.randn(64)  # by which layers are initialised, outside of the step
    normal(16, 8).to(eg.bfloat16)  # by which bfloat16() converts its model, outside of the step
    lower.Lowering.__init__ = refuse  # type: ignore[method-assign]
    build.build_program = refuse
    memory_plan._assign_offsets = refuse
    jit.module_ir = refuse
    jit._compiled = refuse
    jit._request = refuse


if __name__ == "__main__":
    if sys.argv[1:] == ["warm"]:
        forbid_making()
    print(json.dumps({name: outcome(name) for name in STEPS}))
