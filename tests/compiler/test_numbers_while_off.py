"""Numbers of a call whose tracing was switched off halfway, as by a write to memory of NumPy.

What the call computed from its counter before that is a number of the trace; every function takes
it as the number that Python would have had.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import evergrad as eg
from evergrad.nn import functional as F

Use = Callable[[eg.Tensor, eg.Tensor, float], object]

IN_PLACE: dict[str, Use] = {
    "mul_": lambda t, x, d: t.mul_(d),
    "add_ alpha": lambda t, x, d: t.add_(x, alpha=1 - d),
    "sub_ of a sum": lambda t, x, d: t.sub_(d + 1),
    "operator": lambda t, x, d: t.__imul__(d),
    "div_ rounding": lambda t, x, d: t.div_(d, rounding_mode="floor"),
    "pow_": lambda t, x, d: t.abs_().pow_(d),
    "clamp_": lambda t, x, d: t.clamp_(-d, d),
    "clamp_ keywords": lambda t, x, d: t.clamp_(min=-d, max=d),
    "fill_": lambda t, x, d: t.fill_(d),
    "setitem": lambda t, x, d: t.__setitem__(0, d),
    "masked setitem": lambda t, x, d: t.__setitem__(t > 0, d),
    "masked_fill_": lambda t, x, d: t.masked_fill_(t > 0, d),
    "index_fill_": lambda t, x, d: t.index_fill_(0, eg.tensor([1]), d),
    "lerp_": lambda t, x, d: t.lerp_(x, d),
    "addcmul_": lambda t, x, d: t.addcmul_(x, x, value=d),
    "addcdiv_": lambda t, x, d: t.addcdiv_(x, x.abs() + 1, value=d),
    "atan2_": lambda t, x, d: t.atan2_(eg.full_like(t, d)),
    "ldexp_ of int": lambda t, x, d: t.mul_(2 ** int(4 * d)),
    "a view": lambda t, x, d: t[1:].mul_(d),
    "copy_": lambda t, x, d: t.copy_(x * d),
    "foreach": lambda t, x, d: eg._foreach_mul_([t], d),
    "foreach add": lambda t, x, d: eg._foreach_add_([t], [x], alpha=d),
    "leaky_relu_": lambda t, x, d: F.leaky_relu_(t, d),
    "elu_": lambda t, x, d: F.elu_(t, d),
    "uniform_": lambda t, x, d: t.uniform_(-d, d),
    "normal_": lambda t, x, d: t.normal_(d, d),
    "bernoulli_": lambda t, x, d: t.bernoulli_(d / 8),
    "out": lambda t, x, d: eg.mul(x, d, out=t),
    "out alpha": lambda t, x, d: eg.add(x, x, alpha=d, out=t),
    "nested containers": lambda t, x, d: t.mul_(max(d, 0.25)).add_(x, alpha=min(1.0, d)),
}
RESULTS: dict[str, Use] = {
    "mul": lambda t, x, d: x * d,
    "right operand": lambda t, x, d: d / (2 + x),
    "add alpha": lambda t, x, d: x.add(t, alpha=d),
    "pow": lambda t, x, d: x.abs() ** d,
    "base": lambda t, x, d: d**x,
    "full": lambda t, x, d: eg.full((2,), d),
    "full_like": lambda t, x, d: eg.full_like(x, d),
    "tensor": lambda t, x, d: eg.tensor([d, 1.0, 2 * d]),
    "arange": lambda t, x, d: eg.arange(0.0, 4.0, d),
    "linspace": lambda t, x, d: eg.linspace(0, d, 4),
    "where": lambda t, x, d: eg.where(x > 0, d, x),
    "lerp": lambda t, x, d: eg.lerp(x, t, d),
    "clamp": lambda t, x, d: x.clamp(-d, d),
    "softplus": lambda t, x, d: F.softplus(x, beta=d),
    "huber": lambda t, x, d: F.huber_loss(x, t, delta=d),
    "dropout": lambda t, x, d: F.dropout(x, d / 8),
    "addmm": lambda t, x, d: eg.addmm(eg.ones(1, 1), x[None], x[:, None], beta=d, alpha=d),
    "norm": lambda t, x, d: x.norm(p=1 + d),
    "quantile": lambda t, x, d: x.quantile(d / 8),
    "comparison": lambda t, x, d: x > d,
    "itself": lambda t, x, d: d,
    "list": lambda t, x, d: [d, {"rate": d * 2}],
    "text": lambda t, x, d: f"{d:.3f}",
    "repeat": lambda t, x, d: x.repeat(int(2 * d)),
}


def values(use: Use, compiled: bool) -> list[object]:
    eg.manual_seed(3)
    t, u, v = (eg.tensor([-1.0, 0.5, 2.0]) * n for n in (1, 2, 3))
    count = [0]

    def step(x: eg.Tensor) -> object:
        count[0] += 1
        d = count[0] / 2
        for written in (t, u, v):  # of NumPy from the second call on: then tracing ends
            written.mul_(d).add_(x, alpha=1 - d)
        return [use(t, x, d), use(u, x, d)]

    run = eg.compile(step) if compiled else step
    seen: list[object] = []
    for n in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(eg.tensor([0.5, -1.0, 1.5]) + n)
        shown = [f.tolist() if isinstance(f, eg.Tensor) else f for f in found]
        seen += [*shown, *(written.numpy().tolist() for written in (t, u, v))]
    return [*seen, eg.rand(2).tolist(), count[0]]


@pytest.mark.parametrize("name", [*IN_PLACE, *RESULTS])
def test_numbers_after_tracing_was_switched_off(name: str) -> None:
    use = {**IN_PLACE, **RESULTS}[name]
    if name in IN_PLACE:
        in_place = use
        use = lambda t, x, d: (in_place(t, x, d), None)[1]
    for found, expected in zip(values(use, True), values(use, False), strict=True):
        is_flat = isinstance(expected, list) and all(type(v) is float for v in expected)
        assert found == (pytest.approx(expected, rel=1e-6) if is_flat else expected)
