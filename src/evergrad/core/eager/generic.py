"""Evaluators for arrays of any extents, which all small shapes of a row share.

Those of :mod:`evergrad.core.evaluate` are made for one shape: results from the pool, kernels
planned for it. For small arrays of a shape that does not repeat, making them takes longer than
running them. These give the same bits: the same NumPy functions and native loops, with extents read
from the arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.elementwise import any_extent_loop, may_use_loop, prefers_loop
from evergrad.core.eager.kernels import may_use_kernel
from evergrad.core.eager.reductions import any_extent_reduction
from evergrad.core.row_facts import Cost
from evergrad.core.shapes import TensorType

if TYPE_CHECKING:
    from evergrad.core.op import Specialization
    from evergrad.core.types import AnyFunction, Array

# Results of so many elements are allocated as for their shape.
SMALL_ELEMENTS = 1 << 16
# Views allocate nothing.
ANY_ELEMENTS = 1 << 62
# Composites of larger values are evaluated row by row: in parallel, and into pooled memory.
COMPOSITE_ELEMENTS = 1 << 18


class Generic(NamedTuple):
    """An evaluator, and the number of elements of the largest value below which it applies. It is
    given the attributes as last argument if ``attrs`` was false."""

    run: AnyFunction
    below: int


def generic_evaluator(specialization: Specialization, knows_attrs: bool) -> Generic | None:
    """The evaluator of a specialization for any extents; ``None`` if its row has none."""
    op, operands, out = specialization.op, specialization.operands, specialization.out_types[0]
    if not specialization.single or specialization.casts is not None or config.POISON:
        return None
    if not _is_exact(specialization):
        return None
    run = _bound(specialization, knows_attrs)
    if op.alias:
        return Generic(run, ANY_ELEMENTS)
    if op.takes_out and not out.shape:
        return None
    if not op.takes_out:
        run = partial(_as_array, run, out.dtype.np)
    below = SMALL_ELEMENTS
    if not all(isinstance(t, TensorType) for t in operands):  # numbers that rows do not promote
        return Generic(run, below)
    if op.eager is not None and may_use_kernel(op, operands):
        below = min(below, op.eager.least)
    if may_use_loop(op, specialization.types, operands, specialization.out_types):
        if all(t.shape == out.shape or not t.shape for t in operands) and prefers_loop(op):
            run = any_extent_loop(op, specialization.attrs, operands, out, run)
        elif op.emit.cost is not Cost.CHEAP:
            return None
    elif op.eager_reduction is not None and operands[0].dtype in (dtypes.float32, dtypes.float64):
        if out.dtype is not operands[0].dtype or not knows_attrs:
            return None
        run = any_extent_reduction(op, specialization.attrs, operands[0], run)
    return Generic(run, below)


def composite_evaluator(specialization: Specialization, knows_attrs: bool) -> Generic | None:
    """The same for a row inside of a composite, whose calls are evaluated so for all its shapes:
    they need not give the bits of the row by itself, which may have a kernel planned for its
    shape. Rows over windows are much slower without that."""
    op, operands, out = specialization.op, specialization.operands, specialization.out_types[0]
    if not specialization.single or specialization.casts is not None or config.POISON:
        return None
    if not _is_exact(specialization) or (op.eager is not None and not op.shape_generic):
        return None
    run = _bound(specialization, knows_attrs)
    if op.alias:
        return Generic(run, ANY_ELEMENTS)
    if not op.takes_out or not out.shape:
        run = partial(_as_array, run, out.dtype.np)
    if not all(isinstance(t, TensorType) for t in operands):
        return Generic(run, COMPOSITE_ELEMENTS)
    if may_use_loop(op, specialization.types, operands, specialization.out_types):
        if all(t.shape == out.shape or not t.shape for t in operands) and prefers_loop(op):
            run = any_extent_loop(op, specialization.attrs, operands, out, run)
    elif (
        op.eager_reduction is not None
        and knows_attrs
        and operands[0].dtype in (dtypes.float32, dtypes.float64)
        and out.dtype is operands[0].dtype
    ):
        run = any_extent_reduction(op, specialization.attrs, operands[0], run)
    return Generic(run, COMPOSITE_ELEMENTS)


def _bound(specialization: Specialization, knows_attrs: bool) -> Callable[..., object]:
    """The evaluation of a row with its attributes; these are its last argument if they are not
    known."""
    op = specialization.op
    if not knows_attrs:
        return partial(_with_attributes, op.eval)
    if op.prepare is not None:
        return op.prepare(**specialization.attrs)
    return partial(op.eval, **specialization.attrs) if specialization.attrs else op.eval


def _is_exact(specialization: Specialization) -> bool:
    """Whether the row is evaluated in the element types of its arguments, without conversions."""
    for type in (*specialization.operands, *specialization.out_types):
        if isinstance(type, TensorType) and type.dtype.compute is not type.dtype.np:
            return False
    return all(
        isinstance(t, TensorType)
        or not isinstance(o, TensorType)
        or o.dtype.category > dtypes.INTEGRAL
        for t, o in zip(specialization.types, specialization.operands, strict=True)
    )


def _with_attributes(function: AnyFunction, *given: Any) -> Array:
    *arrays, attrs = given
    result: Array = function(*arrays, **attrs)
    return result


def _as_array(function: AnyFunction, numpy_type: np.dtype[np.generic], *arrays: object) -> Array:
    return np.asarray(function(*arrays), numpy_type)
