"""Another element type or place for a tensor, and questions about element types.

Everything here that converts goes through the one row ``cast``, so gradients follow.
"""

from __future__ import annotations

import builtins
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.device import Device
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.families import result_dtype
from evergrad.core.meta import meta_tensor
from evergrad.core.op import TABLE, clear_specializations
from evergrad.core.tensor import Tensor
from evergrad.core.types import Args, Kwargs
from evergrad.ops.rows.creation.constants import check_place
from evergrad.ops.rows.movement.views import contiguous
from evergrad.ops.surface.public import NUMBERS, expose

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, MemoryFormatLike

# -- to -----------------------------------------------------------------------------------------


@expose(function=False)
def to(self: Tensor, *args: object, **kwargs: Any) -> Tensor:
    """``to(dtype)``, ``to(device, dtype)`` or ``to(other)``: itself if nothing changes."""
    target, copy = _read_to(args, dict(kwargs))
    place = kwargs.get("device", next((a for a in args if isinstance(a, (str, Device))), None))
    if place is not None and Device(place).type == "meta":
        return meta_tensor(self._type.shape, target or self.dtype)
    made = self
    if target is not None and target is not self.dtype:
        made = cast(self, target)
    elif copy:
        made = bind(TABLE["clone"], self)
    order = kwargs.get("memory_format")
    return made if order is None or order.order is None else contiguous(made, order)


def _read_to(args: Args, kwargs: Kwargs) -> tuple[dtype | None, bool]:
    """The element type (or ``None``) and whether a copy is requested."""
    rest = list(args)
    target = kwargs.pop("dtype", None)
    other = kwargs.pop("other", kwargs.pop("tensor", None))
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and (rest[0] is None or isinstance(rest[0], str | int | Device)):
        kwargs["device"] = rest.pop(0)
    if rest and target is None and other is None and not isinstance(rest[0], bool):
        target = rest.pop(0)
    check_place(kwargs.pop("device", None))
    copy = kwargs.pop("copy", rest[1] if len(rest) > 1 else False)
    for name in ("non_blocking", "memory_format"):
        kwargs.pop(name, None)
    if kwargs or len(rest) > 2:
        unknown = next(iter(kwargs), "more positional arguments than it takes")
        raise TypeError(f"to() received an invalid combination of arguments: {unknown}")
    if other is not None:
        return other.dtype, bool(copy)
    return None if target is None else as_dtype(target), bool(copy)


@expose(function=False)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """In the element type of another tensor."""
    return cast(self, other.dtype)


def _conversion(name: str, target: dtype) -> None:
    def convert(self: Tensor, memory_format: MemoryFormatLike = None) -> Tensor:
        return cast(self, target)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"The same numbers as {target.name}."
    expose(function=False)(convert)


for _name, _target in {
    "bool": dtypes.bool_,
    "byte": dtypes.uint8,
    "char": dtypes.int8,
    "bfloat16": dtypes.bfloat16,
    **dtypes.ALIASES,
}.items():
    _conversion(_name, _target)


# -- places -------------------------------------------------------------------------------------


@expose(function=False)
def cpu(self: Tensor, memory_format: MemoryFormatLike = None) -> Tensor:
    """The tensor itself: it is on the CPU."""
    return self


@expose(function=False)
def cuda(
    self: Tensor,
    device: DeviceLike = None,
    non_blocking: bool = False,
    memory_format: MemoryFormatLike = None,
) -> Tensor:
    """An error that says where evergrad computes."""
    check_place("cuda" if device is None else device)
    return self


@expose(function=False)
def pin_memory(self: Tensor, device: DeviceLike = None) -> Tensor:
    """The tensor itself: without an accelerator there is nothing to pin for."""
    return self


@expose(function=False)
def is_pinned(self: Tensor, device: DeviceLike = None) -> bool:
    """Whether the memory is page-locked: never."""
    return False


# -- types by their old names -------------------------------------------------------------------

TYPE_NAMES: dict[str, dtype] = {
    "FloatTensor": dtypes.float32,
    "DoubleTensor": dtypes.float64,
    "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16,
    "ByteTensor": dtypes.uint8,
    "CharTensor": dtypes.int8,
    "ShortTensor": dtypes.int16,
    "IntTensor": dtypes.int32,
    "LongTensor": dtypes.int64,
    "BoolTensor": dtypes.bool_,
    "ComplexFloatTensor": dtypes.complex64,
    "ComplexDoubleTensor": dtypes.complex128,
}
_NAME_OF = {found: name for name, found in TYPE_NAMES.items()}


