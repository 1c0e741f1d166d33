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
    """A function with its overloads as attributes, all of which call the function."""

    def __init__(self, namespace: str, name: str, function: Callable[..., object]) -> None:
        self.namespace, self.__name__, self._function = namespace, name, function
        self.__doc__ = function.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("_"):
            raise AttributeError(name)
        made = self.__dict__[name] = OpOverload(self, name)
        return made

    def overloads(self) -> list[str]:
        return ["default"]

    @property
    def _qualified_op_name(self) -> str:
        return f"{self.namespace}::{self.__name__}"

    def __eq__(self, other: object) -> bool:
        packet = other.overloadpacket if isinstance(other, OpOverload) else other
        if not isinstance(packet, OpOverloadPacket):
            return NotImplemented
        return packet._qualified_op_name == self._qualified_op_name

    def __hash__(self) -> int:
        return hash(self._qualified_op_name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


class OpOverload:
    """One signature of an operator. It is equal to its packet, by which policies look it up."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket = self._overloadpacket = packet
        self._overloadname, self.namespace = overload, packet.namespace
        self._opname = packet.__name__
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__doc__ = packet.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.overloadpacket._function(*args, **kwargs)

    def name(self) -> str:
        """As the dispatcher names it: ``aten::add.Tensor``, ``aten::mm``."""
        suffix = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{self.overloadpacket._qualified_op_name}{suffix}"

    @property
    def _schema(self) -> object:
        schema = getattr(self.overloadpacket._function, "_schema", None)
        if schema is None:
            raise AttributeError(f"evergrad has no schema of {self}")
        return schema

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OpOverload):
            return self.name() == other.name()
        return self.overloadpacket == other

    def __hash__(self) -> int:
        return hash(self.overloadpacket)

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"


class _Namespace(ModuleType):
    """Operators of one library, each made at its first use."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self.__dict__["_space"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._space != "aten":
            raise AttributeError(f"'_OpNamespace' '{self._space}' object has no attribute '{name}'")
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


def forget(namespace: str, name: str) -> None:
    """Remove a registered function."""
    __getattr__(namespace).__dict__.pop(name.partition(".")[0], None)


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
