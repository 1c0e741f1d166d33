"""Which names a file may use, and what stands behind them: the one list, for both directions.

``WEIGHTS`` is always allowed; ``HARMLESS`` is opened by ``weights_only=False`` or by a grant. No
module is imported because a file names it: names are looked up in these tables and, for classes of
:mod:`evergrad.nn` and :mod:`evergrad.optim`, in modules of those packages that are there already.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evergrad.core.shapes import Size
from evergrad.core.tensor import Device, Tensor
from evergrad.io import containers, rebuild
from evergrad.io.element_types import ELEMENT_TYPES
from evergrad.io.sparse_parts import SparseMaker
from evergrad.io.storages import KIND_OF, UNTYPED
from evergrad.nn.hooks import HookTables
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter


class Named(NamedTuple):
    """What a name stands for, and what happens when a file calls it or sets the state of one.

    Arguments and state are checked by the functions, except for what is ``trusted``: the user
    answers for it.
    """

    value: Any
    make: Callable[..., Any] | None = None
    set_state: Callable[[Any, Any], None] | None = None
    trusted: bool = False


def _called(function: Callable[..., Any]) -> Named:
    return Named(function, function)


# Names under ``torch.``; files may say ``evergrad.`` as well.
_OF_TORCH: dict[str, Named] = {
    "_utils._rebuild_tensor": _called(rebuild.tensor),
    "_utils._rebuild_tensor_v2": _called(rebuild.tensor_v2),
    "_utils._rebuild_tensor_v3": _called(rebuild.tensor_v3),
    "_utils._rebuild_parameter": _called(rebuild.parameter),
    "_utils._rebuild_parameter_with_state": _called(rebuild.parameter_with_state),
    "_utils._rebuild_sparse_tensor": Named(SparseMaker.make),
    "_tensor._rebuild_from_type_v2": _called(rebuild.from_type),
    "serialization._get_layout": _called(rebuild.layout_named),
    "nn.parameter.Parameter": Named(Parameter, rebuild.parameter),
    "Size": Named(Size, containers.make_size),
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
        collections.OrderedDict, containers.make_ordered_dict, rebuild.set_attributes
    ),
    "collections.Counter": Named(collections.Counter, containers.make_counter),
    "_codecs.encode": _called(containers.make_bytes),
    "builtins.set": Named(set, containers.make_set),
    "builtins.bytearray": Named(bytearray, containers.make_bytearray),
    "builtins.complex": Named(complex, containers.make_complex),
    **{f"torch.{name}": named for name, named in _OF_TORCH.items()},
    **{f"evergrad.{name}": named for name, named in _OF_TORCH.items()},
}


def _lazy_maker(cls: Any) -> Callable[..., Any]:
    """Makes parameters that have no elements yet."""

    def make(requires_grad: Any = True, device: Any = None, dtype: Any = None) -> Any:
        return cls(requires_grad=requires_grad is True, dtype=dtype)

    return make


# Classes that are values, as the ones a defaultdict makes.
_PLAIN_CLASSES: tuple[type, ...] = (list, dict, tuple, int, float, bool, str)

HARMLESS: dict[str, Named] = {
    **{f"builtins.{c.__name__}": Named(c) for c in _PLAIN_CLASSES},
    "builtins.bytes": Named(bytes, containers.make_bytes),
    "builtins.frozenset": Named(frozenset, containers.make_frozenset),
    "builtins.slice": Named(slice, containers.make_slice),
    "builtins.range": Named(range, containers.make_range),
    "collections.defaultdict": Named(collections.defaultdict, containers.make_defaultdict),
    "collections.deque": Named(collections.deque, containers.make_deque),
    "argparse.Namespace": Named(
        argparse.Namespace, containers.make_namespace, rebuild.set_attributes
    ),
    "types.SimpleNamespace": Named(
        types.SimpleNamespace, containers.make_simple_namespace, rebuild.set_attributes
    ),
    **{f"pathlib.{name}": Named(getattr(pathlib, name), containers.make_path)
       for name in ("Path", "PosixPath", "WindowsPath")},
    **{f"datetime.{c.__name__}": Named(c, containers.time_maker(c)) for c in (
        datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)},
    "numpy.ndarray": Named(np.ndarray, None, containers.set_numpy_array),
    "numpy.dtype": Named(np.dtype, containers.make_numpy_dtype, containers.set_numpy_dtype),
    "numpy._core.multiarray.scalar": _called(containers.make_numpy_scalar),
    "numpy._core.multiarray._reconstruct": _called(containers.make_numpy_array),
    "numpy._core.numeric._frombuffer": _called(containers.make_array_from_buffer),
    **{f"{c.__module__}.{c.__qualname__}": Named(c, _lazy_maker(c))
       for c in (UninitializedParameter, UninitializedBuffer)},
    "evergrad.nn.hooks.HookTables": Named(HookTables, HookTables, rebuild.set_hook_tables),
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
    return Named(value, value, rebuild.set_state, trusted=True)


def own(path: str) -> Named | None:
    """The layer, optimizer or function of this package that a path names.

    An object of such a class is made empty and given its state; no constructor runs. A function is
    a value, which files cannot call.
    """
    found = _own_class(path)
    if found is not None:
        return Named(found, lambda: object.__new__(found), rebuild.set_own_state)
    function = _own_function(path)
    return None if function is None else Named(function)


def _own_class(path: str) -> type | None:
    """A class by its own path, or a layer by PyTorch's."""
    import evergrad.nn
    from evergrad.optim import Optimizer
    from evergrad.optim.lr_scheduler import LRScheduler

    module, _, name = path.rpartition(".")
    if module.startswith("torch.nn.modules."):
        home: Any = evergrad.nn
    elif module.startswith(("evergrad.nn.", "evergrad.optim.")):
        home = sys.modules.get(module)
    else:
        return None
    found = getattr(home, "__dict__", {}).get(name)
    is_own = isinstance(found, type) and issubclass(found, (Module, Optimizer, LRScheduler))
    return found if is_own else None


def _own_function(path: str) -> Callable[..., Any] | None:
    import evergrad.nn.functional

    module, _, name = path.rpartition(".")
    found = vars(evergrad.nn.functional).get(name)
    if not isinstance(found, types.FunctionType):
        return None
    return found if module in (*_FUNCTION_HOMES, found.__module__) else None
