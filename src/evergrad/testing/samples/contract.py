"""Samples of matrix products, and of what reshapes into them."""

import numpy as np

from evergrad.ops.rows.matmul import add_product
from evergrad.testing.samples import complex_normal, integers, normal, sample


def _matmul(*shapes: tuple[int, ...], **options: object) -> None:
    a, b = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    sample("matmul", lambda ns, a, b: ns.matmul(a, b), a, b, reference=np.matmul, **options)  # type: ignore[arg-type]


_matmul((2, 3), (3, 4))
_matmul((3,), (3,), label="dot")
_matmul((2, 3), (3,), label="matrix-vector")
_matmul((3,), (3, 2), label="vector-matrix")
_matmul((2, 3, 4), (2, 4, 2), label="stacks")
_matmul((2, 3, 4), (4, 2), label="stack-matrix")
_matmul((3, 4), (2, 4, 2), label="matrix-stack")
_matmul((2, 2, 3), (3,), label="stack-vector")
_matmul((3,), (2, 3, 2), label="vector-stack")
_matmul((2, 1, 2, 3), (3, 3, 2), label="broadcast")
_matmul((1, 2, 3), (2, 3, 2), label="broadcast-left")
_matmul((2, 2, 3), (1, 3, 2), label="broadcast-right")
_matmul((0, 3), (3, 2), label="no-rows")
_matmul((2, 0), (0, 3), label="empty-sum")
_matmul((0, 2, 3), (3, 2), label="no-stack")
sample("matmul", lambda ns, a, b: a @ b, complex_normal(2, 3), complex_normal(3, 2, seed=2),
       reference=np.matmul, dtypes=(), label="complex")  # fmt: skip
sample("matmul", lambda ns, a, b: a @ b, complex_normal(2, 2, 3), complex_normal(3, 2, seed=2),
       reference=np.matmul, dtypes=(), label="complex-stack")  # fmt: skip
sample("matmul", lambda ns, a, b: a @ b, integers(-9, 9, 2, 3), integers(-9, 9, 3, 4),
       reference=np.matmul, dtypes=(), label="integers")  # fmt: skip
sample("matmul", lambda ns, a, b: a.mT @ b.mT, normal(3, 2), normal(4, 3, seed=1),
       reference=lambda a, b: a.T @ b.T, label="transposed")  # fmt: skip
sample("matmul", lambda ns, a, b: a.expand(2, 3) @ b[::2], normal(3), normal(6, 2, seed=1),
       reference=lambda a, b: np.broadcast_to(a, (2, 3)) @ b[::2], label="strided")  # fmt: skip
sample("matmul", lambda ns, a: a @ a, normal(3, 3), reference=lambda a: a @ a, label="itself")
sample("matmul", lambda ns, c, a, b: ns.addmm(c, a, b, beta=0.5, alpha=-2), normal(4),
       normal(2, 3, seed=1), normal(3, 4, seed=2),
       reference=lambda c, a, b: 0.5 * c - 2 * a @ b, label="addmm")  # fmt: skip
sample("matmul", lambda ns, c, a, b: ns.addbmm(c, a, b), normal(2, 3), normal(2, 2, 2, seed=1),
       normal(2, 2, 3, seed=2), reference=lambda c, a, b: c + (a @ b).sum(0),
       label="addbmm")  # fmt: skip
sample("matmul", lambda ns, a, b: ns.tensordot(a, b, ([-1, 1], [0, 1])), normal(2, 3, 4),
       normal(4, 3, 2, seed=1),
       reference=lambda a, b: np.tensordot(a, b, ([-1, 1], [0, 1])), label="tensordot")  # fmt: skip
sample("matmul", lambda ns, a, b: ns.einsum("bhi,bji->hbj", a, b), normal(2, 3, 2),
       normal(2, 2, 2, seed=1),
       reference=lambda a, b: np.einsum("bhi,bji->hbj", a, b), label="einsum")  # fmt: skip
sample("matmul", lambda ns, a, b, c: ns.einsum("i...,jk,k...->j...", a, b, c), normal(2, 3),
       normal(2, 2, seed=1), normal(2, 3, seed=2),
       reference=lambda a, b, c: np.einsum("i...,jk,k...->j...", a, b, c),
       label="einsum-of-three")  # fmt: skip


def _add_product(*shapes: tuple[int, ...], label: str = "") -> None:
    addend, a, b = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    sample("add_product", lambda ns, c, a, b: add_product(c, a, b, 0.5, -2), addend, a, b,
           reference=lambda c, a, b: 0.5 * c - 2 * a @ b, torch=False, label=label)  # fmt: skip


_add_product((4,), (2, 3), (3, 4))
_add_product((2, 2, 4), (2, 2, 3), (2, 3, 4), label="stacks")
_add_product((2, 1), (2, 0), (0, 4), label="empty-sum")


def _linear(*shapes: tuple[int, ...], label: str = "") -> None:
    x, weight = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    sample("linear", lambda ns, x, w: ns.nn.functional.linear(x, w), x, weight,
           reference=lambda x, w: x @ w.T, label=label)  # fmt: skip


_linear((2, 3), (4, 3))
_linear((3,), (2, 3), label="vector")
_linear((2, 3, 4), (2, 4), label="stack")
_linear((0, 3), (2, 3), label="no-rows")
_linear((2, 0), (3, 0), label="empty-sum")
_linear((2, 3), (0, 3), label="no-outputs")
sample("linear", lambda ns, x, w: ns.nn.functional.linear(x, w), complex_normal(2, 3),
       complex_normal(2, 3, seed=2), reference=lambda x, w: x @ w.T, dtypes=(),
       label="complex")  # fmt: skip
sample("linear", lambda ns, x, w, b: ns.nn.functional.linear(x, w, b), normal(2, 3),
       normal(4, 3, seed=1), normal(4, seed=2), reference=lambda x, w, b: x @ w.T + b,
       label="bias")  # fmt: skip
sample("linear", lambda ns, x, w: ns.nn.functional.linear(x.mT, w.mT), normal(3, 2),
       normal(3, 4, seed=1), reference=lambda x, w: x.T @ w, label="transposed")  # fmt: skip
