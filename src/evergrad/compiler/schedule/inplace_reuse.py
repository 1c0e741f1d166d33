"""Results of a loop that take the place of a value which the loop reads for the last time.

The gradient of a hidden layer, or the curve computed again for a weight's gradient, lies where the
layer lay that both are made of: they need no memory of their own at the moment of the most memory,
and a kernel writes to lines that it has just read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.compiler.codegen.loop_nest import NOWHERE, STATUS, Access, LoopSpace
from evergrad.compiler.schedule.instructions import Place, address_of, whole
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering


def give_places(lowering: Lowering, loop: LoopSpace) -> None:
    """Give results of a loop, those that may lie anywhere, the places of values it reads last."""
    if (STATUS, None) in loop.slots:
        return  # a lookup may read elements after others were written
    free = _free_places(lowering, loop)
    for var, outlet in loop.outlets.items():
        if var in lowering.homes or not _is_written_last(loop, var):
            continue
        for access, place in free:
            if _is_same_element(loop, access, outlet) and place.nbytes == var.type.nbytes:
                place.buffer.label += f", then {loop.maker[var].op.name} {var.type}"
                lowering.homes[var] = whole(place.buffer, var)
                free.remove((access, place))
                break


def _free_places(lowering: Lowering, loop: LoopSpace) -> list[tuple[Access, Place]]:
    """The values that nobody reads after a loop, as it reads them: each in one way alone."""
    ways: dict[Var, list[tuple[Access, Var]]] = {}
    for access in loop.accesses:
        if access.slot != NOWHERE and loop.slots[access.slot][0] == "read":
            var: Var = loop.slots[access.slot][1]
            ways.setdefault(lowering.values.root(var), []).append((access, var))
    found = []
    for root, ((access, var), *others) in ways.items():
        place = lowering.homes.get(root)
        if place is None or others or not _is_all_of(var, root, place):
            continue
        if not _is_read_later(lowering, loop, root) and not _is_awaited(lowering, place):
            found.append((access, place))
    return found


def _is_all_of(var: Var, root: Var, place: Place) -> bool:
    """Whether a view begins where its value does, and that fills a buffer of the arena."""
    buffer = place.buffer
    if buffer.home != "arena" or place.offset or place.nbytes != buffer.nbytes:
        return False
    return address_of(var.layout) == address_of(root.layout)


def _is_read_later(lowering: Lowering, loop: LoopSpace, root: Var) -> bool:
    """Whether anybody needs a value when a loop has run."""
    units = [lowering.unit_of[id(eqn)] for eqn in lowering.values.users(root)]
    is_done = all(unit is loop.group or id(unit) in lowering.lowered for unit in units)
    return not is_done or lowering.values.escapes(root)


def _is_awaited(lowering: Lowering, place: Place) -> bool:
    """Whether a product that waits for its loop reads or makes what lies in a place."""
    waiting = [awaited.alone for awaited in lowering.awaited.values()]
    return any(b is place.buffer for i in waiting for b in (*i.reads, *i.writes))


def _is_written_last(loop: LoopSpace, var: Var) -> bool:
    """Whether a value is written in the last pass over a row, when others have read what they need,
    and in every point of the space."""
    group = loop.group
    is_full = group.varying(group.axes[var]) == group.dims
    return is_full and not loop.is_row(var) and loop.stage[var] == loop.passes - 1


def _is_same_element(loop: LoopSpace, access: Access, outlet: Access) -> bool:
    """Whether each point of the space reads just the bytes that it writes."""
    if access.lookup is not None or access.dtype.itemsize != outlet.dtype.itemsize:
        return False
    return all(access.strides[d] == outlet.strides[d] for d in loop.group.dims)
