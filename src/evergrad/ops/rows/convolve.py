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
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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
# a and b as [batch, *shape], the first place of the wanted part, its shape
Way = Callable[[Any, Any, Shape, Shape], Any]

# Nanoseconds, fitted on one core (bench/ragged.py prints both ways side by side): a call, an
# element of the result and a multiplication of the direct way; a call of the way by rows, and a
# multiplication; two transforms and their inverse, and a place times the logarithm of the places.
_DIRECT_CALL, _DIRECT_ELEMENT, _DIRECT_PRODUCT = 1_000.0, 5.0, 0.14
_ROWS_CALL, _ROWS_PRODUCT = 4_000.0, 1.0
_FFT_CALL, _FFT_PLACE = 12_000.0, 2.2

# Transforms of one length are computed together, up to so many places at a time: more leave the
# second-level cache.
_GROUP_PLACES = 1 << 13


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


def _by_dots(a: Array, b: Array, start: Shape, shape: Shape) -> Array:
    """Vectors, each element of the result a scalar product."""
    kernel = b.shape[1]
    signal = _part(a, (start[0] - kernel + 1,), (shape[0] + kernel - 1,))
    if len(signal) == 1:
        return np.convolve(signal[0], b[0], "valid")[None]
    return np.stack([np.convolve(x, y, "valid") for x, y in zip(signal, b, strict=True)])


def _by_rows(a: Any, b: Any, start: Shape, shape: Shape) -> Array:
    """The sum over the elements of ``b`` of ``a`` shifted and scaled."""
    out = np.zeros((a.shape[0], *shape), np.result_type(a, b))
    for place in _indices(b.shape[1:]):
        shifted = _part(a, tuple(s - i for s, i in zip(start, place, strict=True)), shape)
        out += shifted * b[(slice(None), *place)].reshape(len(a), *(1,) * len(shape))
    return out


def _by_elements(a: Array, b: Array, start: Shape, shape: Shape) -> object:
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


def _by_transforms(pairs: Sequence[tuple[Array, Array]], lengths: Shape) -> Array:
    """Whole convolutions of pairs by Fourier transforms of these lengths, in double precision."""
    batch, rank = len(pairs[0][0]), len(lengths)
    is_complex = any(x.dtype.kind == "c" for pair in pairs for x in pair)
    both = np.zeros((2, len(pairs), batch, *lengths), np.complex128 if is_complex else np.float64)
    for number, pair in enumerate(pairs):
        for target, x in zip(both, pair, strict=True):
            target[(number, slice(None), *map(slice, x.shape[1:]))] = x
    if rank == 1:
        forth, back = (np.fft.fft, np.fft.ifft) if is_complex else (np.fft.rfft, np.fft.irfft)
        first, second = forth(both)
        first *= second
        return back(first, lengths[0])
    axes = tuple(range(-rank, 0))
    if is_complex:
        first, second = np.fft.fftn(both, axes=axes)
        return np.fft.ifftn(first * second, axes=axes)
    first, second = np.fft.rfftn(both, axes=axes)
    return np.fft.irfftn(first * second, lengths, axes)


# -- which way ----------------------------------------------------------------------------------


def _cost_of_rows(elements: int, others: int) -> float:
    return elements * (_ROWS_CALL + _ROWS_PRODUCT * others)


def _by_nothing(a: Array, b: Array, start: Shape, shape: Shape) -> Array:
    return np.zeros((a.shape[0], *shape), np.result_type(a, b))


def _direct_way(n: int, m: int, shape: Shape, batch: int, kind: str) -> tuple[float, Way]:
    """The cheapest way for ``n`` by ``m`` elements, ``n >= m``, but for transforms."""
    size = math.prod(shape)
    if not (batch and n and m and size):
        return 0.0, _by_nothing
    ways: list[tuple[float, Way]] = [
        (_cost_of_rows(m, size * batch), _by_rows),
        (_cost_of_rows(size, m * batch), _by_elements),
    ]
    if len(shape) == 1 and kind in "fciu":
        cost = batch * (_DIRECT_CALL + size * (_DIRECT_ELEMENT + _DIRECT_PRODUCT * m))
        ways.append((cost, _by_dots))
    return min(ways, key=lambda pair: pair[0])


class Item(NamedTuple):
    """One convolution: where its operands and its result are, their shapes, the part wanted, the
    direct way, and the lengths of transforms if these are expected to be faster."""

    places: tuple[slice, slice, slice]
    n: Shape
    m: Shape
    start: Shape
    shape: Shape
    way: Way
    lengths: Shape | None

    def operands(self, a: Array, b: Array, correlate: bool) -> tuple[Array, Array]:
        """The two arrays, ``[batch, *shape]``."""
        x, y = a[:, self.places[0]], b[:, self.places[1]]
        if correlate:
            y = y[:, ::-1]
        return x.reshape(len(x), *self.n), y.reshape(len(y), *self.m)


