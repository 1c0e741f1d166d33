"""One value: a dense array that is continued with zeros, and what both kinds of values share.

:class:`Value` is the base of :class:`Tensor` and of :class:`~evergrad.ragged.batch.Batch`. Its
``layout`` is the shape of the one array or the shapes of all; the functions of
:mod:`evergrad.ragged.algebra` are written against :meth:`Value.extended`, :meth:`Value.joined` and
:meth:`Value.rebuilt`, and know no difference between the two.
"""

from __future__ import annotations

import itertools
import numbers
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.shapes import Shape, Size
from evergrad.core.tensor import Array
from evergrad.core.tensor import Tensor as Dense
from evergrad.core.tree import register_pytree_node
from evergrad.ops.rows.movement.slices import PAD_SLICE, SLICE
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.surface.convert import as_tensor
from evergrad.ragged.differentiable import Differentiable

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype
    from evergrad.core.types import AnyFunction, DtypeLike


# Of an array of NumPy.
_MOST_DIMS = 64


def aligned(*shapes: Shape) -> list[Shape]:
    """Shapes of equal rank: an index of fewer dimensions is one with zeros behind."""
    rank = max(map(len, shapes), default=0)
    return [(*shape, *(1,) * (rank - len(shape))) for shape in shapes]


def common_shape(*shapes: Shape) -> Shape:
    """The elementwise maximum: the least shape that has the indices of all."""
    return tuple(map(max, zip(*aligned(*shapes), strict=True)))


def convolved_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a full convolution, which is empty if an operand is."""
    pairs = zip(*aligned(a, b), strict=True)
    return tuple(n + m - 1 if n and m else 0 for n, m in pairs)


def kron_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a Kronecker product."""
    return tuple(n * m for n, m in zip(*aligned(a, b), strict=True))


def first_shape(a: Shape, b: Shape) -> Shape:
    """The shape of the first of two operands, in the larger of their ranks."""
    return aligned(a, b)[0]


def normal_shape(array: Array) -> Shape:
    """The shape of the smallest representative of an array, of rank 1 at least."""
    places = np.nonzero(np.atleast_1d(array))
    if not places[0].size:
        return (0,)
    extents = [int(at.max()) + 1 for at in places]
    while len(extents) > 1 and extents[-1] == 1:
        extents.pop()
    return tuple(extents)


def placed(dense: Dense, shape: Shape) -> Dense:
    """A dense tensor in a larger shape, zeros behind it; its transpose is the part again."""
    own, target = aligned(tuple(dense._type.shape), shape)
    if own == target:
        return reshape(dense, shape)
    slices = tuple((0, n, 1) for n in own)
    return bind(PAD_SLICE, reshape(dense, own), slices=slices, shape=target)  # type: ignore[no-any-return]


