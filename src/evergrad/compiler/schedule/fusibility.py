"""Which equations can be part of a fusion group."""

from __future__ import annotations

from math import prod

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.core.op import Specialization
from evergrad.core.row_facts import Combine, Indexing
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation

# The least elements of slices that are looked up along a dimension that is not the first.
_SHORT = 16
# Equations further apart than this are in different parts of a program.
MAX_FUSION_DISTANCE = 48

# Which specializations can be part of a group: those of an optimizer are the same for all shapes.
_fusible: dict[Specialization, bool] = {}
_MAX_KEPT = 4096


def is_fusible(values: DefUse, eqn: Equation) -> bool:
    """Whether an equation can be part of a group: decided by its specialization."""
    known = _fusible.get(eqn.specialization)
    if known is None:
        if len(_fusible) >= _MAX_KEPT:
            _fusible.clear()
        known = _fusible[eqn.specialization] = _is_fusible(eqn)
    return known


def _is_fusible(eqn: Equation) -> bool:
    specialization = eqn.specialization
    if any(t.numel == 0 for t in specialization.out_types) or eqn.op.outputs != 1:
        return False
    operands = specialization.operands
    if not all(hasattr(t, "dtype") and t.dtype in elementwise.KINDS and t.numel for t in operands):
        return False
    if any(t.dtype not in elementwise.KINDS for t in specialization.out_types):
        return False
    if eqn.op.combine:
        return _is_fusible_reduction(eqn)
    if eqn.op.indexing is Indexing.LOOKUP:
        return _is_slice_lookup(eqn)
    if eqn.op.indexing is not None:
        indexed = eqn.args[0] if eqn.op.indexing is Indexing.PICK else eqn.outs[0]
        return _is_element_lookup(eqn, indexed.type.shape)
    return elementwise.supports(eqn.op, operands, specialization.out_types)


def is_elementwise(values: DefUse, eqn: Equation) -> bool:
    """Whether an equation can be part of a group, each element of its result from one of each
    argument."""
    is_plain = not eqn.op.alias and not eqn.op.random and not eqn.op.combine and not eqn.op.indexing
    return is_plain and is_fusible(values, eqn)


def _is_fusible_reduction(eqn: Equation) -> bool:
    found, out = eqn.specialization.operands[0].dtype, eqn.specialization.out_types[0].dtype
    if found not in elementwise.KINDS or out not in elementwise.KINDS or not eqn.attrs["dims"]:
        return False
    if eqn.op.combine in (Combine.ANY, Combine.ALL):
        return out.name == "bool" and found.name == "bool"
    if eqn.op.combine is Combine.SUM and found is not out:
        return False
    return eqn.op.combine is Combine.SUM or elementwise.KINDS[found].is_float


def _is_slice_lookup(eqn: Equation) -> bool:
    """Slices of a table along one dimension, by one tensor of integers. Short slices along a
    dimension that is not the first are left to a kernel: loops would read few elements at once."""
    if len(eqn.args) != 2 or eqn.args[1].type.dtype.name != "int64":
        return False
    start: int = eqn.attrs["start"]
    return start == 0 or int(prod(eqn.args[0].type.shape[start + 1 :])) >= _SHORT


def _is_element_lookup(eqn: Equation, shape: Shape) -> bool:
    """One element along the last dimension."""
    index = eqn.args[1].type
    return (
        eqn.attrs["dim"] == len(shape) - 1
        and index.dtype.name == "int64"
        and index.shape == (*shape[:-1], 1)
        and shape[-1] > 1
        and elementwise.KINDS[eqn.specialization.operands[0].dtype].is_float
    )