def _item(
    places: tuple[slice, slice, slice], shapes: Sequence[Shape], batch: int, kind: str,
    correlate: bool,
) -> Item:  # fmt: skip
    n, m, shape = shapes
    start = tuple(i - 1 for i in m) if correlate else (0,) * len(m)
    small, large = sorted((math.prod(n), math.prod(m)))
    cost, way = _direct_way(large, small, shape, batch, kind)
    lengths: Shape | None = None
    if kind in "fc" and cost:
        lengths = tuple(_transform_length(i + j - 1) for i, j in zip(n, m, strict=True))
        places_of_all = batch * math.prod(lengths)
        if _FFT_CALL + _FFT_PLACE * places_of_all * math.log2(places_of_all + 1) >= cost:
            lengths = None
    return Item(places, n, m, start, shape, way, lengths)


@lru_cache(maxsize=64)
def _plan(
    a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes, batch: int, kind: str, correlate: bool
) -> tuple[list[Item], list[list[Item]]]:
    """Items that are computed directly, and groups whose transforms have the same lengths."""
    layouts = (a_shapes, b_shapes, out_shapes)
    rank = max((len(s) for shapes in layouts for s in shapes), default=1)
    bounds = [list(itertools.accumulate(map(math.prod, s), initial=0)) for s in layouts]
    slices = [list(itertools.starmap(slice, itertools.pairwise(ends))) for ends in bounds]
    direct: list[Item] = []
    groups: dict[Shape, list[list[Item]]] = {}
    for places, shapes in zip(
        zip(*slices, strict=True), zip(*layouts, strict=True), strict=True
    ):  # fmt: skip
        ranked = [(*s, *(1,) * (rank - len(s))) for s in shapes]
        item = _item(places, ranked, batch, kind, correlate)
        if item.lengths is None:
            direct.append(item)
            continue
        most = max(1, _GROUP_PLACES // (batch * math.prod(item.lengths)))
        chunks = groups.setdefault(item.lengths, [[]])
        if len(chunks[-1]) == most:
            chunks.append([])
        chunks[-1].append(item)
    return direct, [chunk for chunks in groups.values() for chunk in chunks]


# -- all items ----------------------------------------------------------------------------------


def _compute_directly(item: Item, x: object, y: object, out: Array) -> None:
    if math.prod(item.n) < math.prod(item.m):
        x, y = y, x
    found = item.way(x, y, item.start, item.shape)
    out[:, item.places[2]] = found.reshape(len(out), -1)


def _compute_group(group: list[Item], a: Array, b: Array, out: Array, correlate: bool) -> None:
    """By transforms. One infinity or NaN reaches every place of an item: that is computed
    directly."""
    pairs = [item.operands(a, b, correlate) for item in group]
    lengths = group[0].lengths
    assert lengths is not None
    found = _by_transforms(pairs, lengths)
    is_finite = bool(np.isfinite(found).all())
    for item, pair, whole in zip(group, pairs, found, strict=True):
        if not is_finite and not np.isfinite(whole).all():
            _compute_directly(item, *pair, out)
            continue
        full = [n + m - 1 for n, m in zip(item.n, item.m, strict=True)]
        whole = whole[(slice(None), *map(slice, full))]
        out[:, item.places[2]] = _part(whole, item.start, item.shape).reshape(len(out), -1)


def _evaluate(a: Array, b: Array, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes,
              correlate: bool) -> Array:  # fmt: skip
    batch, count = a.shape[:-1], math.prod(a.shape[:-1])
    size = sum(map(math.prod, out_shapes))
    dtype: Any = np.result_type(a, b)
    out: Array = np.empty((count, size), dtype)
    if count:
        a, b = a.reshape(count, a.shape[-1]), b.reshape(count, b.shape[-1])
        direct, groups = _plan(a_shapes, b_shapes, out_shapes, count, dtype.kind, correlate)
        for item in direct:
            _compute_directly(item, *item.operands(a, b, correlate), out)
        for group in groups:
            _compute_group(group, a, b, out, correlate)
    return out.reshape(*batch, size)


def _type(
    a: TensorType, b: TensorType, *, a_shapes: Shapes, b_shapes: Shapes, out_shapes: Shapes
) -> TensorType:
    counts = [sum(map(math.prod, s)) for s in (a_shapes, b_shapes, out_shapes)]
    if (a.shape[-1], b.shape[-1]) != (counts[0], counts[1]) or a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(f"operands {a} and {b} have not the elements of {a_shapes}, {b_shapes}")
    return tensor_type((*a.shape[:-1], counts[2]), a.dtype)


def _batch(op: Op, args: Sequence[Tensor], dims: Dims, **attrs: object) -> tuple[Tensor, int]:
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
