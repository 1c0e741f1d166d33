"""What leaves a tensor: Python numbers, lists, NumPy arrays, DLPack capsules and text.

Memory that is handed out stays the tensor's own; its storage is marked as shared, because its
holder can write to it.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.deferred_arrays import deferred_array
from evergrad.core.deferred_numbers import deferred_item, deferred_list
from evergrad.core.device import check_device
from evergrad.core.functionalize import data_number, functionalizing_trace, note_outside_read
from evergrad.core.printing import format_tensor, print_options
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.state import STATE
from evergrad.core.tensor import Array, Tensor, current_node, materialize
from evergrad.core.trace import Var
from evergrad.core.value_message import mark_of
from evergrad.extension import ExtensionPoint
from evergrad.interop.dlpack import CPU_DEVICE, export_array
from evergrad.ops.rows.movement.rearrange import flip
from evergrad.ops.surface.convert import share
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike

_array_namespace: ExtensionPoint[[], ModuleType] = ExtensionPoint("array_namespace")

# -- numbers ------------------------------------------------------------------------------------


@expose(function=False)
def item(self: Tensor) -> Any:
    """The only element, as a Python number."""
    if self._type.numel != 1:
        raise RuntimeError(
            f"a Tensor with {self._type.numel} elements cannot be converted to Scalar. Index one, "
            "reduce it (.sum(), .mean()), or use .tolist()."
        )
    number = deferred_item(self)
    return _element(self) if number is None else number


def _element(self: Tensor) -> Any:
    """The only element; while a program is traced, guarded on."""
    number = None if self.dtype.category > dtypes.INTEGRAL else data_number(self)
    if number is None:
        return self.array().item()
    return bool(number) if self.dtype is dtypes.bool_ else number.read()


@expose(function=False)
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    found = deferred_list(self)
    return self.array().tolist() if found is None else found


def _scalar(self: Tensor) -> Any:
    if self._type.numel != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return _element(self)


def _real_scalar(self: Tensor, kind: str) -> Any:
    value = _scalar(self)
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {kind} without overflow")
        return value.real
    return value


@expose(out=False)
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero."""
    if input._type.numel != 1:
        amount = "no values" if not input._type.numel else "more than one value"
        raise RuntimeError(
            f"Boolean value of Tensor with {amount} is ambiguous. Use .any() or .all()."
        )
    number = data_number(input)
    return bool(input.array().item() if number is None else number)


expose("__bool__", function=False)(is_nonzero)


@expose("__int__", function=False)
def _as_int(self: Tensor) -> int:
    number = data_number(self) if self.dtype.is_floating_point else None
    if number is not None:
        found = number.computed(int, number)
        return int(found.read() if type(found) is PythonNumber else found)
    return int(_real_scalar(self, "int64_t"))


@expose("__float__", function=False)
def _as_float(self: Tensor) -> float:
    return float(_real_scalar(self, "double"))


@expose("__complex__", function=False)
def _as_complex(self: Tensor) -> complex:
    return complex(_scalar(self))


@expose("__index__", function=False)
def _as_index(self: Tensor) -> int:
    if self._type.numel != 1 or self._type.dtype.category > dtypes.INTEGRAL:
        raise TypeError(
            "only integer tensors of a single element can be converted to an index, but this is a "
            f"{self._type}"
        )
    return int(_element(self))


@expose("__contains__", function=False)
def _contains(self: Tensor, element: object) -> bool:
    if not isinstance(element, Tensor | bool | int | float | complex | np.generic):
        raise RuntimeError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element)}."
        )
    found: Any = self == element
    return bool(found.any().item())


@expose("__reversed__", function=False)
def _reversed(self: Tensor) -> Tensor:
    return flip(self, (0,)) if self.ndim else self


# -- arrays -------------------------------------------------------------------------------------


@expose(function=False)
def numpy(self: Tensor, *, force: bool = False) -> Array:
    """The elements as a NumPy array on the same memory."""
    if not force and STATE.get().grad and current_node(self) is not None:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    deferred = deferred_array(self)
    if deferred is not None:
        return deferred  # type: ignore[no-any-return]
    array = self.array().view()
    self._storage.mark_shared()
    return array


@expose("__array__", function=False)
def _as_array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Array:
    array = numpy(self)
    if dtype is None or np.dtype(dtype) == array.dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(
            f"a {self._type} cannot become an array of {np.dtype(dtype)} without a copy"
        )
    return array.astype(dtype)


@expose("__array_wrap__", function=False)
def _wrap_array(
    self: Tensor, array: Array, context: object = None, return_scalar: bool = False
) -> Tensor:
    """What a NumPy function made of this tensor, as a tensor."""
    return share(np.asarray(array))


# NumPy then leaves `array + tensor` to the tensor.
Tensor.__array_priority__ = 1000


@expose("__dlpack__", function=False)
def _export(
    self: Tensor, *, stream: object = None, max_version: object = None, dl_device: object = None,
    copy: bool | None = None,
) -> Any:  # fmt: skip
    """A capsule on the same memory, for ``from_dlpack`` of any library."""
    if current_node(self) is not None:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    options = {"max_version": max_version, "dl_device": dl_device, "copy": copy, "stream": stream}
    given = {name: value for name, value in options.items() if value is not None}
    return export_array(numpy(self), **given)


@expose("__dlpack_device__", function=False)
def _device(self: Tensor) -> tuple[int, int]:
    return CPU_DEVICE


# -- the array API standard ---------------------------------------------------------------------

_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


@expose("__array_namespace__", function=False)
def _namespace(self: Tensor, *, api_version: str | None = None) -> ModuleType:
    """The functions of the array API standard, for tensors."""
    if api_version not in (None, *_API_VERSIONS):
        raise ValueError(
            f"the array API standard is supported up to {_API_VERSIONS[-1]}, not {api_version!r}"
        )
    return _array_namespace()


@expose(function=False)
def to_device(self: Tensor, device: DeviceLike, /, *, stream: object = None) -> Tensor:
    """The tensor itself, as there is one device: the standard's spelling of ``to``."""
    check_device(device)
    return self


# -- text ---------------------------------------------------------------------------------------


@expose("__repr__", function=False)
def _text(self: Tensor) -> str:
    node = self.grad_fn
    kind = type(self)
    ours = kind is Tensor or kind.__module__.startswith(("evergrad.", "torch.nn."))
    prefix = "tensor(" if ours else f"{type(self).__name__}("
    style = (prefix, self.requires_grad, None if node is None else node.name())
    mark = mark_of(self, style)
    if mark is not None:
        return mark
    symbolic = self._value if isinstance(self._value, Var) else self._storage.value
    if isinstance(symbolic, Var):
        if not symbolic.trace.is_lazy:
            return f"tensor(<traced>, type={self._type})"
        materialize(self, "a traced tensor was printed")
    note_outside_read(self)
    trace = functionalizing_trace()
    if trace is not None:
        trace.add_guard(print_options, "the print options")
    return format_tensor(
        self._value,
        dtype_name=self.dtype.name,
        default_dtype=dtypes.get_default_dtype().name,
        requires_grad=style[1],
        grad_fn=style[2],
        prefix=prefix,
    )


@expose("__format__", function=False)
def _formatted(self: Tensor, format_spec: str) -> str:
    if not self._type.shape and type(self) is Tensor:
        return mark_of(self, (format_spec,)) or format(item(self), format_spec)
    return object.__format__(self, format_spec)
