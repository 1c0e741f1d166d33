"""Random programs: a recipe is a list of (step, choices), run on any tensors.

What a step does is decided by its choices modulo what is possible at that point, so that every list
of numbers is a program and smaller numbers make simpler ones. Steps that are not continuous (masks,
indices, casts to few bits) look only at arguments: the last bit of a computed value may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from hypothesis import strategies as st

import evergrad as eg
from evergrad.nn import functional as F

Step = Callable[["Kitchen", Any, list[int]], Any]
STEPS: dict[str, Step] = {}
SHAPES = ((4,), (3, 4), (2, 3, 4), (1, 4), (3, 1), (), (0, 4), (2, 0, 3), (5, 1, 3), (40, 130))
_LARGEST = 20_000


def step(function: Step) -> Step:
    STEPS[function.__name__] = function
    return function


class Kitchen:
    """A program that runs: its arguments, all values so far, and a tensor of the outside."""

    def __init__(self, arguments: Sequence[Any], outside: Any) -> None:
        self.arguments = arguments
        self.values = list(arguments)
        self.outside = outside

    def run(self, recipe: Sequence[tuple[str, int, list[int]]]) -> list[Any]:
        for name, which, choices in recipe:
            made = STEPS[name](self, self.values[which % len(self.values)], choices)
            if made is not None and made.numel() <= _LARGEST and made.ndim <= 4:
                self.values.append(made)
        return self.values[len(self.arguments) :] or [self.values[0] * 1]

    def partner(self, x: Any, number: int) -> Any:
        """A value that broadcasts with another."""
        fitting = [v for v in self.values if _broadcasts(v.shape, x.shape)]
        return fitting[number % len(fitting)]


def _broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    pairs = zip(reversed(tuple(a)), reversed(tuple(b)), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


recipes = st.lists(
    st.tuples(
        st.deferred(lambda: st.sampled_from(sorted(STEPS))),
        st.integers(0, 12),
        st.lists(st.integers(0, 11), min_size=3, max_size=3),
    ),
    min_size=1,
    max_size=9,
)

# -- elementwise ----------------------------------------------------------------------------------

UNARY: list[Callable[[Any], Any]] = [
    lambda x: x * 0.5, lambda x: x.tanh(), lambda x: x.sigmoid(), lambda x: x.sin(),
    lambda x: (x.abs() + 1).log(), lambda x: (x * x + 0.1).sqrt(), lambda x: (-x * x).exp(),
    lambda x: 1 / (x * x + 1), F.gelu, F.softplus, lambda x: x.clamp(-0.7, 0.9), lambda x: x.erf(),
]  # fmt: skip

BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y, lambda x, y: x * y.tanh(), lambda x, y: x - 2 * y,
    lambda x, y: x / (y * y + 1), lambda x, y: eg.hypot(x, y + 3), lambda x, y: x.lerp(y, 0.3),
]  # fmt: skip


@step
def unary(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    return UNARY[c[0] % len(UNARY)](x)


@step
def binary(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    return BINARY[c[0] % len(BINARY)](x, kitchen.partner(x, c[1]))


@step
def choose(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    masks = [a for a in kitchen.arguments if _broadcasts(a.shape, x.shape)]
    if not masks:
        return None
    mask = masks[c[0] % len(masks)] > 0.1
    other = kitchen.partner(x, c[1])
    if not _broadcasts(other.shape, mask.shape):
        other = 0.25
    return x.masked_fill(mask, 0.5) if c[2] % 2 and x.ndim else eg.where(mask, x, other)


# -- folds ----------------------------------------------------------------------------------------

FOLDS: list[Callable[[Any, tuple[int, ...], bool], Any]] = [
    lambda x, d, k: x.sum(d, k), lambda x, d, k: x.mean(d, k), lambda x, d, k: x.logsumexp(d, k),
    lambda x, d, k: x.amax(d, k), lambda x, d, k: x.amin(d, k),
    lambda x, d, k: (x * x + 0.01).sum(d, k).sqrt(),
]  # fmt: skip


@step
def fold(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    if not x.ndim or not x.numel():
        return x.sum()
    count = 1 + c[1] % x.ndim
    dims = tuple((c[2] + d) % x.ndim for d in range(count))
    return FOLDS[c[0] % len(FOLDS)](x, dims, bool(c[0] % 2))


@step
def along(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    if not x.ndim or not x.numel():
        return None
    dim = c[1] % x.ndim
    functions = [
        lambda: x.softmax(dim), lambda: x.log_softmax(dim), lambda: x.cumsum(dim),
        lambda: F.layer_norm(x, x.shape[dim:], eps=1e-2), lambda: x.flip(dim),
        lambda: x.roll(c[2], dim), lambda: F.normalize(x, dim=dim, eps=1e-2),
    ]  # fmt: skip
    return functions[c[0] % len(functions)]()


# -- shapes ---------------------------------------------------------------------------------------


@step
def reshape(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    ways: list[Callable[[], Any]] = [
        lambda: x.reshape(-1), lambda: x.reshape(1, *x.shape), lambda: x.unsqueeze(-1),
        lambda: x.squeeze(), lambda: x.reshape(x.shape[0], prod(x.shape[1:])) if x.ndim else x,
        lambda: x.transpose(0, -1) if x.ndim else x, lambda: x.permute(*reversed(range(x.ndim))),
        lambda: x.expand(2, *x.shape), lambda: x.contiguous(), lambda: x.mT if x.ndim > 1 else x,
    ]  # fmt: skip
    return ways[c[0] % len(ways)]()


@step
def slice_(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    if not x.ndim:
        return None
    dim = c[0] % x.ndim
    index: list[Any] = [slice(None)] * x.ndim
    index[dim] = slice(c[1] % 3, None, 1 + c[2] % 2)
    return x[tuple(index)]


@step
def join(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    if not x.ndim:
        return eg.stack([x, x * 2])
    dim = c[0] % x.ndim
    parts = [p * (n + 1) for n, p in enumerate(x.split(1 + c[1], dim))]
    other = UNARY[c[2] % len(UNARY)](x)
    return eg.stack([x, other], dim) if c[2] % 3 == 0 else eg.cat([*parts, other], dim)


@step
def product(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    if x.ndim < 2:
        return x * 2
    ways = [
        lambda: x @ x.mT * 0.1, lambda: x.mT @ x * 0.1,
        lambda: F.linear(x, x.reshape(-1, x.shape[-1])),
        lambda: eg.einsum("...i,...j->...ij", x, x)[..., 0],
    ]  # fmt: skip
    return ways[c[0] % len(ways)]()


# -- writing and looking up -----------------------------------------------------------------------


@step
def write(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    own = x.clone()
    if not own.ndim:
        return own.mul_(2).add_(x)
    dim = c[0] % own.ndim
    half = own.narrow(dim, 0, (own.shape[dim] + 1) // 2)
    ways: list[Callable[[], Any]] = [
        lambda: half.mul_(x.sum() * 0.01 + 1), lambda: half.copy_(half.tanh()),
        lambda: own.select(dim, -1).zero_() if own.shape[dim] else own,
        lambda: own.add_(own.detach() * 0.5), lambda: half.sub_(0.25),
    ]  # fmt: skip
    ways[c[1] % len(ways)]()
    return own


@step
def write_outside(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    """The outside tensor has the shape (3, 4)."""
    value = x.detach()
    part = kitchen.outside[c[0] % 3] if c[1] % 2 else kitchen.outside
    pairs = zip(reversed(value.shape), reversed(part.shape), strict=False)
    if value.ndim <= part.ndim and all(m in (1, n) for m, n in pairs):
        with eg.no_grad():
            part.mul_(0.5).add_(value)
    return kitchen.outside * 2


@step
def look_up(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    if not x.ndim or not x.numel():
        return None
    rows = x.shape[0]
    index = eg.tensor([n % rows for n in (c[0], c[1], c[2], c[0])])
    shaped = index.reshape(2, 2) % rows
    last = eg.zeros((*x.shape[:-1], 1), dtype=eg.int64) + c[1] % x.shape[-1]
    ways: list[Callable[[], Any]] = [
        lambda: x[index], lambda: x[shaped], lambda: x.index_select(0, index),
        lambda: x.gather(-1, last), lambda: x[index, ..., 0] if x.ndim > 1 else x[index],
        lambda: F.embedding(shaped, x) if x.ndim == 2 else x[shaped],
        lambda: x.index_add(0, index, x[index] * 0.5), lambda: x.scatter_add(-1, last, x[..., :1]),
    ]  # fmt: skip
    return ways[(c[0] + c[2]) % len(ways)]()


@step
def narrow_types(kitchen: Kitchen, x: Any, c: list[int]) -> Any:
    """Arguments in types of few bits and back."""
    given = kitchen.arguments[c[0] % len(kitchen.arguments)]
    kinds = (eg.bfloat16, eg.float16, eg.int64, eg.bool, eg.int32, eg.uint8, eg.int16)
    kind = kinds[c[1] % len(kinds)]
    small = (given.detach().abs() * 3 if kind in (eg.uint8,) else given.detach() * 3).to(kind)
    if kind is not eg.bool:
        small = small + small if c[2] % 2 else small * 2
    return small.to(eg.float64)
