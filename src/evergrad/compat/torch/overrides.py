"""``__torch_function__``: classes that take over the functions called with their instances.

Three doors lead here. A subclass of Tensor defined outside of evergrad gets its methods wrapped
when the class is made, so plain tensors pay nothing. Functions read from a ``torch`` module of
``evergrad.as_torch`` check their arguments. :func:`handle_torch_function` is called by packages.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from evergrad.core.device import Device
from evergrad.core.dtypes import dtype
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.extension import provides
from evergrad.nn import functional
from evergrad.nn.parameter import Parameter
from evergrad.ops.surface.public import as_operand

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Leaves


class _Local(threading.local):
    disabled = False
    modes: tuple[Any, ...] = ()


_local = _Local()

# Classes whose instances never take over: the common arguments are dismissed by one set operation.
_PLAIN: set[type] = {
    Tensor, Parameter, Size, Device, dtype, int, float, bool, complex, str, bytes, type(None),
    slice, np.ndarray, np.float32, np.float64, np.int64, FunctionType,
}  # fmt: skip
_SEQUENCES = (list, tuple)


def disabled_torch_function(*args: object, **kwargs: object) -> Any:
    """The value of ``__torch_function__`` that lets a class take over nothing."""
    return NotImplemented


class DisableTorchFunctionSubclass:
    """A context in which subclasses of Tensor are treated as plain tensors."""

    def __enter__(self) -> None:
        self._former = _local.disabled
        _local.disabled = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _local.disabled = self._former


def _overrides(value: object) -> bool:
    kind = type(value)
    if kind in _PLAIN or isinstance(value, type):
        return False
    handler = getattr(kind, "__torch_function__", None)
    if handler is None or handler is disabled_torch_function or _is_own(kind):
        return False
    return not (_local.disabled and isinstance(value, Tensor))


def _is_own(kind: type) -> bool:
    return kind.__module__.startswith("evergrad.") and issubclass(kind, Tensor)


def _relevant(args: Iterable[object]) -> Leaves:
    """The arguments that take over, one of each class, subclasses before their bases."""
    found: Leaves = []
    for value in args:
        members = value if isinstance(value, _SEQUENCES) else (value,)
        for member in members:
            if _overrides(member) and all(type(member) is not type(f) for f in found):
                place = next(
                    (i for i, f in enumerate(found) if issubclass(type(member), type(f))),
                    len(found),
                )
                found.insert(place, member)
    return found


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Whether one of the arguments takes over, or a mode is active."""
    return bool(_local.modes) or bool(_relevant(relevant_args))


def has_torch_function_unary(argument: object) -> bool:
    return has_torch_function((argument,))


def has_torch_function_variadic(*arguments: object) -> bool:
    return has_torch_function(arguments)


def handle_torch_function(
    public_api: Callable[..., object],
    relevant_args: Iterable[object],
    *args: object,
    **kwargs: object,
) -> Any:
    """Call the innermost mode, or the ``__torch_function__`` of the arguments in turn."""
    found = _relevant(relevant_args)
    types = tuple(type(value) for value in found)
    if _local.modes:
        *outer, mode = _local.modes
        former, _local.modes = _local.modes, tuple(outer)
        try:
            return mode.__torch_function__(public_api, types, args, kwargs)
        finally:
            _local.modes = former
    for value in found:
        result = type(value).__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"no implementation found for {public_api!r} on types that implement __torch_function__: "
        f"{[kind.__name__ for kind in types]}"
    )


@functools.cache
def overridable(function: Callable[..., object], module: str) -> AnyFunction:
    """The function, checking its arguments for classes that take over."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        is_plain = not _local.modes and _PLAIN.issuperset(map(type, args))
        if is_plain and (not kwargs or _PLAIN.issuperset(map(type, kwargs.values()))):
            return function(*args, **kwargs)
        if len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], (list, tuple)):
            return call(args[0], *args[1])  # the operands of einsum, in a list
        relevant = (*args, *kwargs.values())
        if has_torch_function(relevant):
            return handle_torch_function(call, relevant, *args, **kwargs)
        return function(*args, **kwargs)

    call.__module__, call.__qualname__ = module, function.__name__
    return call


class _LayerFunctions:
    """``nn.functional`` for layers: functions that check their arguments."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(functional, name)
        if isinstance(found, FunctionType):
            found = overridable(found, "torch.nn.functional")
        self.__dict__[name] = found
        return found


_layer_functions = _LayerFunctions()


