"""Samples of rows that draw. The seed is set before each call, so PyTorch's numbers are expected.

In another element type the stream is another one too, so results are not compared across types.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.ops.rows.random.draws import standard_gamma
from evergrad.testing.samples import between, normal, positive, sample


def draw(
    row: str, call: Callable[..., object], *inputs: object, label: str = "", **options: Any
) -> None:
    sample(row, call, *inputs, dtypes=(), label=label, **options)


# -- by numbers ---------------------------------------------------------------------------------

draw("uniform", lambda ns: ns.rand(2, 3))
draw("uniform", lambda ns: ns.rand(5, dtype=ns.float64), label="float64")
draw("uniform", lambda ns: ns.rand(0, 3), label="empty")
draw("uniform", lambda ns: ns.zeros(3, 2).uniform_(-2, 5), label="in-place")
draw("uniform", lambda ns: ns.zeros(3, 2).T.uniform_(), label="transposed")
draw("uniform", lambda ns, x: ns.rand_like(x), positive(3), label="like")
draw("normal", lambda ns: ns.randn(4))
draw("normal", lambda ns: ns.zeros(4, 5).T.normal_(), label="transposed")
draw("normal", lambda ns: ns.zeros(5, 8)[:, ::2].normal_(1, 2), label="every other")
draw("normal", lambda ns: ns.randn_like(ns.zeros(4, 5).T), label="like transposed")
draw("normal", lambda ns: ns.randn(17), label="vectors")
draw("normal", lambda ns: ns.randn((), dtype=ns.float64), label="scalar")
draw("normal", lambda ns: ns.normal(2.0, 3.0, (2, 3)), label="shifted")
draw("normal", lambda ns: ns.randn(3, dtype=ns.complex64), label="complex")
draw("log_normal", lambda ns: ns.zeros(2, 3).log_normal_(0.5, 0.25))
draw("exponential", lambda ns: ns.zeros(2, 3).exponential_(2.0))
draw("cauchy", lambda ns: ns.zeros(2, 3).cauchy_(1.0, 2.0))
draw("geometric", lambda ns: ns.zeros(2, 3).geometric_(0.3))
draw("geometric", lambda ns: ns.zeros(4, dtype=ns.int64).geometric_(0.3), label="integers")
draw("chance", lambda ns: ns.zeros(2, 3).bernoulli_(0.3))
draw("chance", lambda ns: ns.zeros(5, dtype=ns.bool).bernoulli_(), label="booleans")
draw("chance", lambda ns: ns.bernoulli(ns.zeros(5), 0.7), label="function")
draw("randint", lambda ns: ns.randint(10, (2, 3)))
draw("randint", lambda ns: ns.randint(-3, 4, (5,), dtype=ns.int8), label="negative")
draw("randint", lambda ns: ns.randint(0, 2**40, (3,)), label="wide")
draw("randint", lambda ns: ns.zeros(4).random_(2, 9), label="floats")
draw("random", lambda ns: ns.zeros(3, dtype=ns.int64).random_())
draw("random", lambda ns: ns.zeros(3).random_(), label="floats")
draw("randperm", lambda ns: ns.randperm(12))
draw("randperm", lambda ns: ns.randperm(0), label="empty")
draw("randperm", lambda ns: ns.randperm(6, dtype=ns.float32), label="floats")

# -- by tensors ---------------------------------------------------------------------------------

draw("normal_around", lambda ns, m, s: ns.normal(m, s), np.float32(positive(2, 3)),
     np.float32(positive(3)))  # fmt: skip
draw("normal_around", lambda ns, m: ns.normal(m, 2.0), np.float32(positive(17)), label="mean")
draw("normal_around", lambda ns, s: ns.normal(1.0, s), np.float32(positive(4)), label="deviation")
draw("bernoulli", lambda ns, p: ns.bernoulli(p), between(0.1, 0.9, 2, 3))
draw("bernoulli", lambda ns, p: ns.zeros(2, 3).bernoulli_(p), np.float32(between(0.1, 0.9, 2, 3)),
     label="in-place")  # fmt: skip
# Draws go through the weights in memory order.
draw("uniform_where", lambda ns, x: ns.nn.functional.rrelu(x, 0.1, 0.5, True), normal(3, 4),
     smooth=False)  # fmt: skip
draw("multinomial", lambda ns, w: ns.multinomial(w, 2), positive(3, 5), any_layout=False)
draw("multinomial", lambda ns, w: ns.multinomial(w, 1), positive(4), label="one")
draw("multinomial", lambda ns, w: ns.multinomial(w, 7, replacement=True), positive(2, 3),
     label="replacement")  # fmt: skip
draw("poisson", lambda ns, r: ns.poisson(r), positive(2, 3, high=20.0))
draw("binomial", lambda ns, n, p: ns.binomial(n, p), np.full((2, 3), 12.5), between(0.1, 0.4, 2, 3))
draw("standard_gamma", lambda ns, a: standard_gamma(a), np.float32(positive(2, 3)),
     torch=False, smooth=False)  # fmt: skip
