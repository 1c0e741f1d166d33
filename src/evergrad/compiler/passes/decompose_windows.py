"""Decompositions of rows that lay out sliding windows, and of their transposes, which add windows
up: into views, joins and sums.

Windows whose extent is several steps are added up step by step: block j of window i is block i + j
of the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.compiler.codegen.ir_builder import is_native
from evergrad.compiler.kernels.pooling.uneven import UNEVEN_SUM, Bounds
from evergrad.compiler.passes.decompose_depth import padded_dim
from evergrad.core.bind import bind
from evergrad.core.op import Op
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor, from_array
from evergrad.ops.rows.elementwise.basic import CLONE
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.strided import FOLD, UNFOLD
from evergrad.ops.rows.movement.views import movedim, permute, reshape
from evergrad.ops.rows.pool.geometry import Windows
from evergrad.ops.rows.pool.windows import (
    ADAPTIVE_MEAN,
    ADAPTIVE_SPREAD,
    COL2IM,
    IM2COL,
    adaptive_bounds,
    window_sizes,
)

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# Windows of more steps are left to NumPy: there is an equation for each.
_MOST_STEPS = 16


def _added_up(windows: Tensor, step: int, extent: int) -> Tensor:
    """[..., count, size] to [..., extent]."""
    *lead, count, size = windows._type.shape
    last = len(lead) + 1
    steps = -(-size // step)
    windows = padded_dim(windows, last, 0, steps * step - size)
    total: Any = None
    for j in range(steps):
        block = slice_dim(windows, last, j * step, (j + 1) * step)
        placed = padded_dim(block, last - 1, j, steps - 1 - j)
        total = placed if total is None else total + placed
    covered = (count + steps - 1) * step
    flat = reshape(total if steps > 1 else bind(CLONE, total), (*lead, covered))
    return padded_dim(flat, last - 1, 0, extent - covered)


def _fold(g: Tensor, dim: int, size: int, step: int, shape: Shape) -> Tensor | None:
    if size > _MOST_STEPS * step:
        return None
    total = _added_up(movedim(g, dim, g.ndim - 2), step, shape[dim])
    return bind(CLONE, movedim(total, len(shape) - 1, dim))  # type: ignore[no-any-return]


def _is_dense(windows: Windows) -> bool:
    return all(d == 1 for d in windows.dilation)


def _im2col(x: Tensor, windows: Windows) -> Tensor | None:
    """A view of the padded tensor, copied."""
    if not _is_dense(windows):
        return None
    rank = len(windows.size)
    lead = x.ndim - rank
    for n in range(rank):
        x = padded_dim(x, lead + n, *windows.padding[n])
    for n in range(rank):
        x = bind(UNFOLD, x, dim=lead + n, size=windows.kernel[n], step=windows.stride[n])
    counts, kernel = range(lead, lead + rank), range(lead + rank, lead + 2 * rank)
    return bind(CLONE, permute(x, (*range(lead), *kernel, *counts)))  # type: ignore[no-any-return]


def _col2im(columns: Tensor, windows: Windows) -> Tensor | None:
    """Windows are added up in one dimension after the other, the last one first."""
    steps = zip(windows.kernel, windows.stride, strict=True)
    if not _is_dense(windows) or any(size > _MOST_STEPS * step for size, step in steps):
        return None
    rank = len(windows.size)
    lead = columns.ndim - 2 * rank
    x = columns
    for n in reversed(range(rank)):
        # [..., *kernel to n, *counts to n, *sizes behind]: kernel and count of n to the end
        x = movedim(x, (lead + 2 * n + 1, lead + n), (x.ndim - 2, x.ndim - 1))
        x = _added_up(x, windows.stride[n], windows.padded[n])
        x = padded_dim(x, x.ndim - 1, *(-p for p in windows.padding[n]))
        x = movedim(x, x.ndim - 1, lead + 2 * n)
    return bind(CLONE, x)  # type: ignore[no-any-return]


def _uneven_sums(x: Tensor, bounds: dict[int, Bounds]) -> Tensor:
    """Sums over windows along some dimensions, one after the other."""
    for dim, spans in bounds.items():
        if spans != tuple((i, i + 1) for i in range(x._type.shape[dim])):
            x = bind(UNEVEN_SUM, x, dim=dim, bounds=spans)
    return x


def _adaptive_mean(x: Tensor, count: Shape) -> object:
    if not is_native(x.dtype):
        return None
    lead, size = x.ndim - len(count), x._type.shape[-len(count) :]
    spans = [tuple(adaptive_bounds(n, c)) for n, c in zip(size, count, strict=True)]
    found = _uneven_sums(x, dict(enumerate(spans, lead)))
    return found / from_array(window_sizes(size, count, x.dtype.np))


def _adaptive_spread(g: Tensor, size: Shape) -> object:
    """The windows that an element is in are a range as well."""
    if not is_native(g.dtype):
        return None
    lead, count = g.ndim - len(size), g._type.shape[-len(size) :]
    g = g / from_array(window_sizes(size, count, g.dtype.np))
    spans = [_windows_of(n, adaptive_bounds(n, c)) for n, c in zip(size, count, strict=True)]
    return _uneven_sums(g, dict(enumerate(spans, lead)))


def _windows_of(extent: int, bounds: list[tuple[int, int]]) -> Bounds:
    """The ranges of windows that have each element."""
    found = []
    for place in range(extent):
        inside = [i for i, (begin, end) in enumerate(bounds) if begin <= place < end]
        found.append((inside[0], inside[-1] + 1))
    return tuple(found)


RULES: dict[Op, AnyFunction] = {
    FOLD: _fold,
    IM2COL: _im2col,
    COL2IM: _col2im,
    ADAPTIVE_MEAN: _adaptive_mean,
    ADAPTIVE_SPREAD: _adaptive_spread,
}
