"""The names a file may use and the objects they denote: one table for reading and writing.

``WEIGHTS`` is always allowed; ``HARMLESS`` is allowed by ``weights_only=False`` or by a grant
(``add_safe_globals`` for the process, ``safe_globals`` for a ``with`` block of one thread). No
module is imported because a file names it: names are looked up in these tables and, for classes of
:mod:`evergrad.nn` and :mod:`evergrad.optim`, in modules of those packages that are loaded already.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import pathlib
import sys
import types
from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import evergrad.nn.functional
from evergrad.core.device import Device
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.core.thread_variable import thread_variable
from evergrad.io import objects
from evergrad.io.nested_parts import (
    Ignored,
    ragged_batch,
    ragged_tensor,
    rebuild_jagged,
    strided,
    strided_of_torch,
)
from evergrad.io.objects import SparseMaker
from evergrad.io.storages import ELEMENT_TYPES, KIND_OF, UNTYPED
from evergrad.nested.jagged import NestedTensor
from evergrad.nn.hooks import HookTables
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

if TYPE_CHECKING:
    from types import FunctionType

    from evergrad.core.tensor import TensorMeta
    from evergrad.core.types import DeviceLike


class Named(NamedTuple):
    """What a name refers to, and what happens when a file calls it or sets the state of one.

    Arguments and state are checked by the functions, except for what is ``trusted``: the user
    answers for it.
    """

    value: Any
    make: Callable[..., object] | None = None
    set_state: Callable[[Any, Any], None] | None = None
    trusted: bool = False


def _called(function: Callable[..., object]) -> Named:
    return Named(function, function)


# Names under ``torch.``; files may say ``evergrad.`` as well.
_OF_TORCH: dict[str, Named] = {
    "_utils._rebuild_tensor": _called(objects.tensor),
    "_utils._rebuild_tensor_v2": _called(objects.tensor_v2),
    "_utils._rebuild_tensor_v3": _called(objects.tensor_v3),
    "_utils._rebuild_parameter": _called(objects.parameter),
    "_utils._rebuild_parameter_with_state": _called(objects.parameter_with_state),
    "_utils._rebuild_sparse_tensor": Named(SparseMaker.make),
    "_utils._rebuild_nested_tensor": _called(strided_of_torch),
    "nested._internal.nested_tensor._rebuild_njt": Named(rebuild_jagged),
    "nested._internal.nested_tensor.NestedTensor": Named(NestedTensor),
    "_dynamo.decorators._DimRange": Named(Ignored, Ignored, Ignored.set_state),
    "_tensor._rebuild_from_type_v2": _called(objects.from_type),
    "serialization._get_layout": _called(objects.layout_named),
    "nn.parameter.Parameter": Named(Parameter, objects.parameter),
    "Size": Named(Size, objects.make_size),
    "Tensor": Named(Tensor),
    "device": Named(Device),
    UNTYPED.name: Named(UNTYPED),
    **{kind.name: Named(kind) for kind in KIND_OF.values()},
    **{
        name: Named(element if element.name != element.loaded.name else element.loaded)
        for name, element in ELEMENT_TYPES.items()
    },
}

WEIGHTS: dict[str, Named] = {
    "collections.OrderedDict": Named(
        collections.OrderedDict, objects.make_ordered_dict, objects.set_attributes
    ),
    "collections.Counter": Named(collections.Counter, objects.make_counter),
    "_codecs.encode": _called(objects.make_bytes),
    "builtins.set": Named(set, objects.make_set),
    "builtins.bytearray": Named(bytearray, objects.make_bytearray),
    "builtins.complex": Named(complex, objects.make_complex),
    "evergrad.nested.strided._rebuilt": _called(strided),
    "evergrad.ragged.value.Tensor": _called(ragged_tensor),
    "evergrad.ragged.batch.Batch": _called(ragged_batch),
    **{f"torch.{name}": named for name, named in _OF_TORCH.items()},
    **{f"evergrad.{name}": named for name, named in _OF_TORCH.items()},
}


def _lazy_maker(cls: TensorMeta) -> Callable[..., object]:
    """Makes parameters that have no elements yet."""

    def make(
        requires_grad: object = True, device: DeviceLike = None, dtype: object = None
    ) -> object:
        return cls(requires_grad=requires_grad is True, dtype=dtype)

    return make


# Classes that are values, as the ones a defaultdict makes.
_PLAIN_CLASSES: tuple[type, ...] = (list, dict, tuple, int, float, bool, str)

HARMLESS: dict[str, Named] = {
    **{f"builtins.{c.__name__}": Named(c) for c in _PLAIN_CLASSES},
    "builtins.bytes": Named(bytes, objects.make_bytes),
    "builtins.frozenset": Named(frozenset, objects.make_frozenset),
    "builtins.slice": Named(slice, objects.make_slice),
    "builtins.range": Named(range, objects.make_range),
    "collections.defaultdict": Named(collections.defaultdict, objects.make_defaultdict),
    "collections.deque": Named(collections.deque, objects.make_deque),
    "argparse.Namespace": Named(
        argparse.Namespace, objects.make_namespace, objects.set_attributes
    ),
    "types.SimpleNamespace": Named(
        types.SimpleNamespace, objects.make_simple_namespace, objects.set_attributes
    ),
    # CPython 3.13 writes the private module.
    **{f"{module}.{name}": Named(getattr(pathlib, name), objects.make_path)
       for module in ("pathlib", "pathlib._local")
       for name in ("Path", "PosixPath", "WindowsPath")},
    **{f"datetime.{c.__name__}": Named(c, objects.time_maker(c)) for c in (
        datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)},
    "numpy.ndarray": Named(np.ndarray, None, objects.set_numpy_array),
    "numpy.dtype": Named(np.dtype, objects.make_numpy_dtype, objects.set_numpy_dtype),
    "numpy._core.multiarray.scalar": _called(objects.make_numpy_scalar),
    "numpy._core.multiarray._reconstruct": _called(objects.make_numpy_array),
    "numpy._core.numeric._frombuffer": _called(objects.make_array_from_buffer),
    **{f"{c.__module__}.{c.__qualname__}": Named(c, _lazy_maker(c))
       for c in (UninitializedParameter, UninitializedBuffer)},
    "evergrad.nn.hooks.HookTables": Named(HookTables, HookTables, objects.set_hook_tables),
}  # fmt: skip

# The objects among them that a pickle of ours has to name as PyTorch does.
TORCH_NAMES: dict[int, str] = {id(named.value): name for name, named in _OF_TORCH.items()}

_RENAMED = {
    ("__builtin__", "xrange"): "builtins.range",
    ("__builtin__", "long"): "builtins.int",
    ("__builtin__", "unicode"): "builtins.str",
}
_RENAMED_MODULES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
    "torch.tensor": "torch._tensor",
}


def full_path(module: str, name: str) -> str:
    """The path of a name, as it is today."""
    found = _RENAMED.get((module, name))
    return found or f"{_RENAMED_MODULES.get(module, module)}.{name}"


# -- what is granted, and classes of our own ----------------------------------------------------

_FUNCTION_HOMES = ("torch.nn.functional", "torch._C._nn")


def trusted(value: Any) -> Named:
    """What a user has granted."""
    return Named(value, value, objects.set_state, trusted=True)


def own(path: str) -> Named | None:
    """The layer, optimizer or function of this package that a path names.

    An object of such a class is made empty and given its state; no constructor runs. A function is
    a value, which files cannot call.
    """
    found = _own_class(path)
    if found is not None:
        return Named(found, lambda: object.__new__(found), objects.set_own_state)
    function = _own_function(path)
    return None if function is None else Named(function)


def _own_class(path: str) -> type | None:
    """A class by its own path, or a layer by PyTorch's."""
    from evergrad.optim import Optimizer  # start-up: files of weights name no optimizer
    from evergrad.optim.lr_scheduler import LRScheduler  # start-up: likewise

    module, _, name = path.rpartition(".")
    if module.startswith("torch.nn.modules."):
        home: object = evergrad.nn
    elif module.startswith(("evergrad.nn.", "evergrad.optim.")):
        home = sys.modules.get(module)
    else:
        return None
    found = getattr(home, "__dict__", {}).get(name)
    is_own = isinstance(found, type) and issubclass(found, (Module, Optimizer, LRScheduler))
    return found if is_own else None


