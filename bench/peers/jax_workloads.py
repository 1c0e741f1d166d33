"""The workloads in JAX: pure functions of the parameters that the PyTorch-style build made.

``FUNCTIONS[name](parameters, *data)`` computes what the task of the same name computes; parameters
keep PyTorch's names and layouts. :func:`make_step` gives a jitted step with donated state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from bench.peers.tasks import Optimizer
from bench.peers.workloads import GROUPS, VOCABULARY
from jax import lax

Parameters = dict[str, Any]


def _under(p: Parameters, prefix: str) -> Parameters:
    return {name[len(prefix) :]: v for name, v in p.items() if name.startswith(prefix)}


def _linear(p: Parameters, name: str, x: Any) -> Any:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def _cross_entropy(logits: Any, labels: Any) -> Any:
    picked = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, 1) - picked)


def _standardized(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    mean = x.mean(axes, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)


def _layer_norm(p: Parameters, name: str, x: Any) -> Any:
    return _standardized(x, (-1,), 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


# -- perceptrons and convolutions ----------------------------------------------------------------


def _convolution(p: Parameters, name: str, x: Any, padding: int) -> Any:
    """On channels-last images, which XLA prefers on a CPU."""
    y = lax.conv_general_dilated(
        x, p[f"{name}.weight"], (1, 1), [(padding, padding)] * 2,
        dimension_numbers=("NHWC", "OIHW", "NHWC"),
    )  # fmt: skip
    return y + p[f"{name}.bias"]


def _halved(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def lenet(p: Parameters, images: Any, labels: Any) -> Any:
    x = images.transpose(0, 2, 3, 1)
    x = _halved(jax.nn.relu(_convolution(p, "0", x, 2)))
    x = _halved(jax.nn.relu(_convolution(p, "3", x, 0)))
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return _cross_entropy(_perceptron(p, ("7", "9", "11"), jax.nn.relu, x), labels)


def _perceptron(p: Parameters, names: tuple[str, ...], activation: Any, x: Any) -> Any:
    for name in names[:-1]:
        x = activation(_linear(p, name, x))
    return _linear(p, names[-1], x)


def mlp10m(p: Parameters, images: Any, labels: Any) -> Any:
    return _cross_entropy(_perceptron(p, ("0", "2", "4", "6"), jax.nn.relu, images), labels)


def tiny_mlp(p: Parameters, points: Any, targets: Any) -> Any:
    return jnp.mean((_perceptron(p, ("0", "2", "4"), jnp.tanh, points) - targets) ** 2)


def resblock(p: Parameters, images: Any, targets: Any) -> Any:
    x = images.transpose(0, 2, 3, 1)
    for number in range(3):
        y = _convolution(p, f"{number}.conv", x, 1)
        grouped = y.reshape(*y.shape[:3], GROUPS, -1)
        y = _standardized(grouped, (1, 2, 4), 1e-5).reshape(y.shape)
        x = x + jax.nn.silu(y * p[f"{number}.norm.weight"] + p[f"{number}.norm.bias"])
    return jnp.mean((x - targets.transpose(0, 2, 3, 1)) ** 2)


# -- sequences -----------------------------------------------------------------------------------


def _attention(p: Parameters, x: Any, heads: int, causal: bool) -> Any:
    B, T, C = x.shape
    qkv = _linear(p, "qkv", x).reshape(B, T, 3, heads, C // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))  # (B, T, nh, hs)
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal).reshape(B, T, C)


def gpt(p: Parameters, tokens: Any, targets: Any, *, layers: int, heads: int) -> Any:
    x = p["tokens.weight"][tokens] + p["places.weight"]
    for number in range(layers):
        b = _under(p, f"blocks.{number}.")
        x = x + _linear(b, "out", _attention(b, _layer_norm(b, "norm1", x), heads, causal=True))
        h = jax.nn.gelu(_linear(b, "up", _layer_norm(b, "norm2", x)), approximate=False)
        x = x + _linear(b, "down", h)
    logits = _layer_norm(p, "norm", x) @ p["tokens.weight"].T
    return _cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def _modulated(x: Any, shift: Any, scale: Any) -> Any:
    return _standardized(x, (-1,), 1e-6) * (1 + scale[:, None]) + shift[:, None]


def dit(p: Parameters, x: Any, waves: Any, noise: Any, *, layers: int = 4, heads: int = 8) -> Any:
    c = _linear(p, "time2", jax.nn.silu(_linear(p, "time1", waves)))
    x = _linear(p, "embed", x) + p["places"]
    for number in range(layers):
        b = _under(p, f"blocks.{number}.")
        parts = jnp.split(_linear(b, "modulation", jax.nn.silu(c)), 6, 1)
        shift1, scale1, gate1, shift2, scale2, gate2 = parts
        h = _attention(b, _modulated(x, shift1, scale1), heads, causal=False)
        x = x + gate1[:, None] * _linear(b, "out", h)
        h = jax.nn.gelu(_linear(b, "up", _modulated(x, shift2, scale2)), approximate=True)
        x = x + gate2[:, None] * _linear(b, "down", h)
    shift, scale = jnp.split(_linear(p, "modulation", jax.nn.silu(c)), 2, 1)
    return jnp.mean((_linear(p, "final", _modulated(x, shift, scale)) - noise) ** 2)


def lstm(p: Parameters, x: Any, targets: Any) -> Any:
    weight = p["lstm.weight_hh_l0"].T
    gates = x @ p["lstm.weight_ih_l0"].T + (p["lstm.bias_ih_l0"] + p["lstm.bias_hh_l0"])

    def advance(state: Any, given: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(given + h @ weight, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((x.shape[0], weight.shape[0]), x.dtype)
    _, hidden = lax.scan(advance, (start, start), gates.swapaxes(0, 1))
    logits = _linear(p, "head", hidden.swapaxes(0, 1))
    return _cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


# -- ops and parts -------------------------------------------------------------------------------


def chain(p: Parameters) -> Any:
    a, b, c = p["a"], p["b"], p["c"]
    return (jnp.tanh(a * b + c) * jax.nn.sigmoid(a) - jnp.exp(-b * b)).sum()


def smallop(p: Parameters) -> Any:
    x = y = p["x"]
    for _ in range(500):
        y = y * x + x
    return y.sum()


def part_xent(p: Parameters, labels: Any) -> Any:
    return _cross_entropy(p["x"], labels)


def part_norm(p: Parameters) -> Any:
    return _standardized(p["x"], (-1,), 1e-5) * p["weight"] + p["bias"]


def part_matmul(p: Parameters) -> Any:
    return p["a"] @ p["b"]


def part_attention(p: Parameters) -> Any:
    q, k, v = (p[name].swapaxes(1, 2) for name in "qkv")
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lenet64": lenet,
    "lenet1": lenet,
    "mlp10m": mlp10m,
    "tiny_mlp": tiny_mlp,
    "gpt_tiny": partial(gpt, layers=2, heads=2),
    "gpt_small": partial(gpt, layers=6, heads=6),
    "gpt_med": partial(gpt, layers=6, heads=6),
    "dit": dit,
    "resblock": resblock,
    "lstm": lstm,
    "chain": chain,
    "smallop": smallop,
    "part_xent": part_xent,
    "part_norm": part_norm,
    "part_matmul": part_matmul,
    "part_attention": part_attention,
}


# -- optimizers and steps ------------------------------------------------------------------------


def _sgd(p: Any, g: Any, state: Any, count: Any, *, lr: float, momentum: float = 0.0) -> Any:
    if momentum:
        g = state[0] = jnp.where(count == 1, g, momentum * state[0] + g)
    return p - lr * g, state


def _adam(
    p: Any, g: Any, state: Any, count: Any, *, lr: float, weight_decay: float = 0.0
) -> Any:  # fmt: skip
    first, second = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g
    scale = jnp.sqrt(second / _one_minus_power(0.999, count)) + 1e-8
    step = first / _one_minus_power(0.9, count) / scale
    return p * (1 - lr * weight_decay) - lr * step, [first, second]


def _one_minus_power(base: float, exponent: Any) -> Any:
    """``1 - base**exponent`` without cancellation; PyTorch computes it in double precision."""
    return -jnp.expm1(exponent * math.log(base))


# For an optimizer: how one parameter moves, and how many arrays of state it has.
_RULES: dict[str, tuple[Callable[..., Any], int]] = {
    "SGD": (_sgd, 1),
    "Adam": (_adam, 2),
    "AdamW": (_adam, 2),
}


def make_step(
    name: str, parameters: Parameters, data: tuple[Any, ...], cotangent: Any,
    optimizer: Optimizer | None,
) -> Callable[[], tuple[Any, ...]]:  # fmt: skip
    """A step without arguments that gives arrays; it keeps its parameters and state between."""
    function = FUNCTIONS[name]
    if optimizer is None:
        return _gradient_step(function, parameters, data, cotangent)
    return _training_step(function, parameters, data, optimizer)


def _gradient_step(
    function: Callable[..., Any], parameters: Parameters, data: tuple[Any, ...], cotangent: Any
) -> Callable[[], tuple[Any, ...]]:
    @jax.jit
    def compiled(parameters: Parameters, cotangent: Any, *data: Any) -> Any:
        value, pull = jax.vjp(lambda p: function(p, *data), parameters)
        (grads,) = pull(jnp.ones_like(value) if cotangent is None else cotangent)
        return value, *(grads[name] for name in parameters)

    names = list(parameters)  # jit gives dictionaries back in sorted order
    order = [0, *(1 + sorted(names).index(name) for name in names)]

    def step() -> tuple[Any, ...]:
        found = compiled(parameters, cotangent, *data)
        return tuple(found[i] for i in order)

    return step


def _training_step(
    function: Callable[..., Any], parameters: Parameters, data: tuple[Any, ...],
    optimizer: Optimizer,
) -> Callable[[], tuple[Any, ...]]:  # fmt: skip
    rule, slots = _RULES[optimizer.name]

    @partial(jax.jit, donate_argnums=0)
    def compiled(state: Any, *data: Any) -> Any:
        parameters, moments, count = state
        loss, grads = jax.value_and_grad(function)(parameters, *data)
        count = count + 1
        moved = {
            name: rule(p, grads[name], list(moments[name]), count, **optimizer.options)
            for name, p in parameters.items()
        }
        return (
            {name: p for name, (p, _) in moved.items()},
            {name: m for name, (_, m) in moved.items()},
            count,
        ), loss

    moments = {n: [jnp.zeros_like(p) for _ in range(slots)] for n, p in parameters.items()}
    state = (parameters, moments, jnp.zeros((), jnp.float32))

    def step() -> tuple[Any, ...]:
        nonlocal state
        state, loss = compiled(state, *data)
        return (loss,)

    return step
