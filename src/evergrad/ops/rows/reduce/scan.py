"""Rows that carry something along a dimension: running sums, products, extremes, differences.

The derivative of a running product or of a running log-sum is a linear recurrence, which is a row
of its own (and whose derivatives are recurrences again). Nothing is divided, so zeros among the
factors are no exception, to any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.families import linear, opaque
from evergrad.core.namespace import late_bound
from evergrad.core.op import Op
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy, EagerKernel, lowered
from evergrad.core.shapes import TensorType, normalize_dim
from evergrad.core.tensor import Array, Tensor
from evergrad.memory import pool
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.elementwise.basic import exp, where
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.movement.complex_parts import real
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import clone, expand, owned, reshape, to_front
from evergrad.ops.rows.reduce.lanes import as_lanes, batch_along, gathered, place_row, with_extent
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.rows.reduce.sums import sum_type
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types
    from evergrad.core.types import DtypeLike


def _along(function: Any, x: Array, dim: int, reverse: bool) -> Array:
    return np.flip(function(np.flip(x, dim), dim), dim) if reverse else function(x, dim)


# So many lanes side by side are worth a step in Python for each element of one.
_WIDE = 128


# Elements that are accumulated in the wider type at a time: they stay in cache.
_PIECE = 1 << 13
# Running values are carried in the wider type and rounded where they are stored.
_CARRIED = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}


def _accumulated(ufunc: np.ufunc) -> object:
    """``ufunc.accumulate``, which goes through lanes one by one, or all lanes step by step."""

    def run(x: Array, dim: int) -> object:
        extent = x.shape[dim]
        if x.dtype.kind not in "fc" or not x.size:
            return ufunc.accumulate(x, dim)
        if dim != x.ndim - 1 and x.size >= _WIDE * extent:
            return _step_by_step(ufunc, x, dim)
        if x.dtype not in _CARRIED:
            return ufunc.accumulate(x, dim)
        if x.size <= _PIECE:
            return ufunc.accumulate(x, dim, dtype=_CARRIED[x.dtype]).astype(x.dtype)
        return _lane_by_lane(ufunc, x, dim)

    return run


def _step_by_step(ufunc: np.ufunc, x: Array, dim: int) -> Array:
    """All lanes at once: a running value of each is carried from step to step."""
    out = pool.empty(x.shape, x.dtype)
    steps, found = np.moveaxis(x, dim, 0), np.moveaxis(out, dim, 0)
    carried = steps[0].astype(_CARRIED.get(x.dtype, x.dtype))
    found[0] = steps[0]
    for i in range(1, len(steps)):
        ufunc(carried, steps[i], out=carried)
        found[i] = carried
    return out


def _lane_by_lane(ufunc: np.ufunc, x: Any, dim: int) -> Array:
    """Each lane by itself, some lanes or a piece of a long one at a time."""
    lanes = np.moveaxis(x, dim, -1).reshape(-1, x.shape[dim])
    out = pool.empty(lanes.shape, x.dtype)
    count, extent = lanes.shape
    rows, columns = max(1, _PIECE // extent), min(extent, _PIECE)
    for first in range(0, count, rows):
        carried = None
        for start in range(0, extent, columns):
            here = slice(first, first + rows), slice(start, start + columns)
            piece = lanes[here].astype(_CARRIED[x.dtype])
            if carried is not None:
                ufunc(piece[:, 0], carried, out=piece[:, 0])
            ufunc.accumulate(piece, 1, out=piece)
            carried = piece[:, -1]
            out[here] = piece
    shape = [*x.shape[:dim], *x.shape[dim + 1 :], extent]
    return np.moveaxis(out.reshape(shape), -1, dim)


_running_sum, _running_product = _accumulated(np.add), _accumulated(np.multiply)
_log_running_sums = _accumulated(np.logaddexp)


def _same_type(x: TensorType, **attrs: object) -> TensorType:
    return x


def before(x: Tensor, dim: int, reverse: bool = False, fill: float = 0) -> Tensor:
    """In each place the element before it in the order of the scan, in the first a number."""
    extent = x._type.shape[dim]
    if not extent:
        return x
    first = full(with_extent(x._type.shape, dim, 1), fill, dtype=x.dtype)
    if reverse:
        return cat((slice_dim(x, dim, 1, extent), first), dim)
    return cat((first, slice_dim(x, dim, 0, extent - 1)), dim)


# -- linear recurrences -------------------------------------------------------------------------


def _recur_eval(a: Array, b: Array, *, dim: int, reverse: bool) -> Array:
    a, b = (np.flip(v, dim) if reverse else v for v in (a, b))
    extent, wide = a.shape[dim], _CARRIED.get(a.dtype, a.dtype)
    found = (_recur_wide if extent and a.size >= _WIDE * extent else _recur_long)(a, b, dim, wide)
    return np.array(np.flip(found, dim) if reverse else found, a.dtype, order="C")


def _recur_wide(a: Any, b: Any, dim: int, wide: object) -> Any:
    """Step by step, all recurrences at once."""
    factors = np.ascontiguousarray(np.moveaxis(a, dim, 0))
    total = np.array(np.moveaxis(b, dim, 0), order="C")
    carried = total[0].astype(wide)
    for i in range(1, len(total)):
        np.multiply(factors[i], carried, out=carried)
        carried += total[i]
        total[i] = carried
    return np.moveaxis(total, 0, dim)


def _recur_long(a: Any, b: Any, dim: int, wide: object) -> Array:
    """By doubling: after each step, ``(a, b)`` carries twice as far."""
    a, b = (np.moveaxis(v, dim, -1).astype(wide) for v in (a, b))
    step, extent = 1, a.shape[-1]
    while step < extent:
        carried = b[..., step:] + a[..., step:] * b[..., :-step]
        a = np.concatenate((a[..., :step], a[..., step:] * a[..., :-step]), -1)
        b = np.concatenate((b[..., :step], carried), -1)
        step *= 2
    return np.moveaxis(b, -1, dim)


def _recur_vjp(
    g: Tensor, y: Tensor, a: Tensor, b: Tensor, *, dim: int, reverse: bool
) -> tuple[Tensor, Tensor]:
    back = recur(conj(before(a, dim, not reverse)), g, dim, not reverse)
    return back * conj(before(y, dim, reverse)), back


def _recur_jvp(
    tangents: Any, y: Tensor, a: Tensor, b: Tensor, *, dim: int, reverse: bool
) -> Tensor:
    ta, tb = tangents
    if ta is None:
        return recur(a, tb, dim, reverse)
    drive = ta * before(y, dim, reverse)
    return recur(a, drive if tb is None else drive + tb, dim, reverse)


def _batch_recur(op: Op, args: Any, at: Any, *, dim: int, reverse: bool) -> tuple[Tensor, int]:
    size = next(x._type.shape[i] for x, i in zip(args, at, strict=True) if i is not None)
    a, b = (
        expand(x, (size, *x._type.shape)) if i is None else to_front(x, i)
        for x, i in zip(args, at, strict=True)
    )
    return recur(a, b, dim + 1, reverse), 0


RECURRENCE = lowered("kernels.recurrences")
RECUR = opaque(
    "recur", _recur_eval, lambda a, b, *, dim, reverse: a, _recur_vjp, jvp=_recur_jvp,
    batch=_batch_recur,
    emit=RECURRENCE, autocast=AutocastPolicy.KEEP, eager=EagerKernel(1 << 9),
    doc="y[i] = a[i] * y[i - 1] + b[i] along a dimension.",
)  # fmt: skip


def recur(a: Tensor, b: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """``y[i] = a[i] * y[i - 1] + b[i]``, or from the end; ``a`` and ``b`` are of one type."""
    return bind(RECUR, a, b, dim=dim, reverse=reverse)  # type: ignore[no-any-return]


# -- sums and products --------------------------------------------------------------------------


def _cumsum_eval(x: Array, *, dim: int, reverse: bool) -> Array:
    return _along(_running_sum, x, dim, reverse)


def _cumsum_transpose(g: Tensor, x: Tensor, *, dim: int, reverse: bool) -> object:
    return bind(CUMSUM, g, dim=dim, reverse=not reverse)


CUMSUM = linear(
    "cumsum", _cumsum_eval, _same_type, _cumsum_transpose,
    batch=batch_along, upcast=True,
    emit=lowered("kernels.lanes"), autocast=AutocastPolicy.KEEP,
    eager=EagerKernel(1 << 9, integers=True),
    doc="The running sum along a dimension.",
)  # fmt: skip


def _cumprod_eval(x: Array, *, dim: int, reverse: bool) -> Array:
    return _along(_running_product, x, dim, reverse)


def _cumprod_vjp(g: Tensor, y: Tensor, x: Tensor, *, dim: int, reverse: bool) -> Tensor:
    back = recur(conj(before(x, dim, not reverse)), g, dim, not reverse)
    return back * conj(before(y, dim, reverse, fill=1))


def _cumprod_jvp(
    tangents: Sequence[Tensor], y: Tensor, x: Tensor, *, dim: int, reverse: bool
) -> Tensor:
    return recur(x, tangents[0] * before(y, dim, reverse, fill=1), dim, reverse)


CUMPROD = opaque("cumprod", _cumprod_eval, _same_type, _cumprod_vjp, jvp=_cumprod_jvp,
                 batch=batch_along,
                 emit=lowered("kernels.lanes"), autocast=AutocastPolicy.KEEP,
                 eager=EagerKernel(1 << 9, integers=True),
                 doc="The running product along a dimension.")  # fmt: skip


@late_bound
def products_before(x: Tensor, dim: int, reverse: bool = False) -> Tensor:
    """For each element of a dimension, the product of those before (or after) it."""
    return before(bind(CUMPROD, x, dim=dim, reverse=reverse), dim, reverse, fill=1)


def _scanned(op: Op, input: Tensor, dim: int, dtype: DtypeLike = None) -> Tensor:
    if input._type.shape and dtype is None and input._type.dtype.category >= dtypes.FLOATING:
        dim = normalize_dim(dim, len(input._type.shape))
        return bind(op, input, dim=dim, reverse=False)  # type: ignore[no-any-return]
    lanes, dim = as_lanes(sum_type(input, dtype), dim)
    return owned(reshape(bind(op, lanes, dim=dim, reverse=False), input._type.shape))


@expose(inplace=True, numpy_names=True)
def cumsum(input: Tensor, dim: int, *, dtype: DtypeLike = None) -> Tensor:
    """The running sum along a dimension; integers are summed in int64."""
    return _scanned(CUMSUM, input, dim, dtype)


@expose(inplace=True, numpy_names=True)
def cumprod(input: Tensor, dim: int, *, dtype: DtypeLike = None) -> Tensor:
    """The running product along a dimension; integers are multiplied in int64."""
    return _scanned(CUMPROD, input, dim, dtype)


# -- log of running sums of exponentials --------------------------------------------------------


def _logcumsumexp_type(x: TensorType, *, dim: int, reverse: bool) -> TensorType:
    if x.dtype.category < dtypes.FLOATING:
        raise NotImplementedError(f"\"logcumsumexp\" not implemented for '{x.dtype.name}'")
    return x


def _logcumsumexp_eval(x: Array, *, dim: int, reverse: bool) -> Array:
    accumulate = _log_running_sum if x.dtype.kind == "c" else _log_running_sums
    return _along(accumulate, x, dim, reverse)


def _log_running_sum(z: Array, dim: int) -> Array:
    """Of complex numbers, element by element; with the larger real part taken out no exponential
    overflows."""
    out = np.array(np.moveaxis(z, dim, 0), order="C")
    for i in range(1, len(out)):
        older, newer = out[i - 1], out[i]
        larger = older.real > newer.real
        top, rest = np.where(larger, older, newer), np.where(larger, newer, older)
        alone = np.isinf(rest.real) | np.isposinf(top.real)
        more = np.log1p(np.exp(rest - np.where(alone, 0, top)))
        out[i] = np.where(alone & ~np.isnan(rest), top, top + more)
    return np.moveaxis(out, 0, dim)


def _shares(y: Tensor, x: Tensor, dim: int, reverse: bool) -> tuple[Tensor, Tensor]:
    """What of each running sum was there before, and what the element brought: at most 1 each.

    Of many elements the former is nearly 1, and a recurrence multiplies as many of them: in
    float32 their roundings add up, so they are float64.
    """
    wide = dtypes.complex128 if x.dtype.is_complex else dtypes.float64
    y, x = cast(y, wide), cast(x, wide)
    finite = where(real(y) == -math.inf, 0, y)
    previous = before(y, dim, reverse, fill=-math.inf)
    old = where(real(previous) == math.inf, 1, exp(previous - finite))  # all of an infinite sum
    return old, exp(x - finite)


def _logcumsumexp_vjp(g: Tensor, y: Tensor, x: Tensor, *, dim: int, reverse: bool) -> Tensor:
    old, new = (conj(share) for share in _shares(y, x, dim, reverse))
    drive = cast(g, old.dtype)
    return cast(new * recur(before(old, dim, not reverse), drive, dim, not reverse), x.dtype)


def _logcumsumexp_jvp(
    tangents: Sequence[Tensor], y: Tensor, x: Tensor, *, dim: int, reverse: bool
) -> Tensor:
    old, new = _shares(y, x, dim, reverse)
    return cast(recur(old, new * cast(tangents[0], new.dtype), dim, reverse), y.dtype)


LOGCUMSUMEXP = opaque(
    "logcumsumexp", _logcumsumexp_eval, _logcumsumexp_type, _logcumsumexp_vjp,
    jvp=_logcumsumexp_jvp, batch=batch_along,
    emit=lowered("passes.decompose"), autocast=AutocastPolicy.KEEP,
    doc="log of the running sum of exp(x).",
)  # fmt: skip


@expose(numpy_names=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of exponentials, without overflow."""
    lanes, dim = as_lanes(input, dim)
    found = bind(LOGCUMSUMEXP, lanes, dim=dim, reverse=False)
    return owned(reshape(found, input._type.shape))