def let_layers_dispatch() -> None:
    """Let the functions that layers call check their arguments: from the first class that takes
    over functions on. Transformers keep a function as an attribute, which is pickled by its name.
    """
    for name, module in list(sys.modules.items()):
        # Programs put objects of any kind into sys.modules: only our own modules are looked at.
        if type(module) is not ModuleType or not name.startswith("evergrad.nn."):
            continue
        names = module.__dict__
        if names.get("__name__") == "evergrad.nn.transformer":  # by any of its names
            continue
        if names.get("F") is functional:
            names["F"] = _layer_functions


# -- subclasses of Tensor -----------------------------------------------------------------------

# Methods that concern the handle or give no tensor; they behave alike for every subclass.
_UNWRAPPED = frozenset(
    [
        "array",
        "as_subclass",
        "layout_array",
        "size",
        "dim",
        "numel",
        "nelement",
        "element_size",
        "stride",
        "storage_offset",
        "data_ptr",
        "is_contiguous",
        "is_floating_point",
        "is_complex",
        "is_signed",
        "is_inference",
        "ndimension",
        "backward",
        "requires_grad_",
        "retain_grad",
        "register_hook",
        "storage",
        "untyped_storage",
        "is_shared",
        "share_memory_",
        "numpy",
        "tolist",
        "item",
        "get_device",
        "is_set_to",
        "is_same_size",
        "__new__",
        "__init__",
        "__init_subclass__",
        "__class__",
        "__hash__",
        "__repr__",
        "__str__",
        "__format__",
        "__len__",
        "__reduce_ex__",
        "__reduce__",
        "__deepcopy__",
        "__setstate__",
        "__getstate__",
        "__array__",
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "__complex__",
        "__dir__",
        "__sizeof__",
        "__dlpack__",
        "__dlpack_device__",
        "__iter__",
        "__array_namespace__",
        "__contains__",
        "__subclasshook__",
        "__torch_function__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
    ]
)
_TENSOR_PROPERTIES = ("T", "H", "mT", "mH", "real", "imag", "data", "grad")


# Operators reach ``__torch_function__`` as the methods that PyTorch implements them by.
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div",
    "__itruediv__": "div_", "__ifloordiv__": "floor_divide_", "__mod__": "remainder",
    "__imod__": "remainder_", "__matmul__": "matmul", "__gt__": "gt", "__ge__": "ge",
    "__lt__": "lt", "__le__": "le", "__ne__": "ne",
}  # fmt: skip


def _public(name: str, plain: Callable[..., object]) -> Callable[..., object]:
    """What a method is for ``__torch_function__``."""
    found = vars(Tensor)[_OPERATORS[name]] if name in _OPERATORS else plain
    return found.plain if isinstance(found, _ModeMethod) else found


def _is_operand(value: object) -> bool:
    return _overrides(value) or as_operand(value) is not NotImplemented


def _method(name: str, plain: Callable[..., object]) -> Callable[..., object]:
    public = _public(name, plain)

    @functools.wraps(plain)
    def call(*args: object, **kwargs: object) -> Any:
        relevant = (*args, *kwargs.values())
        if has_torch_function(relevant):
            if public is not plain and not _is_operand(args[1]):
                return NotImplemented
            return handle_torch_function(public, relevant, *args, **kwargs)
        return plain(*args, **kwargs)

    return call


# Methods that read the elements.
_READS = (
    "numpy", "tolist", "item", "data_ptr", "__array__", "__bool__", "__float__", "__int__",
    "__index__", "__repr__", "__format__",
)  # fmt: skip


def _on_plain(method: Callable[..., object]) -> Callable[..., object]:
    """The method, called on the same tensor as a plain one."""

    @functools.wraps(method)
    def call(self: Tensor, *args: object, **kwargs: object) -> Any:
        return method(self.as_subclass(Tensor), *args, **kwargs)

    return call


def _property(plain: property) -> property:
    def read(self: Tensor) -> object:
        if _local.disabled:
            return plain.__get__(self)
        return type(self).__torch_function__(plain.__get__, (type(self),), (self,), {})

    return property(read, plain.fset, plain.fdel, plain.__doc__)


@provides("wrap_subclass")
def wrap_subclass(cls: type[Tensor]) -> None:
    """Let the methods that a new subclass inherits from Tensor go through its
    ``__torch_function__``."""
    if cls.__torch_function__ is disabled_torch_function or issubclass(cls, Parameter):
        return
    let_layers_dispatch()
    if any(base is not Tensor and issubclass(base, Tensor) for base in cls.__bases__):
        return  # inherits the wrappers
    if "array" in vars(cls):  # hides the method that the engine reads elements by
        for name in _READS:
            setattr(cls, name, _on_plain(getattr(Tensor, name)))
    for name, plain in vars(Tensor).items():
        private = name.startswith("_") and not name.startswith("__")
        if name in vars(cls) or name in _UNWRAPPED or private:
            continue
        if isinstance(plain, FunctionType):
            setattr(cls, name, _method(name, plain))
        elif name in _TENSOR_PROPERTIES and isinstance(plain, property):
            setattr(cls, name, _property(plain))


