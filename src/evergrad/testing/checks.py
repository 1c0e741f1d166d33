"""What every row of the op table must satisfy, as plain functions of a sample.

Each check raises :class:`CheckError` (an ``AssertionError``) that says what is wrong with which
result. The checks need nothing but NumPy: a test suite adds comparisons with another library.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import evergrad
from evergrad.core import dtypes
from evergrad.core.bind import interpret
from evergrad.core.state import using
from evergrad.core.storage import checksum
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.transforms import trace, vmap
from evergrad.func import jvp, vjp
from evergrad.memory.ledger import LEDGER
from evergrad.testing.samples import Sample
from evergrad.testing.subject import (
    SEED,
    Array,
    Function,
    Subject,
    arrays_of,
    as_tensors,
    ensure,
    ensure_all_close,
    ensure_close,
    ensure_near,
    inner,
    is_continuous,
    random_like,
    size_of,
)

# -- values -------------------------------------------------------------------------------------


def check_value(sample: Sample) -> None:
    """The result is that of the NumPy reference."""
    assert sample.reference is not None
    subject = Subject(sample)
    found = arrays_of(subject.seeded_call, *subject.tensors())
    expected = sample.reference(*sample.inputs)
    expected = expected if isinstance(expected, tuple | list) else (expected,)
    ensure_all_close(f"{sample}", found, expected, sample.tolerance)


# -- derivatives --------------------------------------------------------------------------------

# The truncation error of a central difference in float64 is below this for functions whose third
# derivative is at most 1e5 times their size; its rounding error is 1e-10.
_SLOPE_TOLERANCE = 1e-6

# Forward and reverse mode compute the same sum in another order.
_SAME_SUM = 1e-9


def _precision(arrays: Sequence[Array]) -> float:
    """The coarsest rounding unit among these numbers."""
    return max((float(ml_dtypes.finfo(a.dtype).eps) for a in arrays), default=0.0)


def _slope(
    function: Function, points: list[Tensor], direction: list[Array], step: float
) -> list[Array]:
    """The change of the results per step along a direction, by central differences."""
    sides = []
    for sign in (1, -1):
        moved = [p.array() + sign * step * d for p, d in zip(points, direction, strict=True)]
        sides.append(arrays_of(function, *as_tensors(moved)))
    up, down = ([a.astype(np.result_type(a, np.float64)) for a in side] for side in sides)
    return [(a - b) / (2 * step) for a, b in zip(up, down, strict=True)]


def _pull(function: Function, points: list[Tensor], cotangents: list[Array]) -> list[Array]:
    _, pullback = vjp(function, *points)
    return [np.array(g.array()) for g in pullback(tuple(as_tensors(cotangents)))]


def _push(function: Function, points: list[Tensor], direction: list[Array]) -> list[Array]:
    _, moved = jvp(function, tuple(points), tuple(as_tensors(direction)))
    return [np.array(t.array()) for t in moved]


def _check_slopes(what: str, function: Function, points: list[Tensor]) -> None:
    """Reverse and forward mode against central differences, in one random direction per input."""
    values = arrays_of(function, *points)
    if not values:
        return
    cotangents = random_like(values, seed=1)
    gradients = _pull(function, points, cotangents)
    precision = _precision([*values, *(p.array() for p in points)])
    # Numbers of fewer bits than float64 are differenced with a larger step and error.
    tolerance = max(_SLOPE_TOLERANCE, 10 * precision ** (2 / 3))
    for k, point in enumerate(points):
        direction = [np.zeros_like(p.array()) for p in points]
        direction[k] = random_like([point.array()], seed=2 + k)[0]
        slope = _slope(function, points, direction, step=precision ** (1 / 3))
        scale = 1 + size_of(cotangents) * (size_of(slope) + size_of(values))
        expected = inner(cotangents, slope)
        ensure_near(
            f"{what}: the gradient by input {k}",
            inner(gradients, direction), expected, tolerance * scale,
        )  # fmt: skip
        ensure_near(
            f"{what}: the forward derivative by input {k}",
            inner(cotangents, _push(function, points, direction)), expected, tolerance * scale,
        )  # fmt: skip


def check_gradient(sample: Sample) -> None:
    """The first derivative is the slope."""
    subject = Subject(sample)
    _check_slopes(f"{sample}", subject.function, subject.points())


def gradient_function(function: Function, count: int) -> Function:
    """From ``count`` points and the cotangents of the results to the gradients by the points."""

    def gradients(*values: Tensor) -> tuple[Tensor, ...]:
        _, pullback = vjp(function, *values[:count])
        found = pullback(tuple(values[count:]))
        return tuple(g for g in found)

    return gradients


def _first_gradient(subject: Subject) -> tuple[Function, list[Tensor]]:
    """The gradient as a function of points and cotangents, and where to look at it."""
    points = subject.points()
    cotangents = as_tensors(random_like(arrays_of(subject.function, *points), seed=3))
    return gradient_function(subject.function, len(points)), [*points, *cotangents]


def check_second_gradient(sample: Sample) -> None:
    """The derivative of the gradient is the slope of the gradient."""
    function, points = _first_gradient(Subject(sample))
    _check_slopes(f"{sample} (second order)", function, points)


def check_transpose(sample: Sample) -> None:
    """Forward and reverse mode are each other's transpose: <J v, u> = <v, J' u>."""
    subject = Subject(sample)
    _check_transpose(f"{sample}", subject.function, subject.points())


def check_mixed_orders(sample: Sample) -> None:
    """Forward over reverse and reverse over reverse give the same second derivative."""
    function, points = _first_gradient(Subject(sample))
    _check_transpose(f"{sample} (second order)", function, points)


def _check_transpose(what: str, function: Function, points: list[Tensor]) -> None:
    values = arrays_of(function, *points)
    direction = random_like([p.array() for p in points], seed=4)
    cotangents = random_like(values, seed=5)
    pushed = _push(function, points, direction)
    pulled = _pull(function, points, cotangents)
    scale = size_of(direction) * size_of(pulled) + size_of(cotangents) * size_of(pushed)
    # Numbers of fewer bits than float64 carry their own rounding.
    tolerance = max(_SAME_SUM, 4 * _precision([*values, *direction]))
    ensure_near(
        f"{what}: <J v, u> and <v, J' u>",
        inner(pushed, cotangents), inner(direction, pulled), tolerance * scale,
    )  # fmt: skip


# -- many examples at once ----------------------------------------------------------------------

_EXAMPLES = 3


def _rolled(array: Array, k: int) -> Array:
    return np.roll(array.reshape(-1), k).reshape(array.shape)


def _shrunk(array: Array, k: int) -> Array:
    return (array * (1 - 0.05 * k)).astype(array.dtype) if array.dtype.kind in "fc" else array


def _same(array: Array, k: int) -> Array:
    return array


# Ways to make further examples out of one, the most telling first; which of them a row can take
# depends on the row (a positive definite matrix is not one after its elements were exchanged).
_VARIATIONS = (_rolled, _shrunk, _same)


def check_vmap(sample: Sample) -> None:
    """A batch gives what its examples give: each array batched alone, and all together."""
    subject = Subject(sample)
    count = len(subject.arrays)
    choices: list[list[int | None]] = []
    for k in range(count):
        for dim in (0, -1):
            choices.append([dim if i == k else None for i in range(count)])
    if count > 1:
        choices += [[-(i % 2) for i in range(count)], [-((i + 1) % 2) for i in range(count)]]
    for dims in choices:
        _check_batch(subject, dims)


def _check_batch(subject: Subject, dims: list[int | None]) -> None:
    examples, expected = _loop(subject, dims)
    batch = [
        from_array(parts[0].copy() if dim is None else np.stack(parts, axis=dim))
        for parts, dim in zip(zip(*examples, strict=True), dims, strict=True)
    ]
    evergrad.manual_seed(SEED)
    with using(grad=False):
        found = vmap(subject.call, in_dims=tuple(dims), randomness="different")(*batch)
    ensure_all_close(
        f"{subject.sample}: vmap with in_dims={tuple(dims)}",
        [out.array() for out in found], expected, subject.sample.tolerance,
    )  # fmt: skip


def _loop(subject: Subject, dims: list[int | None]) -> tuple[list[list[Array]], list[Array]]:
    """Examples of which the batched arrays differ, and the results of all of them, stacked."""
    for vary in _VARIATIONS:
        examples = [
            [a if dim is None else vary(a, k) for a, dim in zip(subject.arrays, dims, strict=True)]
            for k in range(_EXAMPLES)
        ]
        evergrad.manual_seed(SEED)
        try:
            results = [arrays_of(subject.call, *as_tensors(example)) for example in examples]
            return examples, [np.stack(column) for column in zip(*results, strict=True)]
        except (RuntimeError, ValueError, IndexError):
            if vary is _same:
                raise
    raise AssertionError("unreachable: the last variation returns or raises")


# -- programs -----------------------------------------------------------------------------------


def check_trace(sample: Sample) -> None:
    """The traced program is well formed, holds the row, and computes the very same bits."""
    subject = Subject(sample)
    tensors = subject.tensors()
    expected = arrays_of(subject.seeded_call, *tensors)
    with using(grad=False):
        traced = trace(subject.call, [t._type for t in tensors])
    traced.graph.check()
    ensure(
        any(eqn.op.name == sample.row for eqn in traced.graph.equations),
        f"{sample}: the call never comes to the row {sample.row!r}:\n{traced.graph}",
    )
    smaller = traced.graph.without_dead_code()
    smaller.check()
    for graph in (traced.graph, smaller):
        evergrad.manual_seed(SEED)
        with using(grad=False):
            found = [out.array() for out in interpret(graph, *tensors)]
        ensure(
            len(found) == len(expected) and all(map(_identical, found, expected)),
            f"{sample}: the traced program gives {found}, the call {expected}\n{graph}",
        )


def _identical(actual: Array, expected: Array) -> bool:
    return (
        actual.shape == expected.shape
        and actual.dtype == expected.dtype
        and actual.tobytes() == expected.tobytes()
    )


# -- element types ------------------------------------------------------------------------------

# Rounding units allowed between a result and the float64 result rounded to its type. 16-bit floats
# are computed in float32 and rounded once, which leaves the last bit open; float32 arithmetic and
# functions are good for a few units each, and rows do several in turn.
_ULPS = {"float32": 16, "float16": 1, "bfloat16": 1}


def check_low_precision(sample: Sample) -> None:
    """In fewer bits the result is the float64 result, but for rounding."""
    subject = Subject(sample)
    for name in sample.dtypes:
        low = dtypes.BY_NAME[name]
        if low.itemsize < 4 and any(a.dtype.kind == "c" for a in subject.arrays):
            continue  # there are no complex numbers of 16-bit floats
        inputs = [_rounded(a, low) for a in subject.arrays]
        exact = [
            a.astype(b.dtype) if b.dtype.kind in "fc" else a
            for a, b in zip(inputs, subject.arrays, strict=True)
        ]
        found = arrays_of(subject.seeded_call, *as_tensors(inputs))
        expected = arrays_of(subject.seeded_call, *as_tensors(exact))
        ensure(len(found) == len(expected), f"{sample} in {name}: another number of results")
        scale = _cancelling_scale(subject, exact)
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            _ensure_within_ulps(f"{sample} in {name}, result {i}", a, b, _ULPS[name], scale)


def _rounded(array: Array, low: dtypes.dtype) -> Array:
    if array.dtype.kind == "c":
        return array.astype(low.to_complex().np)
    return array.astype(low.np) if array.dtype.kind == "f" else array


def _cancelling_scale(subject: Subject, inputs: list[Array]) -> float:
    """Sums round in proportion to what is added, not to what is left; single elements do not."""
    if subject.row.family == "elementwise" and len(inputs) == 1:
        return 0.0
    sizes = [float(np.abs(a).max()) for a in inputs if a.dtype.kind in "fc" and a.size]
    return max(sizes, default=0.0)


def _ensure_within_ulps(
    what: str, actual: Array, expected: Array, ulps: int, scale: float
) -> None:
    if actual.dtype.kind in "biu":
        ensure_close(what, actual, expected, 0.0)
        return
    with np.errstate(over="ignore"):
        rounded = expected.astype(actual.dtype)
    finite = np.abs(rounded[np.isfinite(rounded)].astype(np.complex128))
    if scale:
        scale = max(scale, float(finite.max()) if finite.size else 0.0)
    info = ml_dtypes.finfo(actual.dtype)
    # Below the smallest normal number the spacing no longer shrinks.
    ensure_close(what, actual, rounded, ulps * float(info.eps), max(scale, float(info.tiny)))


# -- memory -------------------------------------------------------------------------------------


def _transposed(array: Array) -> Tensor:
    """The same elements with the first dimension innermost in memory."""
    order = tuple(reversed(range(array.ndim)))
    return evergrad.permute(from_array(np.ascontiguousarray(array.transpose(order))), order)


def _strided(array: Array) -> Tensor:
    """The same elements, every other one of a larger buffer."""
    from evergrad.ops.movement import slice_dim

    buffer = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    buffer[..., ::2] = array
    return slice_dim(from_array(buffer), array.ndim - 1, 0, buffer.shape[-1], 2)


def _offset(array: Array) -> Tensor:
    """The same elements, further back in a larger buffer."""
    from evergrad.ops.movement import slice_dim

    buffer = np.concatenate([array[:1], array, array[:1]])
    return slice_dim(from_array(buffer), 0, len(buffer) - 1 - len(array), len(buffer) - 1)


_LAYOUTS = (_transposed, _strided, _offset)


def check_strides(sample: Sample) -> None:
    """Where the elements lie in memory changes neither the result nor the gradient."""
    subject = Subject(sample)
    plain = subject.tensors()
    expected = arrays_of(subject.seeded_call, *plain)
    expected_gradients = _gradients(subject, plain)
    for layout in _LAYOUTS:
        laid = [layout(a) if a.ndim else from_array(a.copy()) for a in subject.arrays]
        what = f"{sample} on inputs {layout.__name__[1:]}"
        found = arrays_of(subject.seeded_call, *laid)
        ensure_all_close(what, found, expected, sample.tolerance)
        gradients = _gradients(subject, laid)
        ensure_all_close(f"{what}, gradient", gradients, expected_gradients, sample.tolerance)


def _gradients(subject: Subject, tensors: list[Tensor]) -> list[Array]:
    """Gradients with a cotangent that is one number expanded, as ``sum().backward()`` gives."""
    if not (subject.row.differentiable and subject.active):
        return []

    def function(*points: Tensor) -> tuple[Tensor, ...]:
        given = list(tensors)
        for k, point in zip(subject.active, points, strict=True):
            given[k] = point
        return tuple(out for out in subject.seeded_call(*given) if is_continuous(out))

    outputs, pullback = vjp(function, *[tensors[k] for k in subject.active])
    cotangents = [evergrad.ones((), dtype=out.dtype).expand(out.shape) for out in outputs]
    return [np.array(g.array()) for g in pullback(tuple(cotangents))]


def check_purity(sample: Sample) -> None:
    """Inputs stay as they are; results share their memory only where the row says so."""
    subject = Subject(sample)
    tensors = subject.tensors()
    before = [checksum(t.array()) for t in tensors]
    held = LEDGER.live
    with using(grad=False):
        results = subject.seeded_call(*tensors)
    taken = LEDGER.live - held
    ensure([checksum(t.array()) for t in tensors] == before, f"{sample}: an input was changed")
    ensure(all(t._version == 0 for t in tensors), f"{sample}: an input was written to")
    shared = any(out._storage is t._storage for out in results for t in tensors)
    overlapping = any(np.may_share_memory(o.array(), t.array()) for o in results for t in tensors)
    ensure(shared or not overlapping, f"{sample}: a result lies in the memory of an input")
    if not subject.row.alias:
        ensure(not shared, f"{sample}: a result is a view of an input, but the row is none")
    elif tensors and subject.row.alias != "reshape":
        ensure(shared and taken == 0, f"{sample}: a view took {taken} bytes")


@contextmanager
def _without_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_ORDERS = 3


def check_leaks(sample: Sample) -> None:
    """Reference counts alone free the graph of a call and of its derivatives up to the third."""
    subject = Subject(sample)
    orders = _ORDERS if subject.row.differentiable and subject.active else 0
    _differentiate(subject, orders)  # fills the caches of rules and plans
    with _without_collector():
        for order in range(orders + 1):
            live, count = LEDGER.live, LEDGER.count
            _differentiate(subject, order)
            ensure(
                LEDGER.live == live and LEDGER.count == count,
                f"{sample}: {LEDGER.live - live} bytes in {LEDGER.count - count} storages are left "
                f"after derivatives of order {order}",
            )


def _differentiate(subject: Subject, order: int) -> None:
    points = [p.requires_grad_() for p in subject.points()]
    results = [out for out in subject.function(*points) if out.requires_grad]
    for _ in range(order):
        if not results:
            return
        cotangents = as_tensors(random_like([out.array() for out in results], seed=6))
        found = evergrad.autograd.grad(
            results, points, cotangents, create_graph=True, allow_unused=True
        )
        results = [g for g in found if g is not None and g.requires_grad]


# -- all of them --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A check, and the samples it has something to say about."""

    run: Callable[[Sample], None]
    applies: Callable[[Sample], bool]


