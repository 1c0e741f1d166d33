"""Random programs of views and writes: against PyTorch, and against themselves in every mode."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.errors import SavedValueError, TraceError
from twins import assert_same, fixed, leaf, plain

SQUARE = [[1.0, -2.0, 3.0], [4.0, 5.0, -6.0], [7.0, 8.0, 9.0]]

VIEWS: dict[str, Callable[[Any, int], Any]] = {
    "transpose": lambda t, a: t.transpose(0, -1) if t.dim() > 1 else t.view(t.shape),
    "row": lambda t, a: t.select(0, a % t.shape[0]) if t.dim() else t.view(1),
    "column": lambda t, a: t.select(-1, a % t.shape[-1]) if t.dim() else t.view(1),
    "flat": lambda t, a: t.reshape(-1),
    "top": lambda t, a: t[: max(1, t.shape[0] - 1)] if t.dim() else t.view(1),
    "expand": lambda t, a: t.unsqueeze(0).expand(2, *t.shape),
    "unsqueeze": lambda t, a: t.unsqueeze(a % (t.dim() + 1)),
    "diagonal": lambda t, a: t.diagonal() if t.dim() > 1 else t.view(t.shape),
    "detach": lambda t, a: t.detach(),
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "scale": lambda t, o: t.mul_(1.25),
    "add": lambda t, o: t.add_(o),
    "sine": lambda t, o: t.sin_(),
    "copy": lambda t, o: t.copy_(o),
    "negate": lambda t, o: t.neg_(),
    "add a number": lambda t, o: t.add_(o.sum()),
}
VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "times": lambda t, o: t * o,
    "sine": lambda t, o: t.sin(),
    "clone": lambda t, o: t.clone(),
    "plus": lambda t, o: t + o,
}
Step = tuple[str, str, int, int]


def random_program(seed: int) -> list[Step]:
    choose = random.Random(seed)
    steps = []
    for _ in range(choose.randint(4, 12)):
        kind = choose.choice(["view", "view", "write", "write", "value"])
        table = {"view": VIEWS, "write": WRITES, "value": VALUES}[kind]
        name = choose.choice(list(table))
        steps.append((kind, name, choose.randrange(100), choose.randrange(100)))
    return steps


def run_program(ns: Any, steps: list[Step]) -> Any:
    """The errors on the way, all values, and the gradients or "refused"."""
    x, w, c = leaf(ns, SQUARE), leaf(ns, SQUARE[::-1]), fixed(ns, SQUARE)
    pool = [x * 0.5, c, w * w, x]
    refused = []
    for number, (kind, name, i, j) in enumerate(steps):
        t, o = pool[i % len(pool)], pool[j % len(pool)]
        try:
            if kind == "view":
                pool.append(VIEWS[name](t, j))
            elif kind == "write":
                WRITES[name](t, o.clone())  # PyTorch refuses arguments that overlap
            else:
                pool.append(VALUES[name](t, o))
        except RuntimeError:
            refused.append(number)
    asking = [t.requires_grad for t in pool]
    live = [(t * (k + 1)).sum() for k, t in enumerate(pool) if t.requires_grad]
    try:
        grads: Any = ns.autograd.grad(sum(live), [x, w], allow_unused=True)
    except RuntimeError:
        grads = "refused"
    return refused, asking, pool, grads


# Programs in which PyTorch itself is not to be followed.
NO_REFERENCE = {
    71: "takes a view of a constant that later got a history for a leaf",
    141: "adds a tensor to an overlapping one while overwriting it",
}


@pytest.mark.parametrize("seed", [s for s in range(152) if s not in NO_REFERENCE])
def test_random_programs(seed: int, torch: ModuleType) -> None:
    steps = random_program(seed)
    theirs = plain(run_program(torch, steps))
    ours = plain(run_program(eg, steps))
    if theirs[3] == "refused":
        ours = (*ours[:3], "refused")  # more is possible here: ops copy what they overwrite
    assert_same(ours, theirs)


def as_function(steps: list[Step]) -> Callable[[Any, Any], Any]:
    """A random program as a function of two matrices, giving one number."""

    def function(x: Any, w: Any) -> Any:
        pool = [x * 0.5, fixed(eg, SQUARE), w * w, x * 1]
        for kind, name, i, j in steps:
            t, o = pool[i % len(pool)], pool[j % len(pool)]
            try:
                if kind == "view":
                    pool.append(VIEWS[name](t, j))
                elif kind == "write":
                    WRITES[name](t, o)
                else:
                    pool.append(VALUES[name](t, o))
            except TraceError:
                raise
            except RuntimeError:
                continue
        return sum((t * (k + 1)).sum() for k, t in enumerate(pool))

    return function


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_in_every_mode(seed: int) -> None:
    """Recorded, traced and batched runs, and finite differences, say the same."""
    function = as_function([s for s in random_program(seed) if s[1] != "detach"])
    x, w = fixed(eg, SQUARE), fixed(eg, SQUARE[::-1]) * 0.3
    dx, dw = (fixed(eg, f(np.arange(9.0)).reshape(3, 3)) for f in (np.cos, np.sin))
    try:
        gx, gw = eg.func.grad(function, (0, 1))(x, w)
    except SavedValueError:
        return
    slope = ((gx * dx).sum() + (gw * dw).sum()).item()
    value, moved = eg.func.jvp(function, (x, w), (dx, dw))
    assert value.item() == pytest.approx(function(x, w).item())
    assert moved.item() == pytest.approx(slope)
    step = 1e-6
    sides = [function(x + h * dx, w + h * dw).item() for h in (step, -step)]
    assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-3)
    rows = eg.stack([x, x * 1.1]).requires_grad_()
    batched = eg.vmap(function, in_dims=(0, None))(rows, w)
    assert_same(plain(batched), plain(eg.stack([function(r, w) for r in rows.detach()])))
    batched.sum().backward()
    assert_same(plain(rows.grad[0]), plain(gx))
    assert_same(plain(eg.vmap(eg.func.grad(function), in_dims=(0, None))(rows.detach(), w)),
                plain(rows.grad))  # fmt: skip
