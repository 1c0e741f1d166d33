"""Updates of the rows that a traced gradient names.

Inside a trace the gradient of a table is ``index_sum(values, index)``: zeros, with the cotangents
of the rows that were looked up added to them, perhaps scaled or clamped (clipping) or the sum of
several. An optimizer that leaves rows without a gradient as they are updates the others alone, and
its norm is that of these rows. The sum is then computed only if something else reads it, so that
time and bytes of a compiled step follow the rows that were looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.functionalize import functionalizing_trace
from evergrad.core.shapes import Shape
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Trace, Var
from evergrad.core.tracing import trace_value
from evergrad.ops.rows.elementwise.basic import ADD, CLONE, MUL
from evergrad.ops.rows.elementwise.clamp import CLAMP, clamp
from evergrad.ops.rows.indexing.index import INDEX, INDEX_SUM
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.rows.reduce.counting import FIRST_OF_SAME

# A table has at least so many rows for each that is looked up; of others the whole is updated.
_FEW = 4


class Rows(NamedTuple):
    """Rows of a table by number, which may repeat, and what was added to each."""

    numbers: Tensor  # [n]
    values: Tensor  # [n, *row]

    def totals(self) -> Tensor:
        """The sum of all values of each row, for every occurrence of it."""
        first = bind(FIRST_OF_SAME, self.numbers)
        return bind(INDEX, self.sums(first), first, start=0, wrap=False)  # type: ignore[no-any-return]

    def sums(self, first: Tensor | None = None) -> Tensor:
        """The sum of all values of each row for its first occurrence, zeros for the others."""
        first = bind(FIRST_OF_SAME, self.numbers) if first is None else first
        count = self.numbers._type.shape[0]
        return bind(INDEX_SUM, self.values, first, start=0, extents=(count,))  # type: ignore[no-any-return]


def rows_of(p: Tensor, grad: Tensor, *, few: bool = True) -> Rows | None:
    """The rows that a gradient of a trace consists of, perhaps none; ``None`` if it is not of this
    kind, or with ``few`` if updating the whole table is as good."""
    trace = functionalizing_trace()
    if trace is None or STATE.get().trace is not trace or not p.ndim:
        return None
    with using(grad=False):
        found = _rows(trace, trace_value(trace, grad), p._type.shape)
    if found is None:
        return None
    is_small = found.numbers._type.numel * _FEW > p._type.shape[0]
    return None if few and is_small else found


def _rows(trace: Trace, value: object, shape: Shape) -> Rows | None:
    eqn = _producer(trace, value)
    if eqn is None:
        return None
    if eqn.op is CLONE:
        return _rows(trace, eqn.args[0], shape)
    if eqn.op is INDEX_SUM and len(eqn.args) == 2 and not eqn.attrs["start"]:
        values, index = (fresh(arg, arg.type) for arg in eqn.args)
        count = index._type.numel
        number = cast(reshape(index, (count,)), dtypes.int64)
        return Rows(number, reshape(values, (count, *shape[1:])))
    if eqn.op is MUL:
        return _scaled(trace, eqn, shape)
    if eqn.op is CLAMP:
        return _clamped(trace, eqn, shape)
    if eqn.op is ADD and all(isinstance(a, Var) and a.type.shape == shape for a in eqn.args):
        parts = [_rows(trace, arg, shape) for arg in eqn.args]
        if parts[0] is not None and parts[1] is not None:
            return Rows(*(cat(pair) for pair in zip(*parts, strict=True)))
    return None


def _scaled(trace: Trace, eqn: Equation, shape: Shape) -> Rows | None:
    """Rows times one number."""
    for rows, factor in (eqn.args, eqn.args[::-1]):
        if isinstance(factor, Var) and factor.type.numel != 1:
            continue
        found = _rows(trace, rows, shape)
        if found is not None:
            number = factor
            if isinstance(factor, Var):
                number = reshape(fresh(factor, factor.type), ())
            return Rows(found.numbers, found.values * number)
    return None


def _clamped(trace: Trace, eqn: Equation, shape: Shape) -> Rows | None:
    """Rows held between two numbers, as long as zeros are."""
    value, low, high = eqn.args
    if isinstance(low, Var) or isinstance(high, Var) or not low <= 0 <= high:
        return None
    found = _rows(trace, value, shape)
    return None if found is None else Rows(found.numbers, clamp(found.sums(), low, high))


def _producer(trace: Trace, value: object) -> Equation | None:
    """The equation of which a value is the result."""
    return next((e for e in reversed(trace.equations) if value in e.outs), None)


def update_rows(
    tensors: tuple[Tensor, ...], rows: Rows, formula: Callable[..., tuple[Tensor, ...]]
) -> None:
    """Replace the rows of some tables by those that a formula of them and the gradient gives.
    Occurrences of the same row are replaced by the same."""
    with using(grad=False):
        old = [bind(INDEX, t, rows.numbers, start=0, wrap=False) for t in tensors]
        for tensor, new in zip(tensors, formula(*old, rows.totals()), strict=True):
            tensor.index_copy_(0, rows.numbers, new)
