"""PyTorch's first constructors: ``Tensor(2, 3)``, ``FloatTensor([1, 2])``, ``tensor.new(...)``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Union

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.shapes import Size, as_shape
from evergrad.core.tensor import Tensor, detached, note_handle
from evergrad.core.types import Args
from evergrad.ops.rows.creation.constants import check_place, zeros
from evergrad.ops.surface.casting import TYPE_NAMES
from evergrad.ops.surface.convert import copied
from evergrad.ops.surface.public import FUNCTIONS, expose
from evergrad.ops.surface.storages import UntypedStorage


def _positional(args: Args, size: object, other: object, storage: object) -> tuple[object, ...]:
    """The arguments of a constructor that were given by name."""
    if size is not None:
        return (*as_shape((size,)),)
    return args + tuple(given for given in (other, storage) if given is not None)


if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike


def construct(args: tuple[object, ...], target: dtype, device: DeviceLike = None) -> Tensor:
    """Integers are sizes, a sequence or array is data, a tensor gives another handle on it."""
    check_place(device)
    if len(args) == 1 and not isinstance(args[0], int):
        (data,) = args
        if isinstance(data, UntypedStorage):
            data = data._tensor()
        if isinstance(data, Tensor):
            return detached(data)
        if isinstance(data, float | complex):
            raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
        if not isinstance(data, Size):
            return copied(data, target)
    if not args:
        args = (0,)
    return zeros(as_shape(args), dtype=target)


def _initialize(
    self: Tensor, *args: object, size: object = None, other: object = None, storage: object = None,
    device: DeviceLike = None, **further: object,
) -> None:  # fmt: skip
    """Fill a handle made by ``Tensor(...)``. One that the ``__new__`` of a subclass has filled
    stays as it is, whatever arguments that takes."""
    if hasattr(self, "_type"):
        return
    if further:
        raise TypeError(f"Tensor() got an unexpected keyword argument {next(iter(further))!r}")
    args = _positional(args, size, other, storage)
    source = construct(args, dtypes.get_default_dtype(), device)
    self._type = source._type
    self._value = source._value
    note_handle(self)
    self._storage = source._storage
    self._view = source._view
    self._node = None
    self._index = 0
    self._leaf = None
    self._grad = None


setattr(Tensor, "__init__", _initialize)  # noqa: B010 - the class does not declare it


@expose(function=False)
def new(
    self: Tensor, *args: object, size: object = None, other: object = None, storage: object = None,
    device: DeviceLike = None,
) -> Tensor:  # fmt: skip
    """A tensor of the same element type from sizes or data."""
    return construct(_positional(args, size, other, storage), self.dtype, device)


@expose("resize", function=False)
def _resized(self: Tensor, *sizes: Any) -> Tensor:
    """``reshape`` under the name it had first."""
    warnings.warn("non-inplace resize is deprecated", UserWarning, stacklevel=2)
    return self.reshape(*sizes)


def _name_of(self: Tensor) -> None:
    """PyTorch's first tensors had names; there are none any more."""
    return None


setattr(Tensor, "name", property(_name_of))  # noqa: B010 - the class does not declare it


class LegacyType:
    """``FloatTensor`` and the like: makes tensors of one element type, and recognises them.

    >>> eg.LongTensor([1, 2]), isinstance(eg.ones(1), eg.FloatTensor)
    (tensor([1, 2]), True)
    """

    def __init__(self, name: str, dtype: dtype) -> None:
        self.__name__ = name
        self.dtype = dtype
        self.is_cuda = False

    def __call__(self, *args: object, device: DeviceLike = None) -> Tensor:
        if len(args) == 1 and isinstance(args[0], Tensor) and args[0].dtype is not self.dtype:
            raise TypeError(
                f"{self.__name__} expected a tensor of {self.dtype}, got one of {args[0].dtype}"
            )
        return construct(args, self.dtype, device)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is self.dtype

    def __or__(self, other: object) -> Any:
        """``LongTensor | None`` in an annotation."""
        return Union[Tensor, other]  # noqa: UP007 - `other` is a value

    def __ror__(self, other: object) -> Any:
        return Union[other, Tensor]  # noqa: UP007 - `other` is a value

    def __repr__(self) -> str:
        return f"<class 'evergrad.{self.__name__}'>"


for _name, _dtype in TYPE_NAMES.items():
    if not _name.startswith("Complex"):
        FUNCTIONS[_name] = LegacyType(_name, _dtype)
