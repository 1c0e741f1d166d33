"""Checks of memory: where inputs lie, what is written, what is shared, and what is left behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import evergrad
from evergrad.core.state import using
from evergrad.core.storage import checksum
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.traced_function import trace
from evergrad.func import vjp
from evergrad.memory.ledger import LEDGER
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import permute
from evergrad.testing.samples import Sample
from evergrad.testing.subject import (
    Array,
    Subject,
    arrays_of,
    as_tensors,
    ensure,
    ensure_all_close,
    is_continuous,
    random_like,
    rounding_unit,
)


def _transposed(array: Array) -> Tensor:
    """The same elements with the first dimension innermost in memory."""
    order = tuple(reversed(range(array.ndim)))
    return permute(from_array(np.ascontiguousarray(array.transpose(order))), order)


def _strided(array: Array) -> Tensor:
    """The same elements, every other one of a larger buffer."""
    buffer = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    buffer[..., ::2] = array
    return slice_dim(from_array(buffer), array.ndim - 1, 0, buffer.shape[-1], 2)


def _offset(array: Array) -> Tensor:
    """The same elements, further back in a larger buffer."""
    buffer = np.concatenate([array[:1], array, array[:1]])
    start = min(1, len(array))
    return slice_dim(from_array(buffer), 0, start, start + len(array))


_LAYOUTS = (_transposed, _strided, _offset)


def check_strides(sample: Sample) -> None:
    """The strides of the arguments change neither the result nor the gradient, and what is no
    view of an input is contiguous."""
    subject = Subject(sample)
    plain = subject.tensors()
    expected = arrays_of(subject.seeded_call, *plain)
    expected_gradients = _gradients(subject, plain)
    for layout in _LAYOUTS:
        laid = [layout(a) if a.ndim else from_array(a.copy()) for a in subject.arrays]
        what = f"{sample} on inputs {layout.__name__[1:]}"
        with using(grad=False):
            results = subject.seeded_call(*laid)
        in_order = all(r.is_contiguous() for r in results if r._view is None)
        ensure(in_order, f"{what}: a result that is no view is not contiguous")
        found = [np.array(r.array()) for r in results]
        ensure_all_close(what, found, expected, sample.tolerance)
        gradients = [_without_noise(g, expected) for g in _gradients(subject, laid)]
        wanted = [_without_noise(g, expected) for g in expected_gradients]
        ensure_all_close(f"{what}, gradient", gradients, wanted, sample.tolerance)


def _without_noise(gradient: Array, results: list[Array]) -> Array:
    """A gradient with zeros for what is below the rounding of the results: that of ``sum()`` is
    zero for rows such as softmax, whose terms cancel but for that."""
    largest = max(
        [float(np.abs(r).max()) for r in results if r.size and r.dtype.kind == "f"] or [0]
    )
    if not np.isfinite(largest) or gradient.dtype.kind != "f":
        return gradient
    return np.where(np.abs(gradient) < rounding_unit(gradient.dtype) * largest, 0, gradient)


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
    shared = any(np.shares_memory(o.array(), t.array()) for o in results for t in tensors)
    if not subject.row.alias:
        ensure(not shared, f"{sample}: a result shares the memory of an input; the row is no view")
    elif _is_view(subject):
        empty = all(o.numel() == 0 for o in results)
        ensure(taken == 0, f"{sample}: the call is a view, but took {taken} bytes")
        ensure(shared or empty, f"{sample}: the call is a view, but shares no memory")


def _is_view(subject: Subject) -> bool:
    """Whether the call consists of nothing but rows that share memory."""
    with using(grad=False):
        graph = trace(subject.call, [t._type for t in subject.tensors()]).graph
    return bool(graph.equations) and all(eqn.op.alias for eqn in graph.equations)


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
