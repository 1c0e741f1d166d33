"""Decompositions of rows that move elements: into views, joins, lookups and choices, all of which
loops and copies of the compiler cover.

They run after :mod:`.passes.simplify`, which recognises sums of padded slices. A result is
contiguous, as that of the row was: the last step of a chain of views is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.passes.decompose_indexing import RULES as INDEXING
from evergrad.compiler.passes.decompose_windows import RULES as WINDOWS
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.op import Op
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.creation.constants import arange, full
from evergrad.ops.rows.elementwise.basic import CLONE, where
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.movement.diagonals import TRIL, TRIU
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.rearrange import FLIP, ROLL
from evergrad.ops.rows.movement.slices import PAD_SLICE, slice_dim
from evergrad.ops.rows.movement.views import movedim, unsqueeze

# For an op: a function of the arguments that returns the replacement, or ``None`` to keep it.
RULES: dict[Op, Callable[..., Any]] = {**WINDOWS}


def decompose_movement(graph: Graph) -> Graph:
    """The graph with rows that move elements expressed in what loops and copies cover."""
    if not any(eqn.op in RULES or eqn.op in INDEXING for eqn in graph.equations):
        return graph
    # The gradients of attention: as a part of a join they would be summed in another order.
    of_kernels = {out for eqn in graph.equations if len(eqn.outs) > 1 for out in eqn.outs}

    def replaced(trace: Trace, eqn: Equation, args: tuple[object, ...], env: object) -> Any:
        if eqn.op is PAD_SLICE and eqn.args[0] in of_kernels:
            return None
        return _replaced(trace, eqn, args, env)

    return rewrite(graph, replaced)


def _replaced(trace: Trace, eqn: Equation, args: tuple[object, ...], env: object) -> Any:
    rules = [table[eqn.op] for table in (INDEXING, RULES) if eqn.op in table]
    types = [a.type for a in (*args, *eqn.outs) if isinstance(a, Var)]
    if not rules or not all(t.dtype in KINDS and t.numel for t in types):
        return None
    operands = [fresh(a, a.type) if isinstance(a, Var) else a for a in args]
    for rule in rules:
        found = rule(*operands, **eqn.attrs)
        if found is not None:
            return (found._value,)
    return None


def _rule(row: Op) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., object]) -> Callable[..., Any]:
        RULES[row] = function
        return function

    return enter


def _copy(x: Tensor) -> Tensor:
    return bind(CLONE, x)  # type: ignore[no-any-return]


# -- the same elements in another order ---------------------------------------------------------


@_rule(FLIP)
def _flip(x: Tensor, dims: tuple[int, ...]) -> Any:
    """A lookup of the slices of each dimension from the last to the first."""
    if not dims:
        return _copy(x)
    for dim in dims:
        extent = x.shape[dim]
        places = arange(extent - 1, -1, -1, dtype=dtypes.int64)
        x = movedim(bind(INDEX, movedim(x, dim, 0), places, start=0, wrap=False), 0, dim)
    return _copy(x)


@_rule(ROLL)
def _roll(x: Tensor, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    """The end of each dimension before its beginning."""
    for shift, dim in zip(shifts, dims, strict=True):
        extent = x.shape[dim]
        first = -shift % extent
        if first:
            x = cat([slice_dim(x, dim, first, extent), slice_dim(x, dim, 0, first)], dim)
    return _copy(x)


# -- zeros around or between --------------------------------------------------------------------


@_rule(PAD_SLICE)
def _pad(x: Tensor, slices: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """Zeros before and after the elements of each dimension."""
    if any(not isinstance(part, int) and part[2] != 1 for part in slices):
        return None
    for dim, part in enumerate(slices):
        if isinstance(part, int):  # one place of the dimension, which the elements do not have
            x = unsqueeze(x, dim)
            part = part, part + 1, 1
        x = _surrounded(x, dim, part[0], shape[dim] - part[1])
    return _copy(x)


def _surrounded(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    def zeros(count: int) -> list[Tensor]:
        size = [count if d == dim else n for d, n in enumerate(x.shape)]
        return [full(size, 0, dtype=x.dtype)] if count else []

    parts = [*zeros(before), x, *zeros(after)]
    return cat(parts, dim) if len(parts) > 1 else x


def _triangle(is_lower: bool) -> Callable[..., Any]:
    def rule(x: Tensor, diagonal: int) -> Any:
        height, width = x.shape[-2:]
        rows = unsqueeze(arange(height, dtype=dtypes.int64), 1)
        columns = arange(width, dtype=dtypes.int64)
        apart = columns - rows
        inside = apart <= diagonal if is_lower else apart >= diagonal
        return where(inside, x, full((), 0, dtype=x.dtype))

    return rule


RULES[TRIL], RULES[TRIU] = _triangle(True), _triangle(False)


# -- along a dimension that is not the first ----------------------------------------------------


@_rule(INDEX)
def _index(x: Tensor, *indices: Tensor, start: int, wrap: bool) -> Any:
    """Slices along a dimension: those along the first, with that dimension in front."""
    if len(indices) != 1 or not start or indices[0].ndim != 1 or not _is_index(indices[0]):
        return None
    found = bind(INDEX, movedim(x, start, 0), indices[0], start=0, wrap=wrap)
    return _copy(movedim(found, 0, start))


def _is_index(index: Tensor) -> bool:
    return index.dtype is dtypes.int64