# -- running extremes ---------------------------------------------------------------------------


def _running_places(ufunc: Any) -> Callable[..., Array]:
    def places(x: Array, *, dim: int) -> Array:
        best = ufunc.accumulate(x, dim)
        renewed = (x == best) | (x != x)
        own = np.arange(x.shape[dim]).reshape(-1, *(1,) * (x.ndim - 1 - dim))
        return np.maximum.accumulate(np.where(renewed, own, 0), dim)

    return places


CUMMAX_PLACES = place_row("cummax_places", _running_places(np.maximum), RECURRENCE,
                          "Where the largest so far last stood.", extent=lambda n: n)  # fmt: skip
CUMMIN_PLACES = place_row("cummin_places", _running_places(np.minimum), RECURRENCE,
                          "Where the smallest so far last stood.", extent=lambda n: n)  # fmt: skip


@expose(numpy_names=True)
@prepared
def cummax(input: Tensor, dim: int) -> Any:
    """The largest so far along a dimension, and where it (last) stood."""
    return return_types.cummax(*gathered(CUMMAX_PLACES, input, dim))


@expose(numpy_names=True)
@prepared
def cummin(input: Tensor, dim: int) -> return_types.cummin:
    """The smallest so far along a dimension, and where it (last) stood."""
    return return_types.cummin(*gathered(CUMMIN_PLACES, input, dim))