def _own_function(path: str) -> FunctionType | None:
    module, _, name = path.rpartition(".")
    found = vars(evergrad.nn.functional).get(name)
    if not isinstance(found, types.FunctionType):
        return None
    return found if module in (*_FUNCTION_HOMES, found.__module__) else None


Grant = Callable[..., Any] | tuple[Callable[..., Any], str]

_for_all: list[Grant] = []
_here: ContextVar[tuple[Grant, ...]] = thread_variable("safe_globals", ())


def _path_of(grant: Grant) -> str:
    """The name under which files refer to something granted."""
    if not isinstance(grant, tuple):
        if not hasattr(grant, "__qualname__"):
            raise TypeError(
                f"safe_globals takes classes and functions, not {grant!r}; as in "
                "safe_globals([MyClass])"
            )
        return f"{grant.__module__}.{grant.__qualname__}"
    if len(grant) != 2:
        raise ValueError(
            "Expected tuple of length 2 (global, str of callable full path), but got tuple of "
            f"length: {len(grant)}"
        )
    if type(grant[1]) is not str:
        raise TypeError(
            "Expected second item in tuple to be str of callable full path, but got: "
            f"{type(grant[1])}"
        )
    return grant[1]


def _checked(grants: Iterable[Grant]) -> list[Grant]:
    listed = list(grants)
    for grant in listed:
        _path_of(grant)
    return listed


def add_safe_globals(safe_globals: list[Grant]) -> None:
    """Let files name these classes and functions: make objects of them, set state, call them.

    An item is a class or function, or a pair of it and the full path under which files name it.
    """
    _for_all.extend(grant for grant in _checked(safe_globals) if grant not in _for_all)


def get_safe_globals() -> list[Grant]:
    """Everything granted at the moment."""
    return list(dict.fromkeys([*_for_all, *_here.get()]))


def clear_safe_globals() -> None:
    """Take back everything that ``add_safe_globals`` granted."""
    _for_all.clear()


class safe_globals:  # noqa: N801 - PyTorch's spelling
    """``with safe_globals([MyClass]):`` lets files name these classes and functions."""

    def __init__(self, safe_globals: list[Grant]) -> None:
        self.safe_globals: list[Grant] = _checked(safe_globals)
        self._tokens: list[Token[tuple[Grant, ...]]] = []

    def __enter__(self) -> None:
        self._tokens.append(_here.set((*_here.get(), *self.safe_globals)))

    def __exit__(self, *exception: object) -> None:
        _here.reset(self._tokens.pop())


def granted() -> dict[str, object]:
    """What is granted at the moment, by the paths files use."""
    return {_path_of(g): g[0] if isinstance(g, tuple) else g for g in get_safe_globals()}
