"""Other forms of functions: copies of what views show, results of fixed size, older names."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import as_shape, normalize_dim, tensor_type
from evergrad.core.tensor import Tensor, from_array
from evergrad.errors import IndexOutOfRangeError
from evergrad.ops.composite.splitting import chunk, split, split_with_sizes, unbind
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.movement.complex_parts import view_as_complex, view_as_real
from evergrad.ops.rows.movement.slices import narrow, select, slice_dim
from evergrad.ops.rows.movement.strided import as_strided, diagonal
from evergrad.ops.rows.movement.views import clone, sum_to_type
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.handles import detach
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# -- copies of views ----------------------------------------------------------------------------


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    dim = normalize_dim(dim, input.ndim)
    return slice_dim(input, dim, *slice(start, end, step).indices(input._type.shape[dim]))


def _alias(input: Tensor) -> Tensor:
    return input


def _split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    return split(input, split_size, dim)


def _expanded(input: Tensor, size: Sequence[int], *, implicit: bool = False) -> Tensor:
    return input.expand(size)


def _permuted(input: Tensor, dims: Sequence[int]) -> Tensor:
    return input.permute(dims)


def _squeezed(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    return input.squeeze() if dim is None else input.squeeze(dim)


def _transposed(input: Tensor, dim0: int, dim1: int) -> Tensor:
    return input.transpose(dim0, dim1)


def _unfolded(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    return input.unfold(dimension, size, step)


def _unsqueezed(input: Tensor, dim: int) -> Tensor:
    return input.unsqueeze(dim)


def _viewed(input: Tensor, size: Any = None, *, dtype: dtypes.dtype | None = None) -> Tensor:
    return input.view(size) if dtype is None else input.view(dtype=dtype)


_VIEWS: dict[str, Callable[..., object]] = {
    "alias": _alias,
    "as_strided": as_strided,
    "detach": detach,
    "diagonal": diagonal,
    "expand": _expanded,
    "narrow": narrow,
    "permute": _permuted,
    "select": select,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": split_with_sizes,
    "squeeze": _squeezed,
    "t": lambda input: input.t(),
    "transpose": _transposed,
    "unbind": unbind,
    "unfold": _unfolded,
    "unsqueeze": _unsqueezed,
    "view": _viewed,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
}


def _copying(name: str, view: AnyFunction) -> None:
    @functools.wraps(view)
    def function(*args: object, **kwargs: object) -> Any:
        try:
            found = view(*args, **kwargs)
        except IndexError as error:
            if name != "narrow":
                raise
            raise IndexOutOfRangeError(*error.args) from error
        return tuple(map(clone, found)) if isinstance(found, tuple) else clone(found)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"A copy of what ``{name}`` gives."
    expose(method=name == "narrow", numpy_names=True)(
        autocast_policy(AutocastPolicy.KEEP)(function)
    )


for _name, _view in _VIEWS.items():
    _copying(_name, _view)


# -- sums and places ----------------------------------------------------------------------------


@expose(function=False)
def sum_to_size(self: Tensor, *args: object, size: object = None) -> Tensor:
    """The sum over those dimensions along which ``size`` would be expanded to this shape."""
    target = as_shape(args if size is None else (size,))
    own = self._type.shape
    behind = own[len(own) - len(target) :]
    if len(target) > len(own) or any(t not in (1, n) for t, n in zip(target, behind, strict=True)):
        raise RuntimeError(f"size {{{list(target)}}} is not expandable to size {{{list(own)}}}.")
    if not target:
        return total(self)  # also of a number: integers become int64
    return sum_to_type(self, tensor_type(target, self.dtype))


@expose(method=False, out=False)
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """For each number of an element in an array of ``shape``, its place along every dimension."""
    if indices.dtype.category != dtypes.INTEGRAL:
        raise TypeError(
            f"expected 'indices' to be integer dtype, but got evergrad.{indices.dtype.name}"
        )
    extents = as_shape((shape,))
    if any(n < 0 for n in extents):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(extents)}")
    behind = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    return tuple((indices // step) % n for step, n in zip(behind, extents, strict=True))


@expose()
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The places of the first ``size`` elements that are not zero, filled up with a number.

    Args:
        input: the tensor
        size: how many
        fill_value: what stands behind them; default -1
        out: where to write the result

    >>> eg.nonzero_static(eg.tensor([0, 5, 7]), size=3)
    tensor([[ 1],
            [ 2],
            [-1]])
    """
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = np.argwhere(input.array())[:size]
    places = np.full((size, input.ndim), fill_value, np.int64)
    places[: len(found)] = found
    return from_array(places)


