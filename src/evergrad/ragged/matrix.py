"""Products of matrices whose entries are values of any shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.ragged.algebra import convolve, kron
from evergrad.ragged.batch import Batch, summed_groups

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_PRODUCTS: dict[str, AnyFunction] = {"convolve": convolve, "kron": kron}


def matmul(a: Batch, b: Batch, product: str = "convolve") -> Batch:
    """The product of matrices of values: ``c[i, k]`` is the sum over ``j`` of ``a[i, j]`` times
    ``b[j, k]``, where "times" is the convolution or the Kronecker product of the entries.

    ``a`` is a batch of ``[rows, inner]`` values and ``b`` one of ``[inner, columns]``. An entry of
    the result has the common shape of its summands::

        >>> a = ragged.batch([[1.0], [1.0, 2.0]]).reshape(1, 2)
        >>> b = ragged.batch([[3.0], [1.0, 1.0]]).reshape(2, 1)
        >>> ragged.matmul(a, b)[0, 0]
        ragged.tensor([4., 3., 2.])
    """
    if product not in _PRODUCTS:
        raise ValueError(f"matmul(): product is one of {sorted(_PRODUCTS)}, got {product!r}")
    shapes = a.batch_shape, b.batch_shape
    if len(shapes[0]) != 2 or len(shapes[1]) != 2 or shapes[0][1] != shapes[1][0]:
        raise ValueError(f"matmul(): matrices of {shapes[0]} and {shapes[1]} values do not fit")
    (rows, inner), columns = shapes[0], shapes[1][1]
    terms = [(i, j, k) for i in range(rows) for k in range(columns) for j in range(inner)]
    left = a.chosen([i * inner + j for i, j, _ in terms], (len(terms),))
    right = b.chosen([j * columns + k for _, j, k in terms], (len(terms),))
    products = _PRODUCTS[product](left, right)
    return summed_groups(products, [i * columns + k for i, _, k in terms], (rows, columns))
