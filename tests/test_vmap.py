"""``vmap``: dimensions, containers, chunks, randomness, writes and refusals."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from evergrad.errors import GradientError
from twins import agree, assert_same, fixed, plain, refuse


def batch(ns: Any) -> Any:
    return ns.arange(24.0, dtype=ns.float64).reshape(2, 3, 4) / 7


VMAP = {
    "first dimension": lambda ns: ns.vmap(lambda x: x.sin().sum(0))(batch(ns)),
    "last dimension": lambda ns: ns.vmap(lambda x: x.cumsum(0), in_dims=-1)(batch(ns)),
    "out at the end": lambda ns: ns.vmap(lambda x: x * 2, in_dims=1, out_dims=-1)(batch(ns)),
    "two batched": lambda ns: ns.vmap(lambda x, y: x @ y, in_dims=(0, 2))(
        batch(ns), batch(ns).permute(2, 1, 0)
    ),
    "one batched": lambda ns: ns.vmap(lambda x, y: x * y, in_dims=(0, None))(
        batch(ns), batch(ns)[0, 0]
    ),
    "captured": lambda ns: (lambda w: ns.vmap(lambda x: x @ w)(batch(ns)))(batch(ns)[0].t()),
    "containers": lambda ns: ns.vmap(
        lambda d, t: {"s": d["a"] + t[0], "p": (t[1] * d["b"], d["a"])},
        in_dims=({"a": 0, "b": None}, (1, 0)), out_dims=0,
    )({"a": batch(ns)[0], "b": fixed(ns, 3.0)}, (batch(ns)[0].t(), batch(ns)[0])),
    "several out dims": lambda ns: ns.vmap(
        lambda x: (x, x.sum(), x * 2), out_dims=(1, 0, 2)
    )(batch(ns)),
    "nothing batched comes out": lambda ns: ns.vmap(
        lambda x: (x, fixed(ns, [1.0, 2.0])), out_dims=(0, None)
    )(batch(ns)[0]),
    "constant repeated": lambda ns: ns.vmap(lambda x: fixed(ns, [1.0, 2.0]))(batch(ns)[0]),
    "nested": lambda ns: ns.vmap(ns.vmap(lambda x, y: x * y, in_dims=(0, None)), in_dims=(0, 0))(
        batch(ns), batch(ns)[:, 0, 0]
    ),
    "nested over different dims": lambda ns: ns.vmap(
        ns.vmap(lambda x, y: (x * y).sum(), in_dims=(None, 0)), in_dims=(0, None)
    )(batch(ns)[0], batch(ns)[1]),
    "reductions": lambda ns: ns.vmap(
        lambda x: (x.sum(), x.mean(0), x.prod(1), x.amax(-1), x.logsumexp(0), x.var())
    )(batch(ns)),
    "choosing": lambda ns: ns.vmap(lambda x: ns.where(x > 1, x, -x).clamp(-2, 2))(batch(ns)),
    "shapes": lambda ns: ns.vmap(
        lambda x: (x.reshape(-1), x.t(), x.unsqueeze(0), x[1:, ::2], x.expand(2, 3, 4), x.flip(0))
    )(batch(ns)),
    "indexing": lambda ns: ns.vmap(lambda x, i: x[i], in_dims=(0, 0))(
        batch(ns), ns.tensor([2, 0])
    ),
    "gathering": lambda ns: ns.vmap(lambda x, i: x.gather(0, i))(
        batch(ns)[0], ns.tensor([[0, 1, 1, 3], [1, 0, 2, 0], [3, 3, 3, 3]])
    ),
    "joining": lambda ns: ns.vmap(lambda x: ns.cat([x, x * 2]).sum(0))(batch(ns)),
    "sorting": lambda ns: ns.vmap(lambda x: x.cos().sort(0)[0])(batch(ns)),
    "dtypes": lambda ns: ns.vmap(lambda x: (x > 1).long() + x.int())(batch(ns)),
    "writes inside": lambda ns: ns.vmap(
        lambda x: (lambda y: (y[0].add_(x[1]), y.mul_(2))[1])(x * 1)
    )(batch(ns)),
    "writes to a fresh buffer": lambda ns: ns.vmap(
        lambda x: ns.zeros_like(x).copy_(x * 3)
    )(batch(ns)),
    "a write to the argument": lambda ns: (
        lambda x: (ns.vmap(lambda x: x.add_(1))(x), x)
    )(batch(ns)),
    "a write to a column": lambda ns: (
        lambda x: (ns.vmap(lambda x: x[1:].mul_(2), in_dims=1)(x), x)
    )(batch(ns)),
    "a write to an unbatched argument": lambda ns: (
        lambda x, y: (ns.vmap(lambda x, y: x + y.add_(1), in_dims=(0, None))(x, y), y)
    )(batch(ns), batch(ns)[0].clone()),
    "no examples": lambda ns: ns.vmap(lambda x: (x * 2).sum(0))(batch(ns)[:0]),
    "0-d examples": lambda ns: ns.vmap(lambda x: x * x)(batch(ns)[0, 0]),
    "keywords": lambda ns: ns.vmap(lambda x, *, scale: x * scale)(batch(ns), scale=3.0),
}  # fmt: skip


@pytest.mark.parametrize("name", VMAP)
def test_vmap(name: str, torch: ModuleType) -> None:
    agree(VMAP[name], torch)


# Each chunk writes once more; and there is no chunk of no examples.
NOT_IN_CHUNKS = ("a write to an unbatched argument", "no examples")


@pytest.mark.parametrize("name", [n for n in VMAP if n not in NOT_IN_CHUNKS])
def test_vmap_in_chunks(name: str) -> None:
    def in_chunks(ns: Any) -> Any:
        class Chunked:
            """A namespace whose vmap goes two examples at a time."""

            def __getattr__(self, attribute: str) -> Any:
                return getattr(ns, attribute)

            def vmap(self, *args: Any, **kwargs: Any) -> Any:
                return ns.vmap(*args, **kwargs, chunk_size=2)

        return VMAP[name](Chunked())

    assert_same(plain(in_chunks(eg)), plain(VMAP[name](eg)))


VMAP_WRONG = {
    "sizes": lambda ns: ns.vmap(lambda x, y: x)(batch(ns), batch(ns)[0]),
    "nothing to map over": lambda ns: ns.vmap(lambda x: x, in_dims=None)(batch(ns)),
    "no such dimension": lambda ns: ns.vmap(lambda x: x, in_dims=5)(batch(ns)),
    "a number": lambda ns: ns.vmap(lambda x, y: x)(batch(ns), 3),
    "in_dims of another form": lambda ns: ns.vmap(lambda x: x, in_dims=(0, 0))(batch(ns)),
    "out_dims of another form": lambda ns: ns.vmap(lambda x: x, out_dims=(0, 0))(batch(ns)),
    "result is no tensor": lambda ns: ns.vmap(lambda x: 3)(batch(ns)),
    "batched where none is wanted": lambda ns: ns.vmap(lambda x: x, out_dims=None)(batch(ns)),
    "a number asked for": lambda ns: ns.vmap(lambda x: x * x.sum().item())(batch(ns)),
    "control flow": lambda ns: ns.vmap(lambda x: x if x.sum() > 0 else -x)(batch(ns)),
    "chunks of nothing": lambda ns: ns.vmap(lambda x: x, chunk_size=0)(batch(ns)),
    "randomness": lambda ns: ns.vmap(lambda x: x, randomness="sometimes")(batch(ns)),
    "random by default": lambda ns: ns.vmap(lambda x: x + ns.rand(4))(batch(ns)),
    "batched into unbatched": lambda ns: (lambda y: ns.vmap(lambda x: y.add_(x.sum()))(batch(ns)))(
        fixed(ns, 0.0)
    ),
}


@pytest.mark.parametrize("name", VMAP_WRONG)
def test_what_vmap_refuses(name: str, torch: ModuleType) -> None:
    refuse(VMAP_WRONG[name], torch)


def test_randomness_different() -> None:
    out = eg.vmap(lambda x: x * 0 + eg.rand(4), randomness="different")(eg.zeros(3, 4))
    assert len({tuple(row) for row in out.tolist()}) == 3


def test_randomness_same() -> None:
    out = eg.vmap(lambda x: x * 0 + eg.rand(4), randomness="same")(eg.zeros(3, 4))
    assert len({tuple(row) for row in out.tolist()}) == 1
    assert len(set(out[0].tolist())) == 4


def test_randomness_same_of_batched_arguments(torch: ModuleType) -> None:
    """One draw cannot serve examples that have their own probabilities."""
    probabilities = [[0.1, 0.9], [0.5, 0.5]]
    refuse(lambda ns: ns.vmap(ns.bernoulli, randomness="same")(ns.tensor(probabilities)), torch)
    out = eg.vmap(eg.bernoulli, randomness="different")(eg.tensor([[0.0, 1.0]] * 3))
    assert out.tolist() == [[0.0, 1.0]] * 3


def test_randomness_inside_transforms(torch: ModuleType) -> None:
    x = eg.ones(3, 2)

    def noisy(x: Any) -> Any:
        return (x * eg.rand(2)).sum()

    grads = eg.vmap(eg.func.grad(noisy), randomness="different")(x)
    assert len({tuple(row) for row in grads.tolist()}) == 3
    grads = eg.vmap(eg.func.grad(noisy), randomness="same")(x)
    assert len({tuple(row) for row in grads.tolist()}) == 1


def test_history_lost_under_no_grad_is_an_error() -> None:
    """The graph of a batched function cannot keep the history of a value that was overwritten."""

    def overwrites(x: Any) -> Any:
        y = x * 2
        with eg.no_grad():
            y.mul_(5)
        return y * x

    def fills_a_buffer(x: Any) -> Any:
        scale = eg.zeros(3, dtype=eg.float64)
        with eg.no_grad():
            scale.add_(x).mul_(2)
        return scale * x

    rows = fixed(eg, [[1.0, 2.0, 3.0]])
    assert eg.vmap(overwrites)(rows).tolist() == [[10.0, 40.0, 90.0]]
    with pytest.raises(GradientError, match="under no_grad") as error:
        eg.vmap(overwrites)(rows.clone().requires_grad_())
    assert "y.mul_(5)" in str(error.value)
    x = rows.clone().requires_grad_()
    eg.vmap(fills_a_buffer)(x).sum().backward()
    assert x.grad.tolist() == [[2.0, 4.0, 6.0]]
    grads = eg.vmap(eg.func.grad(lambda x: overwrites(x).sum()))(rows)
    assert grads.tolist() == [[12.0, 24.0, 36.0]]
