"""The training step of ``bench/call.py`` in JAX, in the spellings that JAX has."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def jax_spellings() -> dict[str, Callable[[], Call]]:
    """Spelling -> a function that makes its call; empty where JAX is not installed."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return {}
    key = jax.random.PRNGKey(0)
    a, b, c, d = jax.random.split(key, 4)
    x, y = jax.random.normal(c, (8, 8)), jax.random.normal(d, (8, 1))
    numbers = itertools.count(1)

    def parameters() -> Any:
        return (
            jax.random.normal(a, (8, 16)) * 0.3, jnp.zeros(16),
            jax.random.normal(b, (16, 1)) * 0.3, jnp.zeros(1),
        )  # fmt: skip

    def loss(params: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = params
        return ((jnp.tanh(x @ w1 + b1) @ w2 + b2 - y) ** 2).mean()

    def update(params: Any, grads: Any, lr: Any) -> Any:
        return jax.tree.map(lambda p, g: p - lr * g, params, grads)

    def plain(params: Any, x: Any, y: Any, lr: Any = 1e-3) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return update(params, grads, lr), value

    def by_norm(params: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
        scale = jnp.minimum(0.5 / (norm + 1e-6), 1.0)
        return update(params, jax.tree.map(lambda g: g * scale, grads), 1e-3), value

    def by_value(params: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return update(params, jax.tree.map(lambda g: jnp.clip(g, -0.1, 0.1), grads), 1e-3), value

    def runs(function: Any, given: Callable[[], tuple[Any, ...]], end: Any = None) -> Any:
        def make() -> Call:
            step, state = jax.jit(function), [parameters()]

            def call() -> Any:
                state[0], value = step(state[0], *given())
                value.block_until_ready()
                return value if end is None else end(value)

            call()
            return call

        return make

    def in_dictionary(params: Any, batch: Any) -> Any:
        return plain(params, batch["x"], batch["y"])

    def in_tuple(params: Any, batch: Any) -> Any:
        return plain(params, *batch)

    def with_rate() -> tuple[Any, ...]:
        return x, y, 1e-3 / next(numbers)

    return {
        "tensors passed": runs(plain, lambda: (x, y)),
        "tensors closed over": runs(lambda params: plain(params, x, y), lambda: ()),
        "a dictionary": runs(in_dictionary, lambda: ({"x": x, "y": y},)),
        "a tuple": runs(in_tuple, lambda: ((x, y),)),
        "a float that changes": runs(plain, with_rate),
        "rate as an argument": runs(plain, with_rate),
        "clipping by norm": runs(by_norm, lambda: (x, y)),
        "clipping by value": runs(by_value, lambda: (x, y)),
        "item returned": runs(plain, lambda: (x, y), float),
        "item outside": runs(plain, lambda: (x, y), float),
    }
