"""Random graphs of ops beside PyTorch: values and gradients, eager and compiled, in float64.

A graph is a list of instructions chosen from a seed. What an instruction does depends on shapes
only, so that both libraries run the same ops. Values stay small (products and exponentials are
squashed), and points where a derivative jumps (ties of a maximum, zeros of ``abs``) have measure
zero.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import evergrad as eg

SHAPES = [(3, 4), (4,), (), (1, 4), (2, 3, 4), (5, 5), (3, 1), (0, 4), (2, 1, 3)]
MOST_ELEMENTS = 600

Op = Callable[[Any, Any], Any]


def last(x: Any) -> int:
    return int(x.shape[-1]) if x.dim() else 0


def varies(x: Any) -> bool:
    """Rows with a variance: PyTorch warns for empty ones."""
    return last(x) > 1 and x.numel() > 0


UNARY: list[Op] = [
    lambda lib, x: x.tanh(), lambda lib, x: x.sin() * 1.5, lambda lib, x: x.sigmoid(),
    lambda lib, x: x.clamp(-2.0, 2.0).exp(), lambda lib, x: (x * x + 0.5).log(),
    lambda lib, x: (x.abs() + 0.1).sqrt(), lambda lib, x: -x, lambda lib, x: x * 0.5 + 1.0,
    lambda lib, x: x.relu(), lambda lib, x: x.abs(), lambda lib, x: x.square().tanh(),
    lambda lib, x: lib.nn.functional.gelu(x), lambda lib, x: lib.nn.functional.silu(x),
    lambda lib, x: lib.nn.functional.softplus(x), lambda lib, x: lib.nn.functional.elu(x),
    lambda lib, x: lib.nn.functional.leaky_relu(x, 0.1), lambda lib, x: x.clamp(-0.7, 0.9),
    lambda lib, x: x.erf(), lambda lib, x: x.atan(), lambda lib, x: x.sign() * x,
    lambda lib, x: 1.0 / (1.5 + x * x), lambda lib, x: (x * x + 1.0) ** -0.5,
    lambda lib, x: x.expm1().tanh(), lambda lib, x: (x * x).log1p(), lambda lib, x: x.floor() + x,
    # reductions
    lambda lib, x: x.sum(), lambda lib, x: x.sum(-1) if x.dim() else x,
    lambda lib, x: x.mean(0) if x.dim() and x.shape[0] else x,
    lambda lib, x: x.sum(0, keepdim=True) if x.dim() else x,
    lambda lib, x: x.amax(-1) if last(x) else x, lambda lib, x: x.amin(-1) if last(x) else x,
    lambda lib, x: x.max(-1)[0] if last(x) else x,
    lambda lib, x: (x.var(-1) + 0.1).sqrt() if varies(x) else x,
    lambda lib, x: x.var(-1, keepdim=True) if varies(x) else x,
    lambda lib, x: x.logsumexp(-1) if last(x) else x,
    lambda lib, x: (x.square().sum(-1) + 0.1).sqrt() if x.dim() else x,
    lambda lib, x: x.tanh().cumsum(-1) if x.dim() else x,
    lambda lib, x: x.tanh().prod(-1) if x.dim() else x,
    lambda lib, x: x.softmax(-1) if last(x) else x,
    lambda lib, x: x.log_softmax(-1) if last(x) else x,
    lambda lib, x: lib.nn.functional.layer_norm(x, (last(x),)) if last(x) > 1 else x,
    lambda lib, x: lib.nn.functional.normalize(x + 0.3, dim=-1) if last(x) else x,
    # movement
    lambda lib, x: x.reshape(-1), lambda lib, x: x.flatten().flip(0), lambda lib, x: x.unsqueeze(0),
    lambda lib, x: x.mT if x.dim() > 1 else x, lambda lib, x: x.squeeze(),
    lambda lib, x: x.expand(2, *x.shape), lambda lib, x: x.roll(1, 0) if x.dim() else x,
    lambda lib, x: x[1:] if x.dim() else x, lambda lib, x: x[..., ::2] if x.dim() else x,
    lambda lib, x: x[..., :-1] if x.dim() else x, lambda lib, x: x.movedim(0, -1) if x.dim() else x,
    lambda lib, x: lib.nn.functional.pad(x, (1, 2)) if x.dim() else x,
    lambda lib, x: lib.cat([x, x * 0.5], -1) if x.dim() else x,
    lambda lib, x: lib.stack([x, x.tanh()], 0),
    lambda lib, x: x.repeat(2, 1) if x.dim() == 2 else x,
    lambda lib, x: x.chunk(2, -1)[0] if last(x) > 1 else x,
    lambda lib, x: x.unfold(-1, 2, 1).sum(-1) if last(x) > 1 else x,
    lambda lib, x: x.diagonal() if x.dim() == 2 else x,
    lambda lib, x: x.tril() if x.dim() >= 2 else x, lambda lib, x: x.contiguous() * 1.0,
    # indexing
    lambda lib, x: x[lib.arange(x.shape[0]) // 2] if x.dim() else x,
    lambda lib, x: x.index_select(-1, lib.arange(last(x)).flip(0)) if x.dim() else x,
    lambda lib, x: x.gather(-1, lib.zeros(x.shape, dtype=lib.int64)) if last(x) else x,
    lambda lib, x: x.masked_fill(x > 0.5, 0.25),
    lambda lib, x: lib.where(x > 0, x, x * 0.1),
    lambda lib, x: x.sort(-1)[0] if last(x) else x,
    lambda lib, x: x.topk(2, -1)[0] if last(x) > 1 else x,
    lambda lib, x: lib.zeros_like(x).index_add(0, lib.arange(x.shape[0]) // 2, x) if x.dim() else x,
    # products
    lambda lib, x: (x @ x.mT).tanh() if x.dim() >= 2 else x,
    lambda lib, x: lib.einsum("...i,...i->...", x, x).tanh() if x.dim() else x,
    lambda lib, x: lib.outer(x, x).tanh() if x.dim() == 1 else x,
    # in place, on a copy
    lambda lib, x: x.clone().mul_(0.5).add_(1.0), lambda lib, x: _written(x),
]  # fmt: skip
BINARY: list[Callable[[Any, Any, Any], Any]] = [
    lambda lib, a, b: a + b, lambda lib, a, b: (a * b).tanh(), lambda lib, a, b: a - b * 0.5,
    lambda lib, a, b: a / (1.0 + b * b), lambda lib, a, b: lib.maximum(a, b),
    lambda lib, a, b: lib.minimum(a, b), lambda lib, a, b: lib.where(a > b, a, b * 2.0),
    lambda lib, a, b: lib.lerp(a, b.expand_as(a + b), 0.3) if a.shape == (a + b).shape else a + b,
    lambda lib, a, b: lib.atan2(a, 1.5 + b * b), lambda lib, a, b: lib.hypot(a + 0.1, b + 0.2),
    lambda lib, a, b: (a @ b.mT).tanh() if _rows_match(a, b) else a + b,
    lambda lib, a, b: lib.cat([a, b], -1) if _joinable(a, b) else a - b,
]  # fmt: skip


def _rows_match(a: Any, b: Any) -> bool:
    return bool(a.dim() == b.dim() == 2 and a.shape[1] == b.shape[1])


def _joinable(a: Any, b: Any) -> bool:
    return bool(a.dim() == b.dim() > 0 and a.shape[:-1] == b.shape[:-1])


def _written(x: Any) -> Any:
    y = x.clone()
    if y.dim() and y.shape[0]:
        y[0] = y[-1] * 2.0
    return y


def instructions(rng: random.Random) -> list[tuple[int, int, int, bool]]:
    """Op, two operands counted from the end, whether it has two."""
    return [
        (rng.randrange(1 << 20), rng.randrange(5), rng.randrange(5), rng.random() < 0.35)
        for _ in range(rng.randrange(1, 12))
    ]


def evaluate(lib: Any, code: list[tuple[int, int, int, bool]], *tensors: Any) -> list[Any]:
    """The last values of a graph."""
    values = list(tensors)
    for op, left, right, is_binary in code:
        a, b = values[-1 - left % len(values)], values[-1 - right % len(values)]
        if not is_binary:
            made = UNARY[op % len(UNARY)](lib, a)
        elif _broadcast(a.shape, b.shape):
            made = BINARY[op % len(BINARY)](lib, a, b)
        else:
            continue
        if made.numel() <= MOST_ELEMENTS and made.dim() <= 5:
            values.append(made)
    return values[len(tensors) :][-3:] or [values[-1] * 2.0]


def _broadcast(a: Any, b: Any) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(m == n or m == 1 or n == 1 for m, n in pairs)


def results(lib: Any, code: Any, arrays: list[np.ndarray], wrap: Any = None) -> list[np.ndarray]:
    """Values and gradients of a graph in one library."""

    def function(*tensors: Any) -> Any:
        values = evaluate(lib, code, *tensors)
        total = sum((v * 0.7).sum() for v in values)
        grads = lib.autograd.grad(total, tensors, allow_unused=True)
        return [v.detach() for v in values], list(grads)

    call = function if wrap is None else wrap(function)
    tensors = [lib.tensor(a, requires_grad=True) for a in arrays]
    values, grads = call(*tensors)
    found = [*values, *(g for g in grads if g is not None)]
    return [np.array(t.numpy()) for t in found]


def check(seed: int, torch: Any, compiled: bool) -> bool:
    """One graph: eager beside PyTorch, and compiled beside PyTorch if asked for.

    False if the graph was left out: it is ill-conditioned at this point, which is to say that
    PyTorch's own results jump when the arguments change in their last digits.
    """
    rng = random.Random(seed)
    code = instructions(rng)
    source = np.random.default_rng(seed)
    arrays = [source.standard_normal(rng.choice(SHAPES)) for _ in range(rng.randint(1, 3))]
    expected = results(torch, code, arrays)
    for wrap in (None, eg.compile) if compiled else (None,):
        found = results(eg, code, arrays, wrap)
        if not close(found, expected):
            moved = [a * (1 + 1e-13 * source.standard_normal(a.shape)) for a in arrays]
            if not close(results(torch, code, moved), expected):
                return False
            how = f"seed {seed}, {'compiled' if wrap else 'eager'}, {len(code)} ops"
            raise AssertionError(f"{how}: {found} instead of {expected}")
    return True


def close(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    """The same shapes and dtypes, and values within rounding in float64."""
    if [(a.shape, a.dtype) for a in found] != [(b.shape, b.dtype) for b in expected]:
        return False
    return all(
        np.allclose(a, b, rtol=1e-8, atol=1e-9 * np.abs(b).max(initial=1.0))
        for a, b in zip(found, expected, strict=True)
    )
