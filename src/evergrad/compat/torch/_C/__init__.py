"""PyTorch's native module: the handful of its names that packages read.

Classes are evergrad's own, so that ``isinstance`` answers; switches of PyTorch's compilers are
accepted without effect.
"""

from __future__ import annotations

from collections.abc import Callable

from evergrad.core.device import Device as device  # noqa: N813 - PyTorch's spelling
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import layout, memory_format
from evergrad.core.node import GraphNode as _NodeBase
from evergrad.core.rng.default_generator import Generator
from evergrad.core.settings import get_default_device
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor

from .. import overrides as _overrides
from . import _functorch, _nn

TensorBase = Tensor
_TensorBase = Tensor
_TensorMeta = type(Tensor)
_disabled_torch_function_impl = _overrides.disabled_torch_function
DisableTorchFunctionSubclass = _overrides.DisableTorchFunctionSubclass
DisableTorchFunction = _overrides.DisableTorchFunctionSubclass


class Graph:
    """A graph of PyTorch's former compiler: none exists here."""


class Value:
    """A value in such a graph: none exists here."""


class ScriptFunction:
    """A function of PyTorch's former compiler: none exists here."""


class FatalError(RuntimeError):
    """Raised by PyTorch's runtime; never here."""


class _LinAlgError(RuntimeError):
    """A failed decomposition."""


def _log_api_usage_once(name: str) -> None:
    """Usage is not recorded."""


def _get_tracing_state() -> None:
    """PyTorch's former compiler is not tracing."""


def _get_default_device() -> str:
    return str(get_default_device())


def _get_accelerator(check: bool | None = None) -> device:
    return device("cpu")


def _get_privateuse1_backend_name() -> str:
    return "privateuseone"


def _are_functorch_transforms_active() -> bool:
    return False


def _is_tracing() -> bool:
    return False


def _cuda_getDeviceCount() -> int:
    return 0


def _get_cpu_capability() -> str:
    return "DEFAULT"


def __getattr__(name: str) -> Callable[..., bool]:
    """Switches of PyTorch's compilers: they accept any arguments and change nothing."""
    if name.startswith(("_jit_", "_set_", "_debug_")):
        return lambda *args, **kwargs: False
    raise AttributeError(f"evergrad has no torch._C.{name}")


__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "FatalError", "Generator", "Graph",
    "ScriptFunction", "Size", "TensorBase", "Value", "_LinAlgError", "_NodeBase", "_TensorBase",
    "_TensorMeta", "_are_functorch_transforms_active", "_cuda_getDeviceCount",
    "_disabled_torch_function_impl", "_functorch", "_get_accelerator", "_get_cpu_capability",
    "_get_default_device", "_get_privateuse1_backend_name", "_get_tracing_state", "_is_tracing",
    "_log_api_usage_once", "_nn", "device", "dtype", "layout", "memory_format",
]  # fmt: skip
