"""What ops along one dimension share: lanes of elements that are scanned, sorted or searched.

Rows here and in the modules that use this one have an attribute ``dim``, counted from the front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from evergrad.core import dtypes
from evergrad.core.bind import bind, bind_and_prepare, bind_prepared
from evergrad.core.compound import Compound
from evergrad.core.families import opaque
from evergrad.core.op import NONDIFFERENTIABLE, Op, prepared_calls
from evergrad.core.row_facts import AutocastPolicy, Emit, lowered
from evergrad.core.shapes import Shape, TensorType, normalize_dim, tensor_type
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.indexing.scatter import GATHER, gather
from evergrad.ops.rows.movement.views import owned, reshape, squeeze, to_front

R = TypeVar("R")


def batch_along(
    op: Op, args: Sequence[Tensor], at: Sequence[int], *, dim: int, **attrs: object
) -> tuple[Tensor, int]:
    """Lanes of a batch are lanes one dimension further in."""
    return bind(op, to_front(args[0], at[0]), dim=dim + 1, **attrs), 0


def as_lanes(input: Tensor, dim: int) -> tuple[Tensor, int]:
    """A tensor with at least one dimension, and the dimension counted from the front."""
    dim = normalize_dim(dim, input.ndim)
    return (input if input.ndim else reshape(input, (1,))), dim


def with_extent(shape: Shape, dim: int, extent: int) -> Shape:
    """The shape with another extent in one dimension."""
    return (*shape[:dim], extent, *shape[dim + 1 :])


def check_nonempty(name: str, shape: Shape, dims: Sequence[int]) -> None:
    """Refuse to choose from nothing."""
    for d in dims:
        if not shape[d]:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


# For rows that find places by order; lanes of more than 2^18 elements are left to NumPy.
SORTED = lowered("kernels.sort")


def place_row(
    name: str,
    function: Callable[..., object],
    emit: Emit,
    doc: str,
    extent: Callable[..., int] = lambda n, **attrs: 1,
    booleans: bool = True,
) -> Op:
    """A row that gives places along ``dim``: one for each lane, or ``extent(n, **attrs)`` many."""

    def type_rule(x: TensorType, *, dim: int, **attrs: object) -> TensorType:
        if x.dtype.is_complex or (x.dtype is dtypes.bool_ and not booleans):
            raise NotImplementedError(f"\"{name}\" not implemented for '{x.dtype.name}'")
        shape = with_extent(x.shape, dim, extent(x.shape[dim], **attrs))
        return tensor_type(shape, dtypes.int64)

    return opaque(
        name, function, type_rule, NONDIFFERENTIABLE, batch=batch_along, emit=emit,
        autocast=AutocastPolicy.KEEP, doc=doc,
    )  # fmt: skip


_PLACES = prepared_calls()


def places_along(op: Op, lanes: Tensor, dim: int, **attrs: object) -> Tensor:
    """Bind a row that finds places along a dimension, which is counted from the front."""
    key = op, lanes._type, dim, *attrs.values()
    found = _PLACES.get(key)
    if found is not None:
        return bind_prepared(found, lanes)  # type: ignore[no-any-return]
    return bind_and_prepare(_PLACES, key, op, lanes, dim=dim, **attrs)  # type: ignore[no-any-return]


def gathered(op: Op, input: Tensor, dim: int, **attrs: object) -> tuple[Tensor, Tensor]:
    """What stands at the places a row finds, and those places; 0-d for a 0-d tensor."""
    lanes, dim = as_lanes(input, dim)
    places = places_along(op, lanes, dim, **attrs)
    by_row = places._type.numel or isinstance(lanes, Compound)
    values = bind(GATHER, lanes, places, dim=dim) if by_row else gather(lanes, dim, places)
    return (values, places) if input.ndim else (reshape(values, ()), reshape(places, ()))


def chosen(
    kind: Callable[[Tensor, Tensor], R], op: Op, input: Tensor, dim: int, keepdim: bool,
    **attrs: object,
) -> R:  # fmt: skip
    """:func:`gathered` from the one place a row finds in each lane."""
    at = normalize_dim(dim, input.ndim)
    check_nonempty(kind.__name__, input._type.shape, (at,) if input.ndim else ())
    found = gathered(op, input, at, **attrs)
    if not keepdim and input.ndim:
        values, places = (owned(squeeze(f, at), input) for f in found)
        found = values, places
    return kind(*found)