@provides("default_torch_function")
def default_torch_function(
    cls: type[Tensor], func: Callable[..., object], args: Any, kwargs: Any
) -> Any:
    """Call the function on plain tensors; tensors among its results become ``cls``."""
    with DisableTorchFunctionSubclass():
        return _as_subclass(func(*args, **(kwargs or {})), cls)


def _as_subclass(value: object, cls: type[Tensor]) -> Any:
    if cls is Tensor or isinstance(value, cls):
        return value
    if isinstance(value, Tensor):
        return value.as_subclass(cls)
    if isinstance(value, _SEQUENCES):
        made = (_as_subclass(member, cls) for member in value)
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


class _ModeMethod:
    """A method of Tensor while a mode is active: equal to the method, wherever that was read."""

    def __init__(self, plain: Callable[..., object], public: Callable[..., object]) -> None:
        functools.update_wrapper(self, plain)
        self.plain, self.public = plain, public

    def __call__(self, *args: object, **kwargs: object) -> Any:
        relevant = (*args, *kwargs.values())
        if has_torch_function(relevant):
            if self.public is not self.plain and not _is_operand(args[1]):
                return NotImplemented
            return handle_torch_function(self.public, relevant, *args, **kwargs)
        return self.plain(*args, **kwargs)

    def __get__(self, instance: object, owner: type) -> _ModeMethod | MethodType:
        return self if instance is None else MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        return (other.plain if isinstance(other, _ModeMethod) else other) is self.plain

    def __hash__(self) -> int:
        return hash(self.plain)


class _WrappedMethods:
    """The methods of Tensor, wrapped while a mode is active in any thread: plain tensors pay
    nothing at other times."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.active = 0
        self.plain: dict[str, Any] = {}

    def enter(self) -> None:
        with self.lock:
            self.active += 1
            if self.active == 1:
                self.plain = {
                    name: plain for name, plain in vars(Tensor).items()
                    if isinstance(plain, FunctionType) and name not in _UNWRAPPED
                    and (not name.startswith("_") or name.startswith("__"))
                }  # fmt: skip
                public = {name: _public(name, plain) for name, plain in self.plain.items()}
                for name, plain in self.plain.items():
                    setattr(Tensor, name, _ModeMethod(plain, public[name]))

    def leave(self) -> None:
        with self.lock:
            self.active -= 1
            if not self.active:
                for name, plain in self.plain.items():
                    setattr(Tensor, name, plain)


_methods = _WrappedMethods()


class TorchFunctionMode:
    """A context whose ``__torch_function__`` is called for every function of ``torch`` and every
    method of a tensor that a program calls."""

    def __enter__(self) -> Self:
        _methods.enter()
        _local.modes = (*_local.modes, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _local.modes = _local.modes[:-1]
        _methods.leave()

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: object = (), kwargs: object = None
    ) -> Any:
        raise NotImplementedError


def is_tensor_like(inp: object) -> bool:
    """Whether it is a tensor, or an object that takes over functions of tensors."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., object]) -> bool:
    return func in vars(Tensor).values() or getattr(func, "__name__", None) == "__get__"


def resolve_name(f: Callable[..., object]) -> str | None:
    """The name under which a function is public."""
    plain = f.plain if isinstance(f, _ModeMethod) else f
    if isinstance(plain, FunctionType):
        methods = {**vars(Tensor), **_methods.plain}  # while a mode is active, the wrapped ones
        # Several operators may be one function, which then has the name of its method.
        for name in (plain.__name__, *methods):
            if methods.get(name) is plain:
                return f"torch.Tensor.{name}"
    return f"{f.__module__}.{f.__qualname__}" if hasattr(f, "__qualname__") else None


def get_default_nowrap_functions() -> set[Callable[..., object]]:
    """Functions whose results stay plain tensors: none beyond those that give no tensor."""
    return set()


def wrap_torch_function(dispatcher: AnyFunction) -> AnyFunction:
    """A decorator: the arguments that ``dispatcher`` gives may take the function over."""

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def wrapped(*args: object, **kwargs: object) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


__all__ = [
    "DisableTorchFunctionSubclass", "TorchFunctionMode", "get_default_nowrap_functions",
    "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property",
    "resolve_name", "wrap_torch_function",
]  # fmt: skip