# -- differences and integrals ------------------------------------------------------------------


def _neighbours(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    extent = x._type.shape[dim]
    return slice_dim(x, dim, 1, max(extent, 1)), slice_dim(x, dim, 0, max(extent - 1, 0))


@expose(numpy_names=True)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Differences of neighbours along a dimension, ``n`` times over."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    parts = [x for x in (prepend, input, append) if x is not None]
    found = parts[0] if len(parts) == 1 else cat(parts, dim)
    dim = normalize_dim(dim, input.ndim)
    for _ in range(n):
        later, earlier = _neighbours(found, dim)
        found = later ^ earlier if found.dtype is dtypes.bool_ else later - earlier
    return found if n else clone(found)


def _trapezoids(name: str, y: Tensor, x: Tensor | None, dx: Any, dim: int) -> Tensor:
    """The area between each two neighbours."""
    if dtypes.bool_ in (y.dtype, None if x is None else x.dtype):
        raise RuntimeError(f"{name}: received a bool input, but bool is not supported")
    if not y.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = normalize_dim(dim, y.ndim)
    later, earlier = _neighbours(y, dim)
    if x is None:
        return (later + earlier) * (dx / 2)  # type: ignore[no-any-return]
    if x.ndim == 1:
        if x._type.shape[0] != y._type.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        x = reshape(x, (-1,) + (1,) * (y.ndim - dim - 1))
        widths = diff(x, dim=0)
    else:
        widths = diff(x, dim=dim - y.ndim)
    return (later + earlier) * widths / 2


@expose("trapz", method=False, out=False, numpy_names=True)
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: object = 1, dim: int = -1) -> Tensor:
    """The integral along a dimension by the trapezoidal rule."""
    return total(_trapezoids("trapezoid", y, x, dx, dim), dim)


@expose(method=False, out=False, numpy_names=True)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: object = 1, dim: int = -1
) -> Tensor:
    """The running integral along a dimension by the trapezoidal rule."""
    return cumsum(_trapezoids("cumulative_trapezoid", y, x, dx, dim), dim)