def named_dtype(name: object) -> dtype:
    """The element type of ``"torch.FloatTensor"``, ``evergrad.FloatTensor`` or a dtype."""
    shown = name if isinstance(name, str) else getattr(name, "__name__", name)
    if getattr(name, "is_cuda", False) or ".cuda." in str(shown):
        raise TypeError(f"type {shown} not available: evergrad computes on the CPU")
    found = name if isinstance(name, dtype) else getattr(name, "dtype", None)
    if found is None and isinstance(name, str):
        found = TYPE_NAMES.get(name.rpartition(".")[2])
    if not isinstance(found, dtype):
        raise ValueError(f"invalid type: '{shown}'")
    return found


@expose(function=False)
def type(self: Tensor, dtype: DtypeLike = None, non_blocking: bool = False) -> Any:
    """PyTorch's old name of the element type, or the tensor in another one."""
    if dtype is None:
        return f"torch.{_NAME_OF[self.dtype]}"  # programs compare it with the literal
    return cast(self, named_dtype(dtype))


# -- questions about types ----------------------------------------------------------------------


def _argument_type(value: object) -> Any:
    if isinstance(value, Tensor):
        return value._type
    if isinstance(value, np.generic):
        value = value.item()
    if value.__class__ not in NUMBERS:
        raise TypeError(
            f"result_type(): arguments must be tensors or numbers, not {value.__class__.__name__}"
        )
    return value.__class__


@expose(method=False, out=False)
def result_type(
    tensor: object = None, other: object = None, *, scalar: object = None, scalar1: object = None,
    scalar2: object = None,
) -> dtype:  # fmt: skip
    """The element type in which two tensors or numbers meet."""
    given = [v for v in (tensor, other, scalar, scalar1, scalar2) if v is not None]
    if len(given) != 2:
        raise TypeError(f"result_type(): expected two tensors or numbers, got {len(given)}")
    return result_dtype([_argument_type(value) for value in given])


@expose(method=False, out=False)
def is_tensor(obj: object) -> bool:
    """Whether the object is a tensor."""
    return isinstance(obj, Tensor)


@expose(method=False, out=False)
def typename(obj: object) -> str:
    """The old name of a tensor's type, or the class of any other object.

    Args:
        obj: anything

    >>> eg.typename(3)
    'int'
    """
    if isinstance(obj, Tensor):
        return str(type(obj))
    kind = obj if isinstance(obj, builtins.type) else obj.__class__
    module = "" if kind.__module__ == "builtins" else kind.__module__ + "."
    return f"{module}{kind.__qualname__}"


def _question(name: str) -> None:
    method = getattr(Tensor, name)

    def ask(input: object) -> object:
        if not isinstance(input, Tensor):
            kind = input.__class__.__name__
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {kind}")
        return method(input)

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = method.__doc__ or f"``input.{name}()``"
    expose(method=False, out=False)(ask)


for _name in ("is_floating_point", "is_complex", "is_signed", "numel"):
    _question(_name)


@expose(method=False, out=False)
def set_default_dtype(d: object) -> None:
    """Choose the element type of floats made from Python numbers."""
    before = dtypes.get_default_dtype()
    dtypes.set_default_dtype(as_dtype(d))
    if before is not dtypes.get_default_dtype():
        clear_specializations()  # those for Python floats hold for the former default


@expose(method=False, out=False)
def set_default_tensor_type(t: object) -> None:
    """The old form of ``set_default_dtype``: takes ``"torch.DoubleTensor"`` and the like.

    Args:
        t: a name or a type

    It is deprecated and warns, as PyTorch does.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     eg.set_default_tensor_type(eg.FloatTensor)
    >>> eg.ones(1).dtype
    evergrad.float32
    """
    target = named_dtype(t)
    warnings.warn(
        "set_default_tensor_type() is deprecated; use set_default_dtype()",
        UserWarning,
        stacklevel=2,
    )
    set_default_dtype(target)
