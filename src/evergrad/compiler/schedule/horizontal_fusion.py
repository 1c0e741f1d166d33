"""Making one group of two that go over the same value.

When an equation joins a group it is not known yet what else will read the same value: the gradient
of a norm's bias stands before that of its scale, which belongs to the norm computed again. Both
groups would pass over it, and the product that makes it could not hand its rows over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from evergrad.compiler.schedule.nodes import FAR, Group, Unit
from evergrad.core.trace import Var

# What has so many times fewer elements is there soon.
_SMALL = 16


def unite(
    units: Sequence[Unit],
    unit_of: dict[Var, Unit],
    readers: Mapping[Var, Sequence[Group]],
    again: frozenset[int],
) -> None:
    """Let groups that read a value element by element take over all that others compute that do,
    and that wait for the same units. Equations in ``again`` (by ``id``) stay where they are."""
    for root, groups in readers.items():
        over_it = [g for g in groups if prod(g.shape) == root.type.numel > 1]
        for number, group in enumerate(over_it):
            for other in over_it[number + 1 :]:
                pair = (*group.members, *other.members)
                may_move = not any(id(eqn) in again for eqn in pair)
                if may_move and _may_unite(group, other, units):
                    _unite(group, other, units, unit_of)


def _may_unite(group: Group, other: Group, units: Sequence[Unit]) -> bool:
    """Whether two groups go through one space, and neither keeps the other waiting."""
    if not (group.members and other.members) or abs(group.order - other.order) > FAR:
        return False
    if (group.shape, group.inner, group.blocks) != (other.shape, other.inner, other.blocks):
        return False
    if (group.needs | other.needs) & (group.bit | other.bit):
        return False
    differ = [unit for unit in units if unit.bit & (group.needs ^ other.needs)]
    most = prod(group.shape) // _SMALL
    return all(isinstance(unit, Group) and prod(unit.shape) <= most for unit in differ)


def _unite(group: Group, other: Group, units: Sequence[Unit], unit_of: dict[Var, Unit]) -> None:
    group.members += other.members
    group.axes |= other.axes
    group.maps |= other.maps
    group.late |= other.late
    group.reads |= other.reads
    group.order = max(group.order, other.order)
    group.needs |= other.needs
    for eqn in other.members:
        unit_of[eqn.outs[0]] = group
    for unit in units:
        if unit.needs & (group.bit | other.bit):
            unit.needs |= group.bit | group.needs
    other.members = []
