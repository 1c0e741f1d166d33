"""``torch.ops``: registered operators by namespace. ``aten`` has evergrad's own functions."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from evergrad.core.tensor import Tensor
from evergrad.extension import provides
from evergrad.nn import functional, native
from evergrad.ops.surface.public import FUNCTIONS

from ._aten import OPERATORS


class OpOverloadPacket:
    """A function with its overloads as attributes, all of which are the function."""

    def __init__(self, namespace: str, name: str, function: Callable[..., object]) -> None:
        self.namespace, self.__name__, self._function = namespace, name, function
        self.__doc__ = function.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"


OpOverload = OpOverloadPacket


class _Namespace(ModuleType):
    """Operators of one library, each made at its first use."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self.__dict__["_space"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._space != "aten":
            raise AttributeError(f"evergrad has no torch.ops.{self._space}.{name}")
        function = _aten(name) or _refusing(name)
        made = self.__dict__[name] = OpOverloadPacket(self._space, name, function)
        return made


def _aten(name: str) -> Any:
    for found in (
        OPERATORS.get(name), FUNCTIONS.get(name), getattr(native, name, None),
        getattr(functional, name, None), getattr(Tensor, name, None),
    ):  # fmt: skip
        if callable(found):
            return found
    return None


def _refusing(name: str) -> Callable[..., object]:
    """Packages use operators as keys of tables: every name exists, and refuses when called."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(f"evergrad has no torch.ops.aten.{name}")

    return refuse


_namespaces: dict[str, _Namespace] = {}


def register(namespace: str, name: str, function: Callable[..., object]) -> None:
    """Make a function reachable as ``torch.ops.<namespace>.<name>``."""
    setattr(__getattr__(namespace), name, OpOverloadPacket(namespace, name, function))


@provides("aten_operator")
def aten_operator(name: str) -> Any:
    """``torch.ops.aten.<name>``"""
    return getattr(__getattr__("aten"), name)


def load_library(path: str) -> None:
    raise OSError(f"evergrad loads no native libraries of PyTorch: {path}")


def __getattr__(name: str) -> _Namespace:
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in _namespaces:
        _namespaces[name] = _Namespace(name)
    return _namespaces[name]
