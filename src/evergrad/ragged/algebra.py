"""The operations on values; each takes tensors or batches, which are combined one by one.

All of them are made of rows of the op table, so gradients of any order, forward mode, ``vmap`` and
``compile`` follow. The transpose of an extension by zeros is the part that was extended: a gradient
has exactly the shape of its operand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import promote_types
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor as Dense
from evergrad.ops.composite.activations import widened
from evergrad.ops.composite.products import kron as dense_kron
from evergrad.ops.rows.convolve import convolve_items, correlate_items
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg.norms import vector_norm
from evergrad.ops.rows.movement.joining import stack as dense_stack
from evergrad.ops.rows.movement.views import reshape
from evergrad.ragged.batch import Batch, kron_places, raw_batch, repeated
from evergrad.ragged.value import (
    Tensor,
    Value,
    aligned,
    common_shape,
    convolved_shape,
    first_shape,
    kron_shape,
    one,
    refuse,
)

V = TypeVar("V", Tensor, Batch)


def operands(symbol: str, a: object, b: object) -> tuple[Any, Any]:
    """Two tensors, or two batches: a tensor beside a batch stands at all of its places."""
    if type(a) is type(b) and (type(a) is Batch or type(a) is Tensor):
        return a, b
    if not isinstance(a, Value) or not isinstance(b, Value):
        refuse(symbol, a, b)
    if isinstance(a, Batch) and isinstance(b, Tensor):
        return a, repeated(b, a.batch_shape)
    if isinstance(a, Tensor) and isinstance(b, Batch):
        return repeated(a, b.batch_shape), b
    return a, b


def operand(name: str, a: object) -> None:
    """Raise unless the one operand is a ragged value."""
    if not isinstance(a, Value):
        raise TypeError(
            f"{name}(): expected a ragged value, got {type(a).__module__}.{type(a).__name__}.\n"
            "  fix: convert it with ragged.tensor(x)."
        )


# -- a module over the numbers ------------------------------------------------------------------


def add(a: V, b: V) -> V:
    """The sum. Its shape is the elementwise maximum: ``[1, 2, 3] + [4, 5]`` is ``[5, 7, 3]``.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.add(a, b)
    ragged.tensor([5., 7., 3.])
    """
    a, b = operands("+", a, b)
    return a + b


def sub(a: V, b: V) -> V:
    """The difference, in the elementwise maximum of the shapes.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.sub(a, b)
    ragged.tensor([-3., -3.,  3.])
    """
    a, b = operands("-", a, b)
    return a - b


def mul(a: V, b: V) -> V:
    """The elementwise (Hadamard) product, in the elementwise maximum of the shapes: zero where one
    of the two has no element.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.mul(a, b)
    ragged.tensor([ 4., 10.,  0.])
    """
    a, b = operands("*", a, b)
    return a * b


def neg(a: V) -> V:
    """The additive inverse.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.neg(a)
    ragged.tensor([-1., -2., -3.])
    """
    operand("neg", a)
    return -a


def scale(a: V, factor: Any) -> V:
    """All elements times one number, which may be a dense tensor without dimensions; for a batch
    also a dense tensor of its shape, with a number for each value.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.scale(a, 2.0)
    ragged.tensor([2., 4., 6.])
    """
    operand("scale", a)
    if isinstance(factor, Dense) and factor.ndim and isinstance(a, Batch):
        if tuple(factor.shape) != a.batch_shape:
            raise ValueError(f"scale(): {list(factor.shape)} factors for {list(a.batch_shape)}")
        factors = raw_batch(reshape(factor, (len(a),)), ((1,),) * len(a), a.batch_shape)
        return kron(factors, a)
    if isinstance(factor, Dense) and factor.numel() != 1:
        raise ValueError(f"scale(): the factor must be one number, got {list(factor.shape)}")
    if isinstance(factor, Dense):
        factor = reshape(factor, ())
    return a.rebuilt(a.elements * factor)


# -- products -----------------------------------------------------------------------------------


def _flat(dense: Dense) -> Dense:
    return reshape(dense, (dense._type.numel,))


def _by_items(row: Any, a: Any, b: Any, layout: Any) -> Any:
    if isinstance(a, Batch):
        return a.rebuilt(row(a.elements, b.elements, a.layout, b.layout, layout), layout)
    found = row(_flat(a.dense), _flat(b.dense), (a.layout,), (b.layout,), (layout,))
    return Tensor(reshape(found, layout))


def _wanted(name: str, size: Shape | int, a: V) -> Any:
    """The layout of results of one given shape."""
    shape = (size,) if isinstance(size, int) else tuple(size)
    if any(n < 0 for n in shape):
        raise ValueError(f"{name}(): size has extents from 0 on, got {shape}")
    return (shape,) * len(a) if isinstance(a, Batch) else shape


def convolve(a: V, b: V, size: Shape | int | None = None) -> V:
    """The convolution, which is the product of polynomials: ``c[k] = sum of a[i] b[k - i]``.

    In any number of dimensions, and full unless ``size`` gives another shape: that of the first
    coefficients which are wanted, as for power series. Small operands are convolved directly, large
    ones by Fourier transforms, whichever is expected to be faster::

        >>> ragged.convolve(ragged.tensor([1.0, 1.0]), ragged.tensor([1.0, 2.0, 1.0]))
        ragged.tensor([1., 3., 3., 1.])
    """
    a, b = operands("convolve", a, b)
    layout = a.joined(b, convolved_shape)
    if size is not None:
        layout = _wanted("convolve", size, a)
    return _by_items(convolve_items, a, b, layout)  # type: ignore[no-any-return]


def correlate(a: V, b: V, size: Shape | int | None = None) -> V:
    """The correlation at lags from zero on: ``c[k] = sum of a[k + i] conj(b[i])``, in the shape of
    ``a`` unless ``size`` gives another. It is the transpose of the convolution with ``b``:
    ``inner(convolve(x, b), a)`` is ``inner(x, correlate(a, b))``.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.correlate(a, b)
    ragged.tensor([14., 23., 12.])
    """
    a, b = operands("correlate", a, b)
    layout = a.joined(b, first_shape)
    if size is not None:
        layout = _wanted("correlate", size, a)
    b = b.rebuilt(conj(b.elements))
    return _by_items(correlate_items, a, b, layout)  # type: ignore[no-any-return]


def power(a: V, exponent: int) -> V:
    """The convolution of ``exponent`` times the same value; ``one()`` for zero.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.power(b, 2)
    ragged.tensor([16., 40., 25.])
    """
    operand("power", a)
    if not isinstance(exponent, (int, np.integer)):
        raise TypeError(f"power(): the exponent must be an integer, got {exponent!r}")
    if exponent < 0:
        raise ValueError(f"power(): values have no inverse in general, got {exponent}")
    unit: Any = one(a.dtype)
    result = unit if isinstance(a, Tensor) else repeated(unit, a.batch_shape)
    while exponent:
        if exponent & 1:
            result = convolve(result, a)
        exponent >>= 1
        a = convolve(a, a) if exponent else a
    return result  # type: ignore[no-any-return]


def kron(a: V, b: V) -> V:
    """The Kronecker product: ``c[i * m + j] = a[i] b[j]``, for ``m`` the extent of ``b``.

    It depends on the representative of the *second* operand, whose extents are the strides of the
    first: ``[1, 2] kron [3]`` is ``[3, 6]``, and ``[1, 2] kron [3, 0]`` is ``[3, 0, 6, 0]``. With
    the second fixed it respects equivalence. :func:`shrink` the operands where that matters.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.kron(b, b)
    ragged.tensor([16., 20., 20., 25.])
    """
    a, b = operands("kron", a, b)
    if isinstance(a, Batch):
        layout = a.joined(b, kron_shape)
        left, right = kron_places(a.layout, b.layout)
        return a.rebuilt(a.gathered(left, layout) * b.gathered(right, layout), layout)
    first, second = aligned(a.layout, b.layout)
    return Tensor(dense_kron(reshape(a.dense, first), reshape(b.dense, second)))


# -- numbers ------------------------------------------------------------------------------------


def sum(a: V) -> Dense:
    """The sum of all elements; of a batch, one for each value.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.sum(a)
    tensor(6.)
    """
    operand("sum", a)
    total: Dense = a.totals(a.elements) if isinstance(a, Batch) else a.dense.sum()
    return total


def inner(a: V, b: V) -> Dense:
    """The scalar product: the sum of ``conj(a[i]) b[i]``; of batches, one for each pair.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.inner(a, b)
    tensor(14.)
    """
    a, b = operands("inner", a, b)
    kind = promote_types(a.dtype, b.dtype)
    a, b = _for_sums(a), _for_sums(b)
    return _narrowed(sum(a.rebuilt(conj(a.elements)) * b), kind)


def _for_sums(a: V) -> V:
    """With elements whose products are added up: of integers int64, of 16-bit floats float32."""
    if a.dtype.category < dtypes.FLOATING:
        return a.to(dtypes.int64)
    elements = widened(a.elements)
    return a if elements is a.elements else a.rebuilt(elements)


def _narrowed(number: Dense, kind: dtypes.dtype) -> Dense:
    """A sum in the type of the elements, if that is floating-point."""
    return number if kind.category < dtypes.FLOATING else cast(number, kind)


def norm(a: V, p: float = 2) -> Dense:
    """The ``p``-norm of the elements, for 1 <= p; of a batch, one for each value. Where it is zero
    its gradient is taken as zero.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.norm(b)
    tensor(6.4031)
    """
    operand("norm", a)
    if not p >= 1:
        raise ValueError(f"norm(): p must be at least 1, got {p}")
    if a.dtype.category < dtypes.FLOATING:
        a = a.to(dtypes.get_default_dtype())
    if isinstance(a, Tensor):
        flat = a if a.numel() else Tensor(a.extended(common_shape(a.layout, (1,) * max(a.ndim, 1))))
        return vector_norm(flat.dense, p)
    if math.isinf(p):
        return a.maxima(a.elements.abs())
    return _narrowed(_norms(_for_sums(a), p), a.dtype.to_real())


def _norms(a: Batch, p: float) -> Dense:
    elements = a.elements
    if p == 2 and not a.dtype.is_complex:
        total = a.totals(elements * elements)
    else:
        sizes = elements.abs()
        total = a.totals(sizes if p == 1 else sizes**p)
    if p == 1:
        return total
    known = total.where(total != 0, 1.0)
    return (known.sqrt() if p == 2 else known ** (1 / p)).where(total != 0, 0.0)


# -- representatives ----------------------------------------------------------------------------


def equal(a: V, b: V) -> bool:
    """Whether two values are the same, whatever their representatives.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.equal(a, ragged.tensor([1.0, 2.0, 3.0, 0.0]))
    True
    """
    a, b = operands("==", a, b)
    return a == b


def allclose(a: V, b: V, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether all elements of two values are close, those that are not stored included.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.allclose(a, ragged.tensor([1.0, 2.0, 3.0, 0.0]))
    True
    """
    a, b = operands("allclose", a, b)
    layout = a.joined(b, common_shape)
    return bool(a.extended(layout).allclose(b.extended(layout), rtol, atol))


def shrink(a: V) -> V:
    """The smallest representative: no trailing zeros, no trailing dimensions of extent 1. The
    shape of the result depends on the elements; nothing else drops zeros.

    >>> ragged.shrink(ragged.tensor([1.0, 0.0, 0.0]))
    ragged.tensor([1.])
    """
    operand("shrink", a)
    return a.shrunk()


def stack(values: Sequence[Tensor] | Batch) -> Tensor:
    """Values side by side in a new first dimension, in their common shape.

    >>> a, b = ragged.tensor([1.0, 2.0, 3.0]), ragged.tensor([4.0, 5.0])
    >>> ragged.stack([a, b])
    ragged.tensor([[1., 2., 3.],
            [4., 5., 0.]])
    """
    items = list(values)
    for item in items:
        if not isinstance(item, Tensor):
            refuse("stack", item, item)
    if not items:
        raise ValueError("stack(): of no values there is no element type; use ragged.zero()")
    shape = common_shape(*(item.layout for item in items))
    return Tensor(dense_stack([item.extended(shape) for item in items]))
