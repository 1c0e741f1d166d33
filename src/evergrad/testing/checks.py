"""What every row of the op table must satisfy, as plain functions of a sample.

Each check raises :class:`CheckError` (an ``AssertionError``) that says what is wrong with which
result. The checks need nothing but NumPy: a test suite adds comparisons with another library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from evergrad.core import dtypes
from evergrad.core.interpret import interpret
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.rng.default_generator import manual_seed
from evergrad.core.row_facts import Cost
from evergrad.core.state import using
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.trace import Graph
from evergrad.core.traced_function import trace
from evergrad.core.vmap import vmap
from evergrad.testing.derivatives import (
    check_gradient,
    check_mixed_orders,
    check_second_gradient,
    check_transpose,
    first_gradient,
)
from evergrad.testing.memory import check_leaks, check_purity, check_strides
from evergrad.testing.samples import Sample
from evergrad.testing.samples.table import all_samples
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
)

# -- rows ---------------------------------------------------------------------------------------

FAMILIES = ("elementwise", "linear", "bilinear", "reduction", "opaque")


def check_row(row: Op) -> None:
    """The row is documented, sampled, and states its derivative and what the compiler, autocast and
    eager mode need."""
    name = row.name
    ensure(bool(all_samples().get(name)), f"{name} has no sample in evergrad.testing.samples")
    ensure(bool(row.doc.strip()), f"{name} has no doc")
    ensure(row.family in FAMILIES, f"{name} is of the unknown family {row.family!r}")
    ensure(
        callable(row.vjp) or row.vjp == NONDIFFERENTIABLE,
        f"{name} has no derivative and does not say NONDIFFERENTIABLE",
    )
    ensure(
        row.emit.function is not None or bool(row.emit.reason.strip()),
        f"{name} states neither how an element is emitted nor what evaluates it: give it "
        "emit=cheap(...), expensive(...), lowered(...) or numpy_evaluates(...)",
    )
    ensure(isinstance(row.emit.cost, Cost), f"{name} has no cost class")
    ensure(row.autocast is not None, f"{name} has no autocast policy: state autocast=...")
    ensure(  # what is drawn need not be smooth in the parameters of its distribution
        not row.differentiable or row.random or any(map(has_derivative, all_samples()[name])),
        f"{name} has a derivative, but no sample at which it is checked",
    )


# -- values -------------------------------------------------------------------------------------


def check_value(sample: Sample) -> None:
    """The result is that of the NumPy reference."""
    assert sample.reference is not None
    subject = Subject(sample)
    found = arrays_of(subject.seeded_call, *subject.tensors())
    with np.errstate(all="ignore"):
        expected = sample.reference(*sample.inputs)
    expected = expected if isinstance(expected, tuple | list) else (expected,)
    ensure_all_close(f"{sample}", found, expected, sample.tolerance)


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
    manual_seed(SEED)
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
        manual_seed(SEED)
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
    graph = _check_program(f"{sample}", subject.call, subject.tensors())
    ensure(
        any(eqn.op.name == sample.row for eqn in graph.equations),
        f"{sample}: the call never comes to the row {sample.row!r}:\n{graph}",
    )


def check_traced_gradient(sample: Sample) -> None:
    """So does the traced program of the gradient."""
    function, points = first_gradient(Subject(sample))
    _check_program(f"the gradient of {sample}", function, points)


def _check_program(what: str, function: Function, tensors: list[Tensor]) -> Graph:
    manual_seed(SEED)
    expected = arrays_of(function, *tensors)
    with using(grad=False):
        graph = trace(function, [t._type for t in tensors]).graph
    for program in (graph, graph.without_dead_code()):
        program.check()
        manual_seed(SEED)
        found = arrays_of(partial(interpret, program), *tensors)
        ensure(
            len(found) == len(expected) and all(map(_identical, found, expected)),
            f"{what}: the traced program gives {found}, the call {expected}\n{program}",
        )
    return graph


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


def _ensure_within_ulps(what: str, actual: Array, expected: Array, ulps: int, scale: float) -> None:
    if actual.dtype.kind in "biu":
        ensure_close(what, actual, expected, 0.0)
        return
    with np.errstate(over="ignore"):
        rounded = expected.astype(actual.dtype)
    finite = np.abs(rounded[np.isfinite(rounded)].astype(np.complex128))
    if scale:
        scale = max(scale, float(finite.max()) if finite.size else 0.0)
    info = dtypes.finfo(dtypes.from_numpy_dtype(actual.dtype))
    # Below the smallest normal number the spacing no longer shrinks.
    ensure_close(what, actual, rounded, ulps * info.eps, max(scale, info.tiny))


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


def _always(sample: object) -> bool:
    return True


CHECKS = {
    "value": Check(check_value, lambda sample: sample.reference is not None),
    "gradient": Check(check_gradient, has_derivative),
    "second_gradient": Check(check_second_gradient, _is_small),
    "transpose": Check(check_transpose, has_derivative),
    "mixed_orders": Check(check_mixed_orders, _is_small),
    "vmap": Check(check_vmap, _has_arrays),
    "trace": Check(check_trace, _always),
    "traced_gradient": Check(check_traced_gradient, has_derivative),
    "low_precision": Check(check_low_precision, _has_floats),
    "strides": Check(check_strides, lambda sample: sample.any_layout and _has_arrays(sample)),
    "purity": Check(check_purity, _always),
    "leaks": Check(check_leaks, _always),
}
