"""Values for the tests of the algebra."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import evergrad as eg
from evergrad import ragged

# All shapes up to rank 3 with extents from 0 to 3.
SHAPES = [s for rank in range(4) for s in itertools.product(range(4), repeat=rank)]
OPERATIONS = (
    "add", "sub", "mul", "convolve", "correlate", "kron", "inner", "stack", "windows",
)  # fmt: skip

Shape = tuple[int, ...]


def random(shape: Shape, seed: int = 0) -> eg.Tensor:
    return eg.tensor(np.random.default_rng([seed, *shape]).standard_normal(shape))


def applied(name: str) -> Any:
    """An operation on two values as a function of dense tensors."""

    def call(*tensors: eg.Tensor) -> eg.Tensor:
        values = list(map(ragged.Tensor, tensors))
        if name == "windows":  # of two and, at the end, of what is left
            stacks = ragged.windows([*values, values[0]], 2)
            return eg.cat([found.dense.reshape(found.numel()) for found in stacks])
        found = ragged.stack(values) if name == "stack" else getattr(ragged, name)(*values)
        return found.dense if isinstance(found, ragged.Tensor) else found

    return call


# Integers: sums and products are exact, whichever way they are computed.
shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
values = shapes.flatmap(
    lambda shape: arrays.arrays(np.int64, shape, elements=st.integers(-9, 9))
).map(ragged.tensor)


def widened(value: ragged.Tensor, extra: Shape) -> ragged.Tensor:
    """Another representative: with zeros behind it, and dimensions of extent 1."""
    shape = tuple(n + m for n, m in itertools.zip_longest(value.shape, extra, fillvalue=1))[
        : max(value.ndim, len(extra))
    ]
    return ragged.Tensor(value.extended(shape))


def by_definition(name: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> dict[Shape, Any]:
    """The elements of a result that are not zero, from those of the operands."""
    x, y = entries(a), entries(b)
    out: dict[Shape, Any] = {}
    for i, p in x.items():
        for j, q in y.items():
            if name == "convolve":
                at = normal(tuple(map(sum, itertools.zip_longest(i, j, fillvalue=0))))
            elif name == "correlate":
                lag = tuple(m - n for m, n in itertools.zip_longest(i, j, fillvalue=0))
                if min(lag, default=0) < 0:
                    continue
                at = normal(lag)
            elif i == j:
                at = i
            else:
                continue
            out[at] = out.get(at, 0) + p * q
    if name in ("add", "sub"):
        sign = 1 if name == "add" else -1
        out = {at: x.get(at, 0) + sign * y.get(at, 0) for at in {*x, *y}}
    return {at: value for at, value in out.items() if value}


def normal(index: Shape) -> Shape:
    while index and not index[-1]:
        index = index[:-1]
    return index


def entries(array: np.ndarray[Any, Any]) -> dict[Shape, Any]:
    return {normal(at): array[at] for at in np.ndindex(array.shape) if array[at]}
