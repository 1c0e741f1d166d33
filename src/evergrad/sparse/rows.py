"""What the rows of the op table mean for sparse tensors in coordinate form.

Rows that leave zero alone are applied to the elements; linear ones as they are, the others after
those in one place have been summed. Everything that would make a dense tensor of a sparse one is
refused, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.core.bind import bind, cast
from evergrad.core.compound import no_form
from evergrad.core.dtypes import dtype
from evergrad.core.families import meet_to_subtract, result_dtype
from evergrad.core.op import TABLE, Op
from evergrad.core.shapes import Shape, broadcast_shapes
from evergrad.core.tensor import Tensor
from evergrad.core.types import Args, Attrs
from evergrad.extension import provides
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.elementwise.basic import DIV, SUB
from evergrad.ops.rows.matmul import LINEAR, MATMUL
from evergrad.ops.rows.movement.joining import cat
from evergrad.sparse.coo import SparseTensor, coo, elements_at, summed_at, taken
from evergrad.sparse.gradients import added_whole, summed_whole
from evergrad.sparse.pattern import Patterned
from evergrad.sparse.places import look_up, merged, pairs_at, places_of
from evergrad.sparse.products import linear, product

Row = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]

COO_ROWS: dict[Op, Row] = {LINEAR: linear, MATMUL: product}
provides("coo_row")(COO_ROWS.get)

# f(0) is 0, so that what is not stored stays so.
KEEPS_LINEAR = ("cast", "clone", "neg", "conj", "real", "imag", "detach")
KEEPS_ZERO = (
    "abs", "abs_complex", "asin", "asinh", "atan", "atanh", "ceil", "erf", "erfinv", "expm1",
    "floor", "frac", "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num", "relu",
    "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip


def row(*names: str) -> Callable[[Row], Row]:
    """Enter a function as the meaning of the named rows."""

    def enter(function: Row) -> Row:
        COO_ROWS.update((TABLE[name], function) for name in names)
        return function

    return enter


def is_number(value: object) -> bool:
    """Whether an operand is one number: Python's, or a dense tensor without dimensions."""
    return not isinstance(value, Tensor) or not (isinstance(value, Patterned) or value.ndim)


# -- element by element -------------------------------------------------------------------------


@row(*KEEPS_LINEAR)
def _linear(op: Op, args: Args, attrs: dict[str, object]) -> object:
    sparse: SparseTensor = args[0]
    return sparse.with_elements(bind(op, sparse.live_elements(), **attrs))


@row(*KEEPS_ZERO)
def _keeps_zero(op: Op, args: Args, attrs: dict[str, object]) -> object:
    sparse = args[0].coalesce()
    return sparse.with_elements(bind(op, sparse.live_elements(), *args[1:], **attrs))


@row("any")
def _any(op: Op, args: Args, attrs: Attrs) -> object:
    sparse: SparseTensor = args[0]
    if len(attrs["dims"]) < sparse.ndim or attrs["keepdim"]:
        raise no_form(op.name, sparse)
    return sparse.coalesce().live_elements().any()


