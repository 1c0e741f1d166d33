"""Convolution and correlation of lists of arrays whose shapes differ.

An operand is a list of items of known shapes, all of their elements in one dimension: ``shapes``
says how the last dimension of the tensor divides into items; dimensions before it are batch
dimensions. Arrays are continued with zeros on every side, so the parts that are wanted of a result
(``out_shapes``) are free, and the two rows are each other's transposes::

    convolve(a, b)[k]  = sum over i of  a[i] b[k - i]
    correlate(a, b)[k] = sum over i of  a[k + i] b[i]

No item is padded to the shape of another: the cost is the sum of the costs of the items. Each of
them is computed directly or by Fourier transforms, whichever the cost model expects to be faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import bilinear, meet
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import Shape, TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.indexing.index import at_front, batch_size

Shapes = tuple[Shape, ...]
Dims = Sequence[int | None]

# Nanoseconds, fitted on one core (bench/ragged.py prints both ways side by side): a call, an
# element of the result and a multiplication of the direct way; a call of the way by rows, and a
# multiplication; two transforms and their inverse, and a place times the logarithm of the places.
_DIRECT_CALL, _DIRECT_ELEMENT, _DIRECT_PRODUCT = 1_000.0, 5.0, 0.14
_ROWS_CALL, _ROWS_PRODUCT = 4_000.0, 1.0
_FFT_CALL, _FFT_PLACE = 12_000.0, 2.2


# -- one item -----------------------------------------------------------------------------------


def _part(x: Array, start: Shape, shape: Shape) -> Array:
    """The part of an array ``[batch, *own shape]`` from ``start`` on, zeros where it has none."""
    own = x.shape[1:]
    begins = [min(max(s, 0), n) for s, n in zip(start, own, strict=True)]
    ends = [min(max(s + m, 0), n) for s, m, n in zip(start, shape, own, strict=True)]
    inner = x[(slice(None), *(slice(b, e) for b, e in zip(begins, ends, strict=True)))]
    if inner.shape[1:] == shape:
        return inner
    out = np.zeros((x.shape[0], *shape), x.dtype)
    if inner.size:
        places = (
            slice(b - s, b - s + n) for b, s, n in zip(begins, start, inner.shape[1:], strict=True)
        )
        out[(slice(None), *places)] = inner
    return out


def _indices(shape: Shape) -> Iterator[Shape]:
    return itertools.product(*map(range, shape))


def _by_dots(a: Array, b: Array, start: int, size: int) -> Array:
    """Vectors, each element of the result a scalar product."""
    kernel = b.shape[1]
    signal = _part(a, (start - kernel + 1,), (size + kernel - 1,))
    return np.stack([np.convolve(x, y, "valid") for x, y in zip(signal, b, strict=True)])


def _by_rows(a: Any, b: Any, start: Shape, shape: Shape) -> Array:
    """The sum over the elements of ``b`` of ``a`` shifted and scaled."""
    out = np.zeros((a.shape[0], *shape), np.result_type(a, b))
    for place in _indices(b.shape[1:]):
        shifted = _part(a, tuple(s - i for s, i in zip(start, place, strict=True)), shape)
        out += shifted * b[(slice(None), *place)].reshape(len(a), *(1,) * len(shape))
    return out


def _by_elements(a: Array, b: Array, start: Shape, shape: Shape) -> Any:
    """Each element of the result as the sum of a product of two arrays."""
    out: Any = np.zeros((a.shape[0], *shape), np.result_type(a, b))
    kernel = b.shape[1:]
    reverse = b[(slice(None), *(slice(None, None, -1) for _ in kernel))]
    for place in _indices(shape):
        first = tuple(s + i - m + 1 for s, i, m in zip(start, place, kernel, strict=True))
        product = _part(a, first, kernel) * reverse
        out[(slice(None), *place)] = product.reshape(len(product), -1).sum(1)
    return out


def _transform_length(n: int) -> int:
    """The least number of the form 2^i, 3 * 2^i or 5 * 2^i that is not below ``n``."""
    return min(f << max(0, math.ceil(math.log2(n / f))) for f in (1, 3, 5))


def _by_transforms(a: Array, b: Array, start: Shape, shape: Shape) -> Array:
    """The whole convolution by Fourier transforms in double precision, and the part of it."""
    wide: Any = np.result_type(a, b, np.float64)
    axes = tuple(range(1, a.ndim))
    full = [n + m - 1 for n, m in zip(a.shape[1:], b.shape[1:], strict=True)]
    lengths = [_transform_length(n) for n in full]
    pair: Any = (np.fft.fftn, np.fft.ifftn) if wide.kind == "c" else (np.fft.rfftn, np.fft.irfftn)
    forth, back = pair
    product = forth(a, lengths, axes) * forth(b, lengths, axes)
    found = _part(back(product, lengths, axes), (0,) * len(full), tuple(full))
    return _part(found, start, shape)


def _cost_of_rows(elements: int, others: int) -> float:
    return elements * (_ROWS_CALL + _ROWS_PRODUCT * others)


def convolved(a: Array, b: Array, start: Shape, shape: Shape) -> Any:
    """The part of the convolution of ``[batch, *n]`` and ``[batch, *m]`` from ``start`` on."""
    batch, dtype = a.shape[0], np.result_type(a, b)
    n, m, size = math.prod(a.shape[1:]), math.prod(b.shape[1:]), math.prod(shape)
    if not (batch and n and m and size):
        return np.zeros((batch, *shape), dtype)
    if n < m:
        a, b, n, m = b, a, m, n
    ways = [
        (_cost_of_rows(m, size * batch), _by_rows),
        (_cost_of_rows(size, m * batch), _by_elements),
    ]
    if len(shape) == 1 and dtype.kind in "fciu":
        cost = batch * (_DIRECT_CALL + size * (_DIRECT_ELEMENT + _DIRECT_PRODUCT * m))
        ways.append((cost, lambda a, b, start, shape: _by_dots(a, b, *start, *shape)))
    cheapest, way = min(ways, key=lambda pair: pair[0])
    if dtype.kind in "fc":
        pairs = zip(a.shape[1:], b.shape[1:], strict=True)
        places = batch * math.prod(_transform_length(i + j - 1) for i, j in pairs)
        if _FFT_CALL + _FFT_PLACE * places * math.log2(places + 1) < cheapest:
            found = _by_transforms(a, b, start, shape)
            # One infinity or NaN reaches every place of a transform.
            if np.isfinite(found).all():
                return found.astype(dtype, copy=False)
    return way(a, b, start, shape)


# -- all items ----------------------------------------------------------------------------------


def _items(x: Array, shapes: Shapes, rank: int) -> list[Any]:
    """The items of ``[batch, elements]``, with singleton dimensions behind up to a common rank."""
    ends = list(itertools.accumulate((math.prod(s) for s in shapes), initial=0))
    return [
        x[:, begin:end].reshape(len(x), *shape, *(1,) * (rank - len(shape)))
        for shape, (begin, end) in zip(shapes, itertools.pairwise(ends), strict=True)
    ]


def _evaluate(a: Array, b: Array, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes,
              correlate: bool) -> Array:  # fmt: skip
    batch, count = a.shape[:-1], math.prod(a.shape[:-1])
    rank = max((len(s) for s in (*a_shapes, *b_shapes, *out_shapes)), default=1)
    items = zip(
        _items(a.reshape(count, a.shape[-1]), a_shapes, rank),
        _items(b.reshape(count, b.shape[-1]), b_shapes, rank),
        out_shapes, strict=True,
    )  # fmt: skip
    found = []
    for x, y, shape in items:
        start = (0,) * rank
        if correlate:
            start = tuple(m - 1 for m in y.shape[1:])
            y = y[(slice(None), *(slice(None, None, -1),) * rank)]
        part = convolved(x, y, start, (*shape, *(1,) * (rank - len(shape))))
        found.append(part.reshape(len(part), math.prod(shape)))
    if not found:
        return np.zeros((*batch, 0), a.dtype)
    whole = found[0] if len(found) == 1 else np.concatenate(found, 1)
    return np.ascontiguousarray(whole).reshape(*batch, whole.shape[1])


def _type(
    a: TensorType, b: TensorType, *, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes
) -> TensorType:
    counts = [sum(map(math.prod, s)) for s in (a_shapes, b_shapes, out_shapes)]
    if (a.shape[-1], b.shape[-1]) != (counts[0], counts[1]) or a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(f"operands {a} and {b} have not the elements of {a_shapes}, {b_shapes}")
    return tensor_type((*a.shape[:-1], counts[2]), a.dtype)


def _batch(op: Op, args: Sequence[Tensor], dims: Dims, **attrs: object) -> Any:
    size = batch_size(args, dims)
    return bind(op, *[at_front(x, d, size) for x, d in zip(args, dims, strict=True)], **attrs), 0


def _convolve_transposes(
    g: Tensor, a: Tensor, b: Tensor, *, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes
) -> tuple[Tensor, Tensor]:
    return (
        correlate_items(g, conj(b), out_shapes, b_shapes, a_shapes),
        correlate_items(g, conj(a), out_shapes, a_shapes, b_shapes),
    )


def _correlate_transposes(
    g: Tensor, a: Tensor, b: Tensor, *, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes
) -> tuple[Tensor, Tensor]:
    return (
        convolve_items(g, conj(b), out_shapes, b_shapes, a_shapes),
        correlate_items(conj(a), g, a_shapes, out_shapes, b_shapes),
    )


CONVOLVE_ITEMS = bilinear(
    "convolve_items", lambda a, b, **attrs: _evaluate(a, b, correlate=False, **attrs), _type,
    _convolve_transposes, batch=_batch, promote=meet, autocast=AutocastPolicy.KEEP,
    emit=numpy_evaluates("scalar products or Fourier transforms"),
    doc="Convolutions of items of any shapes, continued with zeros.",
)  # fmt: skip
CORRELATE_ITEMS = bilinear(
    "correlate_items", lambda a, b, **attrs: _evaluate(a, b, correlate=True, **attrs), _type,
    _correlate_transposes, batch=_batch, promote=meet, autocast=AutocastPolicy.KEEP,
    emit=numpy_evaluates("scalar products or Fourier transforms"),
    doc="Correlations of items of any shapes, continued with zeros: convolution's transposes.",
)  # fmt: skip


def convolve_items(
    a: Tensor, b: Tensor, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes
) -> Tensor:
    """Convolve items one by one; the elements of each are side by side in the last dimension."""
    return bind(  # type: ignore[no-any-return]
        CONVOLVE_ITEMS, a, b, a_shapes=a_shapes, b_shapes=b_shapes, out_shapes=out_shapes
    )


def correlate_items(
    a: Tensor, b: Tensor, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes
) -> Tensor:
    """Correlate items one by one; the elements of each are side by side in the last dimension."""
    return bind(  # type: ignore[no-any-return]
        CORRELATE_ITEMS, a, b, a_shapes=a_shapes, b_shapes=b_shapes, out_shapes=out_shapes
    )
