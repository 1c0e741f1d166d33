"""Where an equation stands in the space of a group: along which of its dimensions it runs.

:func:`fit` enters an equation into a group if it runs over the same space; who joins whom is
decided in :mod:`.schedule.fusion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from evergrad.compiler.schedule.nodes import Group
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Var

FOLDS = ("sum", "amax", "amin", "any", "all")
# Blocks of fewer rows than this, or of shorter rows, are not folded block by block.
_WIDE = 16


def through_view(eqn: Equation, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of a view that only adds, drops or repeats unit dimensions."""
    source, target = eqn.args[0].type.shape, eqn.outs[0].type.shape
    if eqn.op.name == "expand":
        return (-1,) * (len(target) - len(source)) + axes
    if eqn.op.name == "reshape":
        kept = [a for a, n in zip(axes, source, strict=True) if n != 1]
        if [n for n in source if n != 1] != [n for n in target if n != 1]:
            return None
        return tuple([kept.pop(0) if n != 1 else -1 for n in target])
    return None


def space_of(eqn: Equation) -> Shape:
    """The space of indices an equation runs over by itself."""
    source: Var = eqn.args[0] if eqn.op.name in (*FOLDS, "gather") else eqn.outs[0]
    return source.type.shape


def fit(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    """Enter an equation's axes into a group, if it runs over the same space."""
    if eqn.op.name in FOLDS:
        return _fit_fold(group, eqn, inside[0])
    if eqn.op.name == "gather":
        return _fit_pick(group, eqn, inside)
    shape = eqn.outs[0].type.shape
    if eqn.op.name == "index":
        return _fit_lookup(group, eqn, inside)
    axes = _aligned(group, shape, inside)
    if axes is None:
        return False
    if eqn.op.name == "scatter_sum":
        last = frozenset((len(shape) - 1,))
        if len(shape) != len(group.shape) or group.varying(axes) != group.dims:
            return False
        if group.inner not in (None, last):
            return False
        group.inner = last
    if not _is_full_or_row(group, axes):
        return False
    group.axes[eqn.outs[0]] = group.maps[id(eqn)] = axes
    return True


def _is_full_or_row(group: Group, axes: tuple[int, ...]) -> bool:
    varying = group.varying(axes)
    return varying == group.dims or (
        group.inner is not None and varying == group.dims - group.inner
    )


def _aligned(
    group: Group, shape: Shape, inside: Sequence[tuple[int, ...] | None]
) -> tuple[int, ...] | None:
    """The dimensions of the space along which a result of this shape runs."""
    rank = len(shape)
    axes: list[int | None] = [None] * rank
    for given in inside:
        if given is None:
            continue
        for place, axis in enumerate(given, rank - len(given)):
            if axis < 0:
                continue
            if axes[place] not in (None, axis):
                return None
            axes[place] = axis
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


def _fit_fold(group: Group, eqn: Equation, inside: tuple[int, ...] | None) -> bool:
    shape = eqn.args[0].type.shape
    axes = inside if inside is not None else _aligned(group, shape, ())
    if axes is None or _repeats(axes, shape):
        return False
    varying = group.varying(axes)
    folded = group.varying([axes[d] for d in eqn.attrs["dims"]])
    kept = tuple(
        -1 if d in eqn.attrs["dims"] else a
        for d, a in enumerate(axes)
        if eqn.attrs["keepdim"] or d not in eqn.attrs["dims"]
    )
    out = eqn.outs[0]
    full = varying == group.dims
    if not full and (group.inner is None or varying != group.dims - group.inner):
        return False
    if not folded and group.dims:
        return False  # nothing is added up: the dimensions are of extent 1
    if full and folded != group.dims:
        if group.inner is None:
            group.inner = _row_for(group, folded)
        if folded == group.inner:
            pass  # a row value
        elif _leaves_columns(group, folded):
            group.late.add(out)
            group.blocks = max(group.blocks, _extent(group, group.dims - group.inner - folded))
        else:
            return False
    elif full:
        if group.inner is not None and group.inner == group.dims:
            pass  # the only row
        else:
            group.late.add(out)
    elif folded == varying:
        group.late.add(out)
    else:
        return False
    group.maps[id(eqn)] = axes
    group.axes[out] = kept
    return True


def _repeats(axes: Sequence[int], shape: Shape) -> bool:
    """Whether elements stand more than once in a value: they count as often in a sum, and each
    time is a result of its own."""
    return any(axis < 0 and extent != 1 for axis, extent in zip(axes, shape, strict=True))


def _row_for(group: Group, folded: frozenset[int]) -> frozenset[int]:
    """The dimensions of a row, for a group that begins with a fold: those behind the folded ones,
    which then add up column by column, if there are any; otherwise the folded ones themselves."""
    behind = frozenset(d for d in group.dims - folded if d > max(folded))
    before = group.dims - folded - behind
    if not behind or any(d > min(folded) for d in before):
        return folded
    if before and not (_extent(group, behind) >= _WIDE <= _extent(group, folded)):
        return folded
    return behind


def _leaves_columns(group: Group, folded: frozenset[int]) -> bool:
    """Whether a fold goes over rows alone, over all of them or over each block of them."""
    assert group.inner is not None
    if folded & group.inner:
        return False
    before = group.dims - group.inner - folded
    if not before:
        return True
    return max(before) < min(folded | group.inner) and _extent(group, folded) >= _WIDE


def _extent(group: Group, dims: frozenset[int]) -> int:
    return prod(group.shape[d] for d in dims)


def _fit_pick(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    source, index = eqn.args[0].type.shape, inside[1]
    axes = inside[0] if inside[0] is not None else _aligned(group, source, ())
    if axes is None or _repeats(axes, source) or group.varying(axes) != group.dims:
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


def _fit_lookup(group: Group, eqn: Equation, inside: list[tuple[int, ...] | None]) -> bool:
    if inside[0] is not None or inside[1] is not None:
        return False  # the table and the places come from memory
    shape = eqn.outs[0].type.shape
    rank = len(eqn.args[1].type.shape)
    axes = _aligned(group, shape, ())
    if axes is None or group.varying(axes) != group.dims:
        return False
    inner = group.varying(axes[rank:])
    if not inner or group.inner not in (None, inner):
        return False
    group.inner = inner
    group.axes[eqn.outs[0]] = group.maps[id(eqn)] = axes
    return True