def has_derivative(sample: Sample) -> bool:
    """Whether the row has a derivative and the sample inputs at which it exists."""
    subject = Subject(sample)
    return sample.smooth and subject.row.differentiable and bool(subject.active)


def _is_small(sample: Sample) -> bool:
    return has_derivative(sample) and sum(a.size for a in Subject(sample).arrays) <= 120


def _has_arrays(sample: Sample) -> bool:
    return bool(Subject(sample).arrays)


def _has_floats(sample: Sample) -> bool:
    return any(a.dtype.kind in "fc" for a in Subject(sample).arrays) and bool(sample.dtypes)


def _always(sample: Any) -> bool:
    return True


CHECKS = {
    "value": Check(check_value, lambda sample: sample.reference is not None),
    "gradient": Check(check_gradient, has_derivative),
    "second_gradient": Check(check_second_gradient, _is_small),
    "transpose": Check(check_transpose, has_derivative),
    "mixed_orders": Check(check_mixed_orders, _is_small),
    "vmap": Check(check_vmap, _has_arrays),
    "trace": Check(check_trace, _always),
    "low_precision": Check(check_low_precision, _has_floats),
    "strides": Check(check_strides, _has_arrays),
    "purity": Check(check_purity, _always),
    "leaks": Check(check_leaks, _always),
}
