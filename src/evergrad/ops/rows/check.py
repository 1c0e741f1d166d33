"""Checks of values: the row that raises unless a condition holds, and the function that uses it.

An op that validates elements calls :func:`require`. Eagerly it reads the condition and raises.
Inside a trace it emits an equation of the row ``check``, which has no result that anything uses but
an effect, so it is never dead code: an interpreted graph raises there, a compiled program sets its
status word, and the error is made by interpreting the traced graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.families import opaque
from evergrad.core.namespace import ops
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.core.tracing import is_known
from evergrad.core.value_message import Template, deferred_message, rendered
from evergrad.errors import AssumptionError, ShapeError
from evergrad.ops.rows.movement.views import movedim, reshape
from evergrad.ops.rows.reduce.extrema import argmax
from evergrad.ops.rows.reduce.sums import all as all_of

# The errors that a check raises, by the name that its equation has.
_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        AssertionError,
        AssumptionError,
        IndexError,
        NotImplementedError,
        RuntimeError,
        ShapeError,
        ValueError,
    )
}


def _evaluate(condition: Array, *values: object, error: str, message: Template) -> Array:
    if not condition:
        raise _ERRORS[error](rendered(message, values))
    return np.array(condition)


def _type(condition: TensorType, *values: TensorType, error: str, message: Template) -> TensorType:
    if condition.dtype is not dtypes.bool_ or condition.shape:
        raise TypeError(f"check: the condition must be one bool, not {condition}")
    return tensor_type((), dtypes.bool_)


def _batch(
    op: Op, args: Sequence[Tensor], dims: Sequence[int | None], **attrs: object
) -> tuple[Tensor, None]:
    """All examples are checked at once; the message shows the first one that fails."""
    condition, *values = args
    failing = argmax(cast(reshape(~condition, -1), dtypes.uint8))
    shown = [
        v if dim is None else _example(v, dim, failing)
        for v, dim in zip(values, dims[1:], strict=True)
    ]
    return bind(op, all_of(condition), *shown, **attrs), None


def _example(values: Tensor, dim: int, number: Tensor) -> Tensor:
    batch = movedim(values, dim, 0)
    found = ops.index_select(batch, 0, reshape(number, (1,)))
    return reshape(found, batch._type.shape[1:])


CHECK = opaque(
    "check", _evaluate, _type, NONDIFFERENTIABLE, batch=_batch, upcast=False, checks=True,
    emit=lowered("a kernel that sets the status word"), autocast=AutocastPolicy.KEEP,
    doc="Raises unless the condition holds.",
)  # fmt: skip


def require(condition: Tensor, error: type[Exception], message: Callable[[], str]) -> None:
    """Raise ``error(message())`` unless all elements of a bool tensor hold.

    Inside a trace the check becomes part of the program; ``message`` is called while tracing, and
    tensors in it are shown as they are when the check fails.
    """
    if not condition._type.numel:
        return
    if is_known(condition):
        if not condition.array().all():
            raise error(message())
        return
    template, shown = deferred_message(message)
    bind(CHECK, all_of(condition), *shown, error=error.__name__, message=template)
