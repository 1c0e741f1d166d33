"""Index maps: along which dimensions of a group's iteration domain the dimensions of a value run.

:func:`add_index_map` enters that of an equation into a group if it fits the domain; which group an
equation joins is decided in :mod:`.schedule.fusion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from evergrad.compiler.schedule.nodes import Group
from evergrad.core.row_facts import Indexing
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.movement.views import EXPAND, RESHAPE

# Blocks of fewer outer iterations, or of fewer inner ones, are not reduced block by block.
_WIDE = 16


def index_map_through_view(eqn: Equation, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The index map of a view that only adds, drops or repeats unit dimensions."""
    source, target = eqn.args[0].type.shape, eqn.outs[0].type.shape
    if eqn.op is EXPAND:
        return (-1,) * (len(target) - len(source)) + axes
    if eqn.op is RESHAPE:
        kept = [a for a, n in zip(axes, source, strict=True) if n != 1]
        if [n for n in source if n != 1] != [n for n in target if n != 1]:
            return None
        return tuple([kept.pop(0) if n != 1 else -1 for n in target])
    return None


def domain_of(eqn: Equation) -> Shape:
    """The iteration domain of an equation by itself."""
    source: Var = eqn.args[0] if eqn.op.combine or eqn.op.indexing is Indexing.PICK else eqn.outs[0]
    return source.type.shape


