"""Functions of layers under PyTorch's native path, and how ``Module.to`` reads its arguments."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from evergrad.core.device import Device
from evergrad.core.dtypes import dtype
from evergrad.core.tensor import Tensor


def _parse_to(*args: object, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The device, element type, ``non_blocking`` and memory format of a call of ``to``."""
    place, kind = kwargs.get("device"), kwargs.get("dtype")
    blocking = []
    for argument in args:
        if isinstance(argument, dtype):
            kind = argument
        elif isinstance(argument, Tensor):
            place, kind = argument.device, argument.dtype
        elif isinstance(argument, bool):
            blocking.append(argument)
        elif argument is not None:
            place = argument
    found = None if place is None else place if isinstance(place, Device) else Device(place)
    return found, kind, kwargs.get("non_blocking", any(blocking)), kwargs.get("memory_format")


def __getattr__(name: str) -> Any:
    functional = import_module("evergrad.nn.functional")
    if not name.startswith("_") and hasattr(functional, name):
        return getattr(functional, name)
    raise AttributeError(f"evergrad has no torch._C._nn.{name}")