@expose(function=False)
def dim_order(self: Tensor) -> tuple[int, ...]:
    """The dimensions from the outermost to the innermost in memory."""
    strides = self.stride()
    return tuple(sorted(range(self.ndim), key=lambda dim: -strides[dim]))


# -- element by element, in Python --------------------------------------------------------------


def _mapped(
    name: str, self: Tensor, others: Sequence[Tensor], function: Callable[..., object]
) -> Tensor:
    if self.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use "
                           f"var.detach().{name}() instead.")  # fmt: skip
    columns = [np.broadcast_to(x.array(), self._type.shape).reshape(-1) for x in (self, *others)]
    values = [function(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    return self.copy_(from_array(np.array(values, self.dtype.np).reshape(self._type.shape)))


@expose(function=False)
def map_(self: Tensor, other: Tensor, callable: Callable[[Any, Any], object]) -> Tensor:
    """Replace each element by a Python function of it and the one of another tensor."""
    return _mapped("map_", self, (other,), callable)


@expose(function=False)
def map2_(
    self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], object]
) -> Tensor:
    """Replace each element by a Python function of it and those of two other tensors."""
    return _mapped("map2_", self, (x, y), callable)


# -- further names ------------------------------------------------------------------------------


def _writable(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    for part in parts:
        if part._view is not None:
            part._view.function = ""
    return parts


@expose(out=False, numpy_names=True)
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``chunk``, whose parts may be written in place.

    >>> x = eg.arange(4.0).view(2, 2)
    >>> eg.unsafe_chunk(x, 2)
    (tensor([[0., 1.]]), tensor([[2., 3.]]))
    """
    return _writable(chunk(input, chunks, dim))


@expose(out=False, numpy_names=True)
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """``split``, whose parts may be written in place.

    >>> x = eg.arange(4.0).view(2, 2)
    >>> eg.unsafe_split(x, 1)
    (tensor([[0., 1.]]), tensor([[2., 3.]]))
    """
    return _writable(split(input, split_size, dim))


@expose(out=False, numpy_names=True)
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """``split_with_sizes``, whose parts may be written in place.

    >>> x = eg.arange(4.0).view(2, 2)
    >>> eg.unsafe_split_with_sizes(x, (1, 1))
    (tensor([[0., 1.]]), tensor([[2., 3.]]))
    """
    return _writable(split_with_sizes(input, split_sizes, dim))


@expose(out=False)
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugation is never put off.

    >>> eg.resolve_conj(eg.tensor([1j]).conj())
    tensor([0.-1.j])
    """
    return input


@expose(out=False)
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: negation is never put off.

    >>> eg.resolve_neg(eg.ones(2))
    tensor([1., 1.])
    """
    return input


@expose(function=False)
def conj_physical_(input: Tensor) -> Tensor:
    """The complex conjugate in place."""
    return input.copy_(conj(input)) if input.dtype.is_complex else input


@expose(method=False, out=False)
def is_inference(input: Tensor) -> bool:
    """Whether the tensor was made in inference mode.

    >>> with eg.inference_mode():
    ...     eg.is_inference(eg.ones(1))
    True
    """
    return input.is_inference()