class Value(Differentiable):
    """A value of the algebra, or many of them. Never mixed with dense tensors unless converted."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves operators with such an operand to it
    __hash__ = None  # type: ignore[assignment]  # equal values have many representatives

    # -- what the two kinds bring -----------------------------------------------------------

    @property
    def layout(self) -> Any:
        """The shape, or the shapes."""
        raise NotImplementedError

    def extended(self, layout: Any) -> Dense:
        """The elements at the places of a larger layout, zeros elsewhere."""
        raise NotImplementedError

    def combined(self, function: AnyFunction, other: Self) -> Self:
        """The value of a function of two elements at every index, in the common layout."""
        layout = self.joined(other, common_shape)
        return self.rebuilt(function(self.extended(layout), other.extended(layout)), layout)

    def rebuilt(self, elements: Dense, layout: Any = None) -> Self:
        """A value of these elements, of this layout if no other is given."""
        raise NotImplementedError

    def joined(self, other: Self, shape: Callable[[Shape, Shape], Shape]) -> Any:
        """The layout of a result whose shapes follow from those of two operands."""
        raise NotImplementedError

    # -- operators --------------------------------------------------------------------------

    def _operand(self, symbol: str, other: object) -> Self:
        if type(other) is type(self):
            return other
        refuse(symbol, self, other)

    def __add__(self, other: object) -> Self:
        return self.combined(operator.add, self._operand("+", other))

    def __sub__(self, other: object) -> Self:
        return self.combined(operator.sub, self._operand("-", other))

    def __mul__(self, other: object) -> Self:
        if isinstance(other, numbers.Number):
            return self.rebuilt(self.elements * other)  # type: ignore[operator]
        return self.combined(operator.mul, self._operand("*", other))

    def __truediv__(self, other: object) -> Self:
        if isinstance(other, numbers.Number):
            return self.rebuilt(self.elements / other)  # type: ignore[operator]
        refuse("/", self, other)

    def __rmul__(self, other: object) -> Self:
        return self.__mul__(other)

    def __radd__(self, other: object) -> NoReturn:
        refuse("+", other, self)

    def __rsub__(self, other: object) -> NoReturn:
        refuse("-", other, self)

    def __neg__(self) -> Self:
        return self.rebuilt(-self.elements)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same values, whatever their representatives."""
        other = self._operand("==", other)
        layout = self.joined(other, common_shape)
        return bool((self.extended(layout) == other.extended(layout)).all())

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise TypeError(
            "a ragged value is no array: it is continued with zeros, which NumPy would not do.\n"
            "  fix: use x.numpy(), or x.elements.numpy() of a batch."
        )

    @property
    def _type(self) -> NoReturn:
        """What functions of dense tensors look for in an operand."""
        raise TypeError(
            f"ragged.{type(self).__name__} was given to a function of dense tensors, which would "
            "broadcast it; ragged values are continued with zeros.\n"
            "  fix: use the functions of evergrad.ragged, or give x.elements."
        )

    def __bool__(self) -> NoReturn:
        raise TypeError("a ragged value is not true or false; compare it, as in x == ragged.zero()")


def refuse(symbol: str, a: object, b: object) -> NoReturn:
    """Raise for operands of different kinds."""
    raise TypeError(
        f"{_kind(a)} {symbol} {_kind(b)}: ragged values are continued with zeros and dense tensors "
        "are broadcast, so the two are not mixed.\n"
        "  fix: convert one of them, with ragged.tensor(x) or x.dense; a factor goes to "
        "ragged.scale(x, factor)."
    )


def _kind(x: object) -> str:
    if isinstance(x, Value):
        return f"ragged.{type(x).__name__}"
    return "a dense Tensor" if isinstance(x, Dense) else type(x).__name__


class Tensor(Value):
    """A value by one of its representatives, the dense tensor ``dense``.

    Its elements are those of ``dense`` and zero at all other indices. Two are equal if they differ
    in trailing zeros alone; no operation but :func:`~evergrad.ragged.shrink` drops them::

        >>> ragged.tensor([1.0, 2.0, 3.0]) + ragged.tensor([4.0, 5.0])
        ragged.tensor([5., 7., 3.])
    """

    __slots__ = ("dense",)

    def __init__(self, dense: Dense) -> None:
        if not isinstance(dense, Dense):
            raise TypeError(f"ragged.Tensor(): expected a dense tensor, got {type(dense).__name__}")
        self.dense: Dense = dense

    @property
    def elements(self) -> Dense:
        return self.dense

    @property
    def layout(self) -> Shape:
        return tuple(self.dense._type.shape)

    @property
    def shape(self) -> Size:
        """The shape of the representative."""
        return Size(self.layout)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.dense.ndim

    def extended(self, layout: Shape) -> Dense:
        return placed(self.dense, layout)

    def rebuilt(self, elements: Dense, layout: Shape | None = None) -> Tensor:
        return Tensor(elements)

    def joined(self, other: Tensor, shape: Callable[[Shape, Shape], Shape]) -> Shape:
        return shape(self.layout, other.layout)

    def maker(self) -> Callable[..., Tensor]:
        return Tensor

    def __reduce__(self) -> tuple[Callable[[Dense], Tensor], tuple[Dense]]:
        return Tensor, (self.dense,)

    def shrunk(self) -> Tensor:
        """The smallest representative, a part of this one."""
        target = normal_shape(self.dense.detach().numpy())
        if target == (0,):
            flat = reshape(self.dense, (self.numel(),))
            return Tensor(bind(SLICE, flat, slices=((0, 0, 1),)))
        own, part = aligned(self.layout, target)
        cut = bind(SLICE, reshape(self.dense, own), slices=tuple((0, n, 1) for n in part))
        return Tensor(reshape(cut, target))

    def __getitem__(self, index: int | tuple[int, ...]) -> Dense:
        """The element at an index of any number of dimensions, zero where nothing is stored."""
        given = index if isinstance(index, tuple) else (index,)
        if not all(is_place(i) and i >= 0 for i in given):
            raise IndexError(f"indices of ragged values are integers from 0 on, got {index}")
        at = tuple(map(operator.index, given))
        rank = max(len(at), self.ndim)
        at = (*at, *(0,) * (rank - len(at)))
        own = (*self.layout, *(1,) * (rank - self.ndim))
        if any(i >= n for i, n in zip(at, own, strict=True)):
            return self.dense.new_zeros(())
        return reshape(self.dense, own)[at]

    def __iter__(self) -> NoReturn:
        """Indices have no end: there is a zero behind the last element, and another behind it."""
        raise TypeError(
            "a ragged.Tensor has elements at all indices and cannot be iterated over.\n"
            "  fix: iterate over x.dense, the elements that are stored."
        )

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return self.dense.tolist()

    def numpy(self) -> Array:
        """The representative as a NumPy array."""
        return self.dense.numpy()

    def __repr__(self) -> str:
        return f"ragged.{self.dense!r}"


