"""Tensors made of several dense ones: sparse tensors, ragged tensors.

A :class:`Compound` has a shape, an element type and a node in the graph like any tensor, but no
array. Its type is never interned, so :func:`~evergrad.core.bind.bind` finds no specialization and
dispatches to the compound, which applies the row to its parts or raises. Dense tensors pay nothing
for this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import jagged
from evergrad.core.node import Leaf
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE
from evergrad.core.storage import NO_ARRAY, Storage
from evergrad.core.tensor import Array, Tensor, on_storage

if TYPE_CHECKING:
    from evergrad.core.op import Op
    from evergrad.core.types import DtypeLike


class CompoundType(TensorType):
    """Shape and element type of a compound tensor: never interned, never in a cache key."""

    __slots__ = ()

    def __init__(self, shape: tuple[Any, ...], dtype: dtype, numel: int | None = None) -> None:
        self.shape = shape
        self.dtype = dtype
        self.numel: int = math.prod(shape) if numel is None else numel
        self.nbytes: int = self.numel * dtype.itemsize


class Compound(Tensor):
    """A tensor made of dense parts."""

    __slots__ = ()

    # The names of backend and layout in error messages.
    backend = layout_name = "Compound"

    def bind_row(self, op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
        """Apply a row of which this is an argument."""
        raise no_form(op.name, self)

    def parts(self) -> tuple[Tensor, ...]:
        """The dense tensors this one is made of."""
        raise NotImplementedError

    def filled(self, value: object, dtype: dtype) -> Tensor:
        """A tensor of the same shape filled with one number."""
        raise no_form("full_like", self)

    def mapped(self, name: str, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The same pattern around the result of a function of the elements that keeps their
        shape."""
        raise no_form(name, self)

    def take_over(self, result: Tensor) -> Tensor:
        """Become the result of an in-place operation, with its node."""
        if isinstance(self._node, Leaf) and STATE.get().grad:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation. "
                "Write under no_grad(), or to a clone() of it."
            )
        if result.__class__ is not self.__class__:
            raise RuntimeError(
                f"a result of layout {result.layout} cannot be written into a tensor of layout "
                f"{self.layout}; use the out-of-place form"
            )
        names: tuple[str, ...] = self.__slots__
        for name in names:
            setattr(self, name, getattr(result, name))
        self._type = result._type
        if not isinstance(self._node, Leaf):
            self._node, self._index = result._node, result._index
        self._storage.version += 1
        return self

    def add_into(self, array: Array) -> None:
        """Add the elements to a dense array of the same shape."""
        raise NotImplementedError

    def to_dense(self, dtype: DtypeLike = None, *, masked_grad: bool | None = None) -> Tensor:
        """The same elements as one dense tensor."""
        raise NotImplementedError

    def norm(  # type: ignore[override]
        self,
        p: object = "fro",
        dim: object = None,
        keepdim: bool = False,
        *,
        dtype: DtypeLike = None,
    ) -> Tensor:
        """The norm of all elements."""
        raise no_form("norm", self)

    def array(self) -> NoReturn:
        raise TypeError(
            f"can't convert {self.layout_name} layout tensor to numpy. Use Tensor.to_dense() first."
        )

    def layout_array(self) -> NoReturn:
        raise NotImplementedError(
            f"a {self.layout_name} tensor has no array with strides, which this operation reads.\n"
            "  fix: use to_dense() first."
        )

    def data_ptr(self) -> NoReturn:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def untyped_storage(self) -> NoReturn:
        raise NotImplementedError(f"Cannot access storage of a {self.backend} tensor")

    def storage(self) -> NoReturn:
        self.untyped_storage()

    def detach_(self) -> Tensor:
        """Detach this tensor from its graph, in place."""
        self._node = None
        self._index = 0
        return self

    @property  # type: ignore[misc]
    def data(self) -> Tensor:
        """The same elements, detached from the graph."""
        return self.detach()


def is_jagged(tensor: Tensor) -> bool:
    """Whether it has dense values, of which each belongs to one place of an example: what is
    computed along the dimensions behind the ragged one is computed on the values."""
    return isinstance(tensor, Compound) and tensor.layout is jagged


def without_array(cls: type[Compound], type: CompoundType) -> Any:
    """A new compound of this class without its parts."""
    return on_storage(NO_ARRAY, type, Storage(NO_ARRAY, type, 0), None, cls)


def bind_compound(op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
    """Dispatch a row to its first compound argument."""
    compound = next(arg for arg in args if isinstance(arg, Compound))
    return compound.bind_row(op, args, attrs)


def no_form(name: str, tensor: Compound) -> NotImplementedError:
    """The error for an operation that has no meaning for this layout."""
    return NotImplementedError(
        f"Could not run '{name}' with arguments from the '{tensor.backend}' backend: it has no "
        "form for this layout.\n  fix: use to_dense() first, if the dense tensor fits in memory."
    )


# -- cotangents ---------------------------------------------------------------------------------


def as_cotangent(tensor: Tensor) -> Compound | Array:
    """A cotangent in a backward pass on arrays: the array, or the compound itself."""
    return tensor if isinstance(tensor, Compound) else tensor.array()


def dense_array(compound: Compound) -> Array:
    """The elements of a compound cotangent as a new array."""
    return compound.to_dense().array()


def total(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two cotangents, either of which may be a compound."""
    if isinstance(a, Compound) and not isinstance(b, Compound):
        return b + a
    return a + b
