"""What programs do after a transposition: look at results with ``view``, and draw like them.

PyTorch lays most results out row by row, however their arguments lie, and programs rely on it when
they call ``view``. Random numbers are drawn in the order in which the elements lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda ns: ns.rand(4, 5, 6),
    "last two": lambda ns: ns.rand(4, 5, 6).transpose(1, 2),
    "first two": lambda ns: ns.rand(4, 5, 6).transpose(0, 1),
    "all": lambda ns: ns.rand(4, 5, 6).permute(2, 0, 1),
    "every other": lambda ns: ns.rand(4, 5, 12)[:, :, ::2],
    "repeated": lambda ns: ns.rand(4, 1, 6).expand(4, 5, 6),
    "large": lambda ns: ns.rand(8, 40, 50).permute(2, 0, 1),
}

# Results that PyTorch lays out row by row.
OPS: dict[str, Callable[[Any, Any], Any]] = {
    "cat": lambda ns, x: ns.cat([x, x], 1),
    "stack": lambda ns, x: ns.stack([x, x], -1),
    "hstack": lambda ns, x: ns.hstack([x, x]),
    "masked_fill": lambda ns, x: x.masked_fill(x > 0.5, 1.0),
    "softmax": lambda ns, x: x.softmax(0),
    "log_softmax": lambda ns, x: x.log_softmax(1),
    "layer_norm": lambda ns, x: ns.nn.functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda ns, x: ns.nn.functional.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda ns, x: ns.nn.functional.group_norm(x, 1),
    "batch_norm": lambda ns, x: ns.nn.functional.batch_norm(x, None, None, training=True),
    "instance_norm": lambda ns, x: ns.nn.functional.instance_norm(x),
    "cumsum": lambda ns, x: x.cumsum(0),
    "cumprod": lambda ns, x: x.cumprod(-1),
    "cummax": lambda ns, x: x.cummax(0).values,
    "roll": lambda ns, x: x.roll(1, 0),
    "index_select": lambda ns, x: x.index_select(-1, ns.tensor([0, 1])),
    "gather": lambda ns, x: x.gather(0, ns.zeros(x.shape, dtype=ns.int64)),
    "sum": lambda ns, x: x.sum(1),
    "mean": lambda ns, x: x.mean(-1),
    "amax": lambda ns, x: x.amax(1),
    "var": lambda ns, x: x.var(1),
    "norm": lambda ns, x: x.norm(dim=1),
    "topk": lambda ns, x: x.topk(2, 0).values,
    "tril": lambda ns, x: x.tril(),
    "pad": lambda ns, x: ns.nn.functional.pad(x, (1, 1), mode="reflect"),
    "one_hot": lambda ns, x: ns.nn.functional.one_hot(x.long(), 3),
    "interpolate": lambda ns, x: ns.nn.functional.interpolate(x, scale_factor=2, mode="linear"),
    "matmul": lambda ns, x: x @ x.mT,
    "linear": lambda ns, x: ns.nn.functional.linear(x, ns.ones(3, x.shape[-1])),
    "cdist": lambda ns, x: ns.cdist(x, x),
    "attention": lambda ns, x: ns.nn.functional.scaled_dot_product_attention(x, x, x),
}

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "randn_like": lambda ns, x: ns.randn_like(x),
    "rand_like": lambda ns, x: ns.rand_like(x),
    "randint_like": lambda ns, x: ns.randint_like(x, 0, 1000),
    "normal_": lambda ns, x: x.contiguous().mT.normal_(),
    "uniform_": lambda ns, x: x.contiguous().mT.uniform_(-1, 1),
    "bernoulli_": lambda ns, x: x.contiguous().mT.bernoulli_(ns.rand(x.mT.shape)),
    "trunc_normal_": lambda ns, x: ns.nn.init.trunc_normal_(x.contiguous().mT),
    "multinomial": lambda ns, x: ns.multinomial(x.contiguous().flatten(1).t(), 2),
    "dropout": lambda ns, x: ns.nn.functional.dropout(x, 0.4),
}

every_layout = pytest.mark.parametrize("layout", LAYOUTS)


@every_layout
@pytest.mark.parametrize("op", OPS)
def test_results_can_be_viewed(op: str, layout: str, reference: ModuleType) -> None:
    for ns in (reference, evergrad):
        assert OPS[op](ns, LAYOUTS[layout](ns)).view(-1).ndim == 1


@pytest.mark.parametrize("kind", ["float64", "float32"])
@every_layout
@pytest.mark.parametrize("draw", DRAWS)
def test_the_same_numbers_in_the_same_places(
    draw: str, layout: str, kind: str, reference: ModuleType
) -> None:
    found = []
    for ns in (reference, evergrad):
        ns.set_default_dtype(getattr(ns, kind))
        ns.manual_seed(0)
        drawn = DRAWS[draw](ns, LAYOUTS[layout](ns))
        found.append((drawn.numpy(), ns.rand(4).tolist()))
    (theirs, their_next), (ours, our_next) = found
    # Box-Muller in float32 agrees to the last bits.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 if kind == "float32" else 1e-14)
    assert our_next == their_next