def tensor(data: object, dtype: DtypeLike = None, requires_grad: bool = False) -> Tensor:
    """A value from numbers, nested lists, an array, or a dense tensor, whose history it keeps.

    ``requires_grad`` makes it a leaf of the graph::

        >>> ragged.tensor([1.0, 2.0], requires_grad=True).shape
        evergrad.Size([2])
    """
    if isinstance(data, Tensor):
        data = data.dense
    dense = as_tensor(data, dtype=dtype)
    if requires_grad:
        dense = dense.detach().clone().requires_grad_()
    return Tensor(dense)


def zero(dtype: DtypeLike = None) -> Tensor:
    """The neutral value of addition: the empty array.

    >>> ragged.zero()
    ragged.tensor([])
    """
    return tensor(np.zeros(0), dtype=as_tensor(0.0).dtype if dtype is None else dtype)


def one(dtype: dtype | None = None) -> Tensor:
    """The neutral value of convolution and of the Kronecker product: ``[1]``.

    >>> ragged.one()
    ragged.tensor([1.])
    """
    return tensor([1.0], dtype=dtype)


def as_shapes(shapes: Sequence[Sequence[int]]) -> tuple[Shape, ...]:
    """Shapes as tuples of integers."""
    return tuple(tuple(map(operator.index, shape)) for shape in shapes)


def check_shapes(name: str, shapes: Sequence[Shape]) -> None:
    """Refuse shapes that no array can have."""
    if any(not 0 <= n <= sys.maxsize for shape in shapes for n in shape):
        raise ValueError(f"{name}: shapes have extents from 0 to {sys.maxsize}")
    if any(len(shape) > _MOST_DIMS for shape in shapes):
        raise ValueError(f"{name}: shapes have up to {_MOST_DIMS} dimensions")


def is_place(index: object) -> bool:
    """Whether an index is an integer, of Python or NumPy."""
    return isinstance(index, (int, np.integer)) and not isinstance(index, bool)


def offsets_of(counts: Sequence[int]) -> list[int]:
    """Where each of consecutive parts begins, and the end."""
    return list(itertools.accumulate(counts, initial=0))


def refuse_nested(child: object) -> None:
    """Raise for the elements of a derivative of values by values."""
    if isinstance(child, Value):
        raise TypeError(
            "the derivative of a ragged value by a ragged value has no layout of its own.\n"
            "  fix: differentiate a function of x.elements that returns elements."
        )


register_pytree_node(
    Tensor, lambda x: ((x.dense,), None), lambda children, _: _unflattened(Tensor, children[0])
)


def _unflattened(cls: type[Tensor], child: Any) -> Tensor:
    """A value around anything: trees are also rebuilt around dimensions, types and numbers."""
    refuse_nested(child)
    made = cls.__new__(cls)
    made.dense = child
    return made