@row("pow")
def _power(op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
    base, exponent = args
    if not isinstance(base, SparseTensor) or not is_number(exponent):
        raise no_form(op.name, next(a for a in args if isinstance(a, SparseTensor)))
    if exponent == 0:
        raise RuntimeError(
            "pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor "
            "dense"
        )
    return _keeps_zero(op, args, attrs)


@row("div", "floor_divide", "trunc_divide")
def _quotient(op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
    sparse, divisor = args
    if not isinstance(sparse, SparseTensor) or not is_number(divisor):
        shape = list(divisor.shape) if isinstance(divisor, Tensor) else []
        raise RuntimeError(
            "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
            f"{shape} for divisor)"
        )
    if op is not DIV:
        sparse = sparse.coalesce()
    return sparse.with_elements(bind(op, sparse.live_elements(), divisor))


# -- products -----------------------------------------------------------------------------------


@row("mul")
def _product(op: Op, args: Args, attrs: Attrs) -> Any:
    a, b = args
    if not isinstance(a, Patterned):
        a, b = b, a
    if is_number(b):
        return a.with_elements(a.live_elements() * b)
    a = a.to_sparse_coo()
    if isinstance(b, Patterned):
        return _product_of_sparse(a, b.to_sparse_coo())
    if b.ndim > a.ndim:
        raise RuntimeError(
            f"a sparse tensor of {list(a.shape)} times a dense one of {list(b.shape)} would have "
            f"the larger shape {list(broadcast_shapes(a.shape, b.shape))}, which sparse products "
            "do not expand to"
        )
    _check_fits(b._type.shape, a._type.shape)
    return a.with_elements(a.live_elements() * elements_at(b.expand(a.shape), a._places))


def _check_fits(shape: Shape, target: Shape) -> None:
    if broadcast_shapes(shape, target) != target:
        raise RuntimeError(
            f"a dense factor of {list(shape)} does not expand to the sparse tensor's shape "
            f"{list(target)}"
        )


def _product_of_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """Where both have elements. Those of the first in one place share the sum of the second."""
    _check_same("mul", a, b)
    b = b.coalesce()
    position, there = look_up(a.keys(), b.keys())
    kept = np.flatnonzero(there)
    elements = taken(a.live_elements(), kept) * taken(b.live_elements(), position[kept])
    return coo(a._places[:, kept], elements, a._type.shape, a._coalesced)


def _check_same(name: str, a: SparseTensor, b: SparseTensor) -> None:
    if a._type.shape != b._type.shape:
        raise RuntimeError(
            f"{name}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != "
            f"{list(b.shape)}"
        )
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(
            f"{name}: expected 'self' and 'other' to have same number of sparse dimensions, but "
            f"'self' has {a.sparse_dim()} while 'other' has {b.sparse_dim()}"
        )


# -- sums of two --------------------------------------------------------------------------------


def _type_of_difference(a: object, b: Patterned) -> dtype:
    return meet_to_subtract([x._type for x in (a, b) if isinstance(x, Tensor)])


@row("add", "sub")
def _sum(op: Op, args: Args, attrs: Attrs) -> SparseTensor | Tensor:
    a, b = args
    if op is SUB and isinstance(b, Patterned):
        # In the type of the result: the negative of an unsigned number is none.
        b = -cast(b, _type_of_difference(a, b))
    if isinstance(a, Patterned) and isinstance(b, Patterned):
        return _sum_of_sparse(a.to_sparse_coo(), b.to_sparse_coo())
    if isinstance(a, Patterned) or not isinstance(a, Tensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    sparse: Patterned = b
    if a._type.shape != sparse._type.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size "
            f"{list(a.shape)} while other has size {list(sparse.shape)} (FYI: dense-sparse "
            "addition does not currently support broadcasting)"
        )
    common = result_dtype([a._type, sparse._type])
    return added_whole(cast(a, common), cast(sparse, common))  # type: ignore[arg-type]


def _sum_of_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    _check_same("add", a, b)
    common = result_dtype([a._type, b._type])
    keys, to_a, to_b = merged(a.keys(), b.keys())
    both = cat([cast(a.live_elements(), common), cast(b.live_elements(), common)])
    elements = summed_at(both, np.concatenate([to_a, to_b]), len(keys))
    places = places_of(keys, a.sparse_shape())
    return coo(places, elements, a._type.shape, a._coalesced and b._coalesced)


@row("cat")
def _joined(op: Op, args: Args, attrs: Attrs) -> SparseTensor:
    dim: int = attrs["dim"]
    for i, part in enumerate(args):
        if not isinstance(part, SparseTensor):
            raise RuntimeError(
                f"Concatenating sparse tensors, but a dense tensor was found at position {i}."
            )
    first: SparseTensor = args[0]
    if any(a.sparse_dim() != first.sparse_dim() or a.ndim != first.ndim for a in args):
        raise RuntimeError("cat: sparse tensors must have the same sparse and dense dimensions")
    shape = list(first._type.shape)
    shape[dim] = sum(a._type.shape[dim] for a in args)
    if dim >= first.sparse_dim():
        return _joined_elements(args, dim, tuple(shape))
    places, start = [], 0
    for part in args:
        moved = part._places.copy()
        moved[dim] += start
        places.append(moved)
        start += part._type.shape[dim]
    elements = cat([part.live_elements() for part in args])
    return coo(np.concatenate(places, 1), elements, tuple(shape))


def _joined_elements(args: Sequence[SparseTensor], dim: int, shape: Shape) -> SparseTensor:
    """Along a dense dimension: each tensor's elements, wider, with zeros beside them."""
    own = dim - args[0].sparse_dim() + 1
    places = np.concatenate([a._places for a in args], 1)
    blocks = []
    for i, part in enumerate(args):
        beside = [
            part.live_elements() if j == i else _zeros_beside(part, other, own)
            for j, other in enumerate(args)
        ]
        blocks.append(cat(beside, own))
    return coo(places, cat(blocks), shape)


def _zeros_beside(part: SparseTensor, other: SparseTensor, dim: int) -> Tensor:
    shape = list(part._elements._type.shape)
    shape[dim] = other._elements._type.shape[dim]
    return zeros(shape, dtype=part.dtype)


# -- sums over dimensions -----------------------------------------------------------------------


@row("sum")
def _fold(op: Op, args: Args, attrs: Attrs) -> Tensor:
    sparse: SparseTensor = args[0]
    dims, keepdim = attrs["dims"], attrs["keepdim"]
    if len(dims) == sparse.ndim and not keepdim and sparse.is_sparse_leaf():
        return summed_whole(sparse)
    return sum_over(sparse, dims, keepdim)


def sum_over(sparse: SparseTensor, dims: Shape, keepdim: bool) -> Tensor:
    """The sum over dimensions: dense if no indexed one is left, else sparse and coalesced."""
    count = sparse.sparse_dim()
    inner = tuple(d - count + 1 for d in dims if d >= count)
    elements = sparse.live_elements()
    if inner:
        elements = elements.sum(inner, keepdim)
    kept = [d for d in range(count) if d not in dims]
    extents = sparse.sparse_shape()
    if not kept:
        total: Tensor = elements.sum(0)
        return total.reshape((1,) * count + total.shape) if keepdim else total
    if len(kept) < count and keepdim:
        places = sparse._places.copy()
        places[[d for d in range(count) if d in dims]] = 0
        extents = tuple(n if d in kept else 1 for d, n in enumerate(extents))
    else:
        places = sparse._places[kept]
        extents = tuple(extents[d] for d in kept)
    return coo(places, elements, (*extents, *elements.shape[1:])).coalesce()


# -- other shapes -------------------------------------------------------------------------------


@row("permute")
def _permuted(op: Op, args: Args, attrs: Attrs) -> SparseTensor:
    sparse: SparseTensor = args[0]
    order, count = attrs["order"], args[0].sparse_dim()
    if order == tuple(range(sparse.ndim)):
        return sparse
    if sorted(order[:count]) != list(range(count)):
        raise RuntimeError(
            "sparse transpose: transposed dimensions must be sparse Got sparse_dim: "
            f"{count}, order: {list(order)}"
        )
    elements = sparse.live_elements()
    if order[count:] != tuple(range(count, sparse.ndim)):
        elements = elements.permute(0, *[d - count + 1 for d in order[count:]])
    shape = tuple(sparse._type.shape[d] for d in order)
    return coo(sparse._places[list(order[:count])], elements, shape)


@row("reshape")
def _reshaped(op: Op, args: Args, attrs: Attrs) -> object:
    """Only the same shape, or one with more or fewer singletons among the indexed dimensions."""
    sparse: SparseTensor = args[0]
    shape = tuple(attrs["shape"])
    if shape == sparse._type.shape:
        return sparse.with_elements(sparse.live_elements())
    dense = sparse.dense_shape()
    outer = shape[: len(shape) - len(dense)]
    extents = sparse.sparse_shape()
    same_dense = shape[len(outer) :] == dense
    if not same_dense or [n for n in outer if n != 1] != [n for n in extents if n != 1]:
        raise RuntimeError("reshape is not implemented for sparse tensors")
    rows = iter(row for row, n in zip(sparse._places, extents, strict=True) if n != 1)
    zero = np.zeros(sparse._nnz(), np.int64)
    places = [zero if n == 1 else next(rows) for n in outer]
    stacked = np.stack(places) if places else np.zeros((0, sparse._nnz()), np.int64)
    return coo(stacked, sparse.live_elements(), shape, sparse._coalesced)


@row("slice")
def _selected(op: Op, args: Args, attrs: Attrs) -> Tensor | SparseTensor:
    """Single indices drop dimensions; parts of a dimension cannot be views of a sparse tensor."""
    sparse: SparseTensor = args[0]
    slices, count = attrs["slices"], args[0].sparse_dim()
    for extent, part in zip(sparse._type.shape, slices, strict=False):
        if isinstance(part, tuple) and part != (0, extent, 1):
            raise no_form("slice", sparse)
    there = np.ones(sparse._nnz(), bool)
    for places, part in zip(sparse._places, slices, strict=False):
        if isinstance(part, int):
            there &= places == part
    kept = [d for d in range(count) if d >= len(slices) or not isinstance(slices[d], int)]
    positions = np.flatnonzero(there)
    elements = taken(sparse.live_elements(), positions)
    inner = tuple(slices[count:])
    if inner:
        elements = bind(op, elements, slices=((0, len(positions), 1), *inner))
    if not kept:
        return elements.sum(0)
    shape = (*[sparse._type.shape[d] for d in kept], *elements.shape[1:])
    return coo(sparse._places[kept][:, positions], elements, shape, sparse._coalesced)


@row("index")
def _index_selected(op: Op, args: Args, attrs: Attrs) -> SparseTensor:
    sparse, *indices = args
    dim = attrs["start"]
    if not isinstance(sparse, SparseTensor) or len(indices) != 1 or indices[0].ndim != 1:
        raise no_form("index", next(a for a in args if isinstance(a, SparseTensor)))
    index = indices[0]
    count = sparse.sparse_dim()
    shape = list(sparse._type.shape)
    extent, shape[dim] = shape[dim], index.numel()
    if dim >= count:
        elements = sparse.live_elements().index_select(dim - count + 1, index)
        return coo(sparse._places, elements, tuple(shape), sparse._coalesced)
    wanted = index.array()
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < extent):
        raise IndexError("index_select(): index out of range of the sparse tensor's dimension")
    order = np.argsort(sparse._places[dim], kind="stable")
    number, found = pairs_at(wanted, sparse._places[dim][order])
    positions = order[found]
    places = sparse._places[:, positions]
    places[dim] = number
    return coo(places, taken(sparse.live_elements(), positions), tuple(shape))
