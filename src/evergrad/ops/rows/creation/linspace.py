"""Numbers between two ends: ``linspace`` and ``logspace``.

Points are counted from both ends and rounded where PyTorch's kernels round them, so that the last
bits of ``linspace`` agree too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.dtypes import dtype
from evergrad.core.exact import fma64
from evergrad.core.families import opaque
from evergrad.core.meta import placed
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import as_number, check_place, chosen_dtype, deliver
from evergrad.ops.rows.creation.quick import quick_array
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, LayoutLike


def _points(start: Any, end: Any, steps: int, dtype: dtype) -> Array:
    """The points in the type they are computed in: wider than ``dtype`` where that is narrow."""
    if dtype.is_complex:
        real = _points(start.real, end.real, steps, dtype.to_real())
        return real + 1j * _points(start.imag, end.imag, steps, dtype.to_real())
    if dtype.compute is not dtype.np:
        return _narrow_points(start, end, steps, dtype)
    if dtype.category <= dtypes.INTEGRAL:
        start, end, kind = int(start), int(end), np.dtype(np.float64)
    else:
        kind = dtype.np
    start, end = kind.type(start), kind.type(end)
    step = float((end - start) / kind.type(max(steps - 1, 1)))
    half = steps // 2
    # A number of less than 2^29 times a float32 is exact in float64: one rounding follows.
    added = _product_added if kind == np.float32 and steps < 1 << 29 else fma64
    points = np.empty(steps, kind)
    points[:half] = added(np.arange(half, dtype=np.float64), step, float(start))
    down = np.arange(steps - half, dtype=np.float64)[::-1]
    points[half:] = added(down, -step, float(end))
    return points


def _product_added(a: Array, b: float, c: float) -> Array:
    a *= b
    a += c
    return a


def _narrow_points(start: float, end: float, steps: int, dtype: dtype) -> Array:
    """16-bit floats round after every operation."""

    def narrow(values: object) -> Array:
        return np.asarray(values, np.float32).astype(dtype.np).astype(np.float32)

    start, end = narrow(start), narrow(end)  # type: ignore[assignment]
    step = narrow(narrow(end - start) / np.float32(max(steps - 1, 1)))
    up = np.arange(steps, dtype=np.float32)
    down = up[::-1]
    first = np.arange(steps) < steps // 2
    return np.where(first, start + narrow(step * narrow(up)), end - narrow(step * narrow(down)))


def _linspace_eval(start: object, end: object, *, steps: int, dtype: dtype) -> Array:
    if steps == 1:
        end = start
    return _points(start, end, steps, dtype).astype(dtype.np)


LINSPACE = opaque(
    "linspace", _linspace_eval, lambda start, end, *, steps, dtype: tensor_type((steps,), dtype),
    NONDIFFERENTIABLE, upcast=False,
    emit=numpy_evaluates("evaluated once, when constants are folded"), autocast=AutocastPolicy.KEEP,
    doc="Equally many steps between two numbers.",
)  # fmt: skip


def _logspace_eval(start: object, end: object, base: object, *, steps: int, dtype: dtype) -> object:
    points = _points(start, start if steps == 1 else end, steps, dtype)
    return np.power(points.dtype.type(base), points).astype(dtype.np)


LOGSPACE = opaque(
    "logspace", _logspace_eval,
    lambda start, end, base, *, steps, dtype: tensor_type((steps,), dtype),
    NONDIFFERENTIABLE, upcast=False,
    emit=numpy_evaluates("evaluated once, when constants are folded"), autocast=AutocastPolicy.KEEP,
    doc="Powers of a base at equal steps of the exponent.",
)  # fmt: skip


def _space_arguments(
    name: str, start: object, end: object, steps: int, dtype: DtypeLike, out: Tensor | None
) -> tuple[object, object, dtype]:
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    for bound in (start, end):
        if isinstance(bound, Tensor) and bound.ndim:
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors")
    start, end = as_number(start), as_number(end)
    found = chosen_dtype(dtype, out)
    if isinstance(start, complex) or isinstance(end, complex):
        if dtype is None and out is None:
            found = found.to_complex()
        elif not found.is_complex:
            raise RuntimeError(
                f"{name}(): inferred dtype complex can't be safely cast to passed dtype "
                f"{found.name}"
            )
    return start, end, found


@expose(method=False, out=False)
@quick_array
@placed
def linspace(
    start: object, end: object, steps: int, *, out: Tensor | None = None, dtype: DtypeLike = None,
    device: DeviceLike = None, layout: LayoutLike = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """``steps`` numbers from ``start`` to ``end``, both included."""
    check_place(device)
    start, end, target = _space_arguments("linspace", start, end, steps, dtype, out)
    made = bind(LINSPACE, start, end, steps=steps, dtype=target)
    return deliver("linspace", made, out, requires_grad)


@expose(method=False, out=False)
def logspace(
    start: object, end: object, steps: int, base: float = 10.0, *, out: Tensor | None = None,
    dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """``base`` to the power of ``steps`` numbers from ``start`` to ``end``."""
    check_place(device)
    start, end, target = _space_arguments("logspace", start, end, steps, dtype, out)
    made = bind(LOGSPACE, start, end, base, steps=steps, dtype=target)
    return deliver("logspace", made, out, requires_grad)
