"""Samples of convolutions and correlations of items of any shapes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from evergrad.ops.rows.convolve import Shapes, convolve_items, correlate_items
from evergrad.testing.samples import Array, complex_normal, integers, normal, sample


def _expected(a: Array, b: Array, shape: tuple[int, ...], sign: int) -> Array:
    """By the definition, element by element, of arrays of one rank."""
    out = np.zeros(shape, np.result_type(a, b))
    for k in np.ndindex(shape):
        for i in np.ndindex(b.shape):
            at = tuple(p - sign * q for p, q in zip(k, i, strict=True))
            if all(0 <= p < n for p, n in zip(at, a.shape, strict=True)):
                out[k] += a[at] * b[i]
    return out


def _reference(
    a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes, sign: int
) -> Callable[[Array, Array], Array]:
    def cut(x: Array, shapes: Shapes) -> list[Array]:
        ends = np.cumsum([0, *(math.prod(s) for s in shapes)])
        parts = zip(ends[:-1], ends[1:], shapes, strict=True)
        return [x[begin:end].reshape(*s, *(1,) * (2 - len(s))) for begin, end, s in parts]

    def reference(a: Array, b: Array) -> Array:
        parts = [
            _expected(x, y, (*shape, *(1,) * (2 - len(shape))), sign).reshape(-1)
            for x, y, shape in zip(cut(a, a_shapes), cut(b, b_shapes), out_shapes, strict=True)
        ]
        return np.concatenate(parts)

    return reference


def _enter(
    a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes, label: str,
    values: Callable[..., Array] = normal, dtypes: tuple[str, ...] = ("float32",),
) -> None:  # fmt: skip
    a = values(sum(map(math.prod, a_shapes)))
    b = values(sum(map(math.prod, b_shapes)), seed=2)
    for row, function, sign in (
        ("convolve_items", convolve_items, 1),
        ("correlate_items", correlate_items, -1),
    ):
        sample(row, lambda ns, a, b, f=function: f(a, b, a_shapes, b_shapes, out_shapes), a, b,
               reference=_reference(a_shapes, b_shapes, out_shapes, sign), torch=False,
               dtypes=dtypes, label=label)  # fmt: skip


_enter(((3,),), ((2,),), ((4,),), "full")
_enter(((2,),), ((3,),), ((2,),), "cut")
_enter(((3,),), ((2,),), ((7,),), "beyond")
_enter(((2, 2),), ((2, 3),), ((3, 4),), "matrices")
_enter(((3,),), ((2, 2),), ((4, 2),), "two-ranks")
_enter(((3,), (1,), (2,)), ((2,), (4,), (1,)), ((4,), (4,), (2,)), "items")
_enter(((3,), (0,)), ((0,), (2,)), ((2,), (1,)), "empty-items")
_enter(((3,),), ((2,),), ((4,),), "complex", values=complex_normal, dtypes=())
_enter(((3,),), ((2,),), ((4,),), "integers", dtypes=(),
       values=lambda n, seed=0: integers(-9, 9, n, seed=seed))  # fmt: skip