def add_index_map(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    """Enter the index map of an equation into a group, if there is one. ``inside`` are the maps of
    the arguments that the group computes."""
    if eqn.op.combine:
        return _map_reduction(group, eqn, inside[0])
    if eqn.op.indexing is Indexing.PICK:
        return _map_element_lookup(group, eqn, inside)
    shape = eqn.outs[0].type.shape
    if eqn.op.indexing is Indexing.LOOKUP:
        return _map_slice_lookup(group, eqn, inside)
    axes = _aligned(group, shape, inside)
    if axes is None:
        return False
    if eqn.op.indexing is Indexing.SPREAD:
        last = frozenset((len(shape) - 1,))
        if len(shape) != len(group.shape) or group.varying(axes) != group.dims:
            return False
        if group.inner not in (None, last):
            return False
        group.inner = last
    if not _is_full_or_outer(group, axes):
        return False
    group.axes[eqn.outs[0]] = group.maps[id(eqn)] = axes
    return True


def _is_full_or_outer(group: Group, axes: tuple[int, ...]) -> bool:
    varying = group.varying(axes)
    return varying == group.dims or (
        group.inner is not None and varying == group.dims - group.inner
    )


def _aligned(
    group: Group, shape: Shape, inside: Sequence[tuple[int, ...] | None]
) -> tuple[int, ...] | None:
    """The index map of a value of this shape that agrees with those of its operands; ``None`` if
    there is none, or dimensions would be permuted."""
    rank = len(shape)
    axes: list[int | None] = [None] * rank
    for given in inside:
        if given is None:
            continue
        for dim, axis in enumerate(given, rank - len(given)):
            if axis < 0:
                continue
            if axes[dim] not in (None, axis):
                return None
            axes[dim] = axis
    taken = {a for a in axes if a is not None}
    limit = len(group.shape)
    found: list[int] = []  # from the last dimension on
    for known, extent in zip(reversed(axes), reversed(shape), strict=True):
        if known is not None:
            limit = known
        elif extent != 1:
            fitting = [d for d in range(limit) if d not in taken and group.shape[d] == extent]
            if not fitting:
                return None
            limit = fitting[-1]
            taken.add(limit)
        found.append(-1 if known is None and extent == 1 else limit)
    running = [a for a in reversed(found) if a >= 0]
    return tuple(reversed(found)) if running == sorted(set(running)) else None


def _map_reduction(group: Group, eqn: Equation, inside: tuple[int, ...] | None) -> bool:
    shape = eqn.args[0].type.shape
    axes = inside if inside is not None else _aligned(group, shape, ())
    if axes is None or _is_broadcast(axes, shape):
        return False
    varying = group.varying(axes)
    reduced = group.varying([axes[d] for d in eqn.attrs["dims"]])
    kept = tuple(
        -1 if d in eqn.attrs["dims"] else a
        for d, a in enumerate(axes)
        if eqn.attrs["keepdim"] or d not in eqn.attrs["dims"]
    )
    out = eqn.outs[0]
    full = varying == group.dims
    if not full and (group.inner is None or varying != group.dims - group.inner):
        return False
    if not reduced and group.dims:
        return False  # nothing is reduced: the dimensions are of extent 1
    if full and reduced != group.dims:
        if group.inner is None:
            group.inner = _inner_dims(group, reduced)
        if reduced == group.inner:
            pass  # complete after the inner loops
        elif _is_outer_reduction(group, reduced):
            group.outer_reductions.add(out)
            group.blocks = max(group.blocks, _extent(group, group.dims - group.inner - reduced))
        else:
            return False
    elif full:
        if group.inner is not None and group.inner == group.dims:
            pass  # there is one outer iteration
        else:
            group.outer_reductions.add(out)
    elif reduced == varying:
        group.outer_reductions.add(out)
    else:
        return False
    group.maps[id(eqn)] = axes
    group.axes[out] = kept
    return True


def _is_broadcast(axes: Sequence[int], shape: Shape) -> bool:
    """Whether a value repeats elements along a dimension: each counts as often in a reduction, and
    has a result of its own each time."""
    return any(axis < 0 and extent != 1 for axis, extent in zip(axes, shape, strict=True))


def _inner_dims(group: Group, reduced: frozenset[int]) -> frozenset[int]:
    """The inner dimensions of a group that begins with a reduction: those behind the reduced ones,
    if there are any, along which outer reductions are then contiguous; otherwise the reduced."""
    behind = frozenset(d for d in group.dims - reduced if d > max(reduced))
    before = group.dims - reduced - behind
    if not behind or any(d > min(reduced) for d in before):
        return reduced
    if before and not (_extent(group, behind) >= _WIDE <= _extent(group, reduced)):
        return reduced
    return behind


def _is_outer_reduction(group: Group, reduced: frozenset[int]) -> bool:
    """Whether a reduction is over outer dimensions alone, over all or over blocks of them."""
    assert group.inner is not None
    if reduced & group.inner:
        return False
    before = group.dims - group.inner - reduced
    if not before:
        return True
    return max(before) < min(reduced | group.inner) and _extent(group, reduced) >= _WIDE


def _extent(group: Group, dims: frozenset[int]) -> int:
    return prod(group.shape[d] for d in dims)


def _map_element_lookup(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    source, index = eqn.args[0].type.shape, inside[1]
    axes = inside[0] if inside[0] is not None else _aligned(group, source, ())
    if axes is None or _is_broadcast(axes, source) or group.varying(axes) != group.dims:
        return False
    last = frozenset((axes[-1],)) & group.dims
    if not last or group.inner not in (None, last):
        return False
    if index is not None and group.varying(index) & last:
        return False
    group.inner = last
    group.maps[id(eqn)] = axes
    group.axes[eqn.outs[0]] = (*axes[:-1], -1)
    return True


def _map_slice_lookup(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    if inside[0] is not None or inside[1] is not None:
        return False  # the table and the indices are read from memory
    shape = eqn.outs[0].type.shape
    end = eqn.attrs["start"] + len(eqn.args[1].type.shape)
    axes = _aligned(group, shape, ())
    if axes is None or group.varying(axes) != group.dims:
        return False
    inner = group.varying(axes[end:])
    if not inner or group.inner not in (None, inner):
        return False
    group.inner = inner
    group.axes[eqn.outs[0]] = group.maps[id(eqn)] = axes
    return True
