"""Decompositions of rows that move elements: into views, joins, lookups and choices, all of which
loops and copies of the compiler cover.

They run after :mod:`.passes.simplify`, which recognises sums of padded slices. A result is
contiguous, as that of the row was: the last step of a chain of views is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.passes.decompose_indexing import RULES as INDEXING
from evergrad.compiler.passes.decompose_indexing import is_index_candidate
from evergrad.compiler.passes.decompose_windows import RULES as WINDOWS
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.op import Op
from evergrad.core.tensor import Tensor, fresh, from_array
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.views import ViewChain
from evergrad.ops.rows.creation.constants import arange, full
from evergrad.ops.rows.elementwise.basic import CLONE, add, mul, sub, where
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.movement.diagonals import TRIL, TRIU
from evergrad.ops.rows.movement.item_layouts import (
    Layout,
    meeting,
    moves,
    offsets,
    pair_runs,
    sources_within,
)
from evergrad.ops.rows.movement.items import (
    ADD_ITEMS,
    EXTEND_ITEMS,
    MUL_ITEMS,
    RESTRICT_ITEMS,
    SUB_ITEMS,
)
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.rearrange import ROLL
from evergrad.ops.rows.movement.slices import PAD_SLICE, SLICE, slice_dim
from evergrad.ops.rows.movement.views import unsqueeze
from evergrad.ops.rows.reduce.item_sums import REPEAT_ITEMS, counts_of
from evergrad.ops.surface.view_forms import UPDATE

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# Neighbouring elements of a slice that fill no cache line.

# For an op: a function of the arguments that returns the replacement, or ``None`` to keep it.
RULES: dict[Op, AnyFunction] = {**WINDOWS}

# Contiguous runs of items that are joined as parts; more are looked up element by element.
_FEW_RUNS = 32
# From so many elements on, a kernel combines two lists of items: below, its launch would take
# longer than the loops of extensions.
_LARGE_PAIR = 1 << 14


def decompose_movement(graph: Graph) -> Graph:
    """The graph with rows that move elements expressed in what loops and copies cover."""
    if not any(eqn.op in RULES or is_index_candidate(eqn) for eqn in graph.equations):
        return graph
    # The gradients of attention: as a part of a join they would be summed in another order.
    of_kernels = {out for eqn in graph.equations if len(eqn.outs) > 1 for out in eqn.outs}

    def replaced(
        trace: Trace, eqn: Equation, args: tuple[object, ...], env: object
    ) -> tuple[Var] | None:
        if eqn.op is PAD_SLICE and eqn.args[0] in of_kernels:
            return None
        return _replaced(trace, eqn, args, env)

    return rewrite(graph, replaced)


def _replaced(
    trace: Trace, eqn: Equation, args: tuple[object, ...], env: object
) -> tuple[Var] | None:
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


def _rule(row: Op) -> Callable[[Callable[..., object]], Callable[..., object]]:
    def enter(function: Callable[..., object]) -> Callable[..., object]:
        RULES[row] = function
        return function

    return enter


def _copy(x: Tensor) -> Tensor:
    return bind(CLONE, x)  # type: ignore[no-any-return]


# -- the same elements in another order ---------------------------------------------------------


@_rule(ROLL)
def _roll(x: Tensor, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Tensor:
    """The end of each dimension before its beginning."""
    for shift, dim in zip(shifts, dims, strict=True):
        extent = x.shape[dim]
        first = -shift % extent
        if first:
            x = cat([slice_dim(x, dim, first, extent), slice_dim(x, dim, 0, first)], dim)
    return _copy(x)


# -- zeros around or between --------------------------------------------------------------------


@_rule(PAD_SLICE)
def _pad(x: Tensor, slices: tuple[Any, ...], shape: tuple[int, ...]) -> Tensor:
    """Zeros before and after the elements of each dimension."""
    if any(not isinstance(part, int) and part[2] != 1 for part in slices):
        chain = ViewChain(((SLICE, {"slices": slices}),))
        result: Tensor = bind(UPDATE, full(shape, 0, dtype=x.dtype), x, chain=chain)
        return result
    for dim, part in enumerate(slices):
        if isinstance(part, int):  # one place of the dimension, which the elements do not have
            x = unsqueeze(x, dim)
            part = part, part + 1, 1
        x = _surrounded(x, dim, part[0], shape[dim] - part[1])
    return _copy(x)


def _surrounded(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    parts = [*_zeros(x, dim, before), x, *_zeros(x, dim, after)]
    return cat(parts, dim) if len(parts) > 1 else x


def _zeros(x: Tensor, dim: int, count: int) -> list[Tensor]:
    """So many zeros along a dimension of ``x``, or none."""
    size = [count if d == dim else n for d, n in enumerate(x.shape)]
    return [full(size, 0, dtype=x.dtype)] if count else []


@_rule(EXTEND_ITEMS)
def _extend_items(x: Tensor, inner: Layout, outer: Layout) -> object:
    """Few runs joined with zeros between; else a lookup for each place of the larger layout."""
    size, runs, _ = moves(inner, outer)
    if runs is not None and len(runs) <= _FEW_RUNS:
        dim, end, parts = x.ndim - 1, 0, []
        for part, whole in runs:
            parts += _zeros(x, dim, whole.start - end)
            parts.append(slice_dim(x, dim, part.start, part.stop))
            end = whole.stop
        parts += _zeros(x, dim, size - end)
        return cat(parts, dim) if len(parts) > 1 else _copy(x)
    if x.ndim != 1:
        return None
    sources = sources_within(inner, outer)
    found = bind(INDEX, x, from_array(sources.clip(0)), start=0, wrap=False)
    return where(from_array(sources >= 0), found, full((), 0, dtype=x.dtype))


def _pair_rule(function: Callable[..., object]) -> Callable[..., object]:
    """Small items of few runs as extensions, which loops join with the operation; others have a
    kernel."""

    def rule(a: Tensor, b: Tensor, inner: tuple[Layout, Layout], outer: Layout) -> object:
        size = offsets(outer)[-1]
        if size >= _LARGE_PAIR or a.ndim != 1 or len(pair_runs(*inner, outer)) > _FEW_RUNS:
            return None
        parts = [_placed(x, own, outer) for x, own in zip((a, b), inner, strict=True)]
        return function(*parts) if all(part is not None for part in parts) else None

    return rule


def _placed(x: Tensor, own: Layout, outer: Layout) -> object:
    """Items in other shapes: the parts that these have, in zeros."""
    both = meeting(own, outer)
    if not offsets(both)[-1]:
        return None
    found = x if both == own else _restrict_items(x, both, own)
    return found if both == outer else _extend_items(found, both, outer)


RULES.update({ADD_ITEMS: _pair_rule(add), SUB_ITEMS: _pair_rule(sub), MUL_ITEMS: _pair_rule(mul)})


@_rule(REPEAT_ITEMS)
def _repeat_items(x: Tensor, layout: Layout) -> object:
    """A lookup of each element's number."""
    owners = np.repeat(np.arange(len(layout)), counts_of(layout))
    return bind(INDEX, x, from_array(owners), start=0, wrap=False) if x.ndim == 1 else None


@_rule(RESTRICT_ITEMS)
def _restrict_items(x: Tensor, inner: Layout, outer: Layout) -> object:
    """Few runs joined; else a lookup of the elements that the smaller layout has."""
    _, runs, places = moves(inner, outer)
    if runs is not None and len(runs) <= _FEW_RUNS:
        dim = x.ndim - 1
        parts = [slice_dim(x, dim, whole.start, whole.stop) for _, whole in runs]
        return cat(parts, dim) if len(parts) > 1 else _copy(parts[0])
    if x.ndim != 1:
        return None
    return bind(INDEX, x, from_array(places), start=0, wrap=False)


def _triangle(is_lower: bool) -> Callable[..., object]:
    def rule(x: Tensor, diagonal: int) -> Tensor:
        height, width = x.shape[-2:]
        rows = unsqueeze(arange(height, dtype=dtypes.int64), 1)
        columns = arange(width, dtype=dtypes.int64)
        apart = columns - rows
        inside = apart <= diagonal if is_lower else apart >= diagonal
        return where(inside, x, full((), 0, dtype=x.dtype))

    return rule


RULES[TRIL], RULES[TRIU] = _triangle(True), _triangle(False)
