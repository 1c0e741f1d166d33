"""Stand-ins for containers that a function only appends to.

A list of losses that grows at every call is no guard of a program that never reads it: what is
appended is an output. While such a call is traced, the place of the container holds an
:class:`AppendRecorder`. Any use but appending is a read: the container itself is used from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

APPENDABLE = (list, deque, set)


class AppendRecorder:
    """Replaces a list, a deque or a set while tracing; ``pending`` is what was appended."""

    __slots__ = ("__weakref__", "held", "is_read", "pending")

    def __init__(self, held: Any) -> None:
        self.held = held
        self.pending: list[Any] = []
        self.is_read = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.held)  # for isinstance() in the traced function

    def append(self, value: Any) -> None:
        if self.is_read or type(self.held) is set:
            self.container().append(value)
        else:
            self.pending.append(value)

    def add(self, value: Any) -> None:
        if self.is_read or type(self.held) is not set:
            self.container().add(value)
        else:
            hash(value)
            self.pending.append(value)

    def container(self) -> Any:
        """The container itself, which is read."""
        self.is_read = True
        return self.flush()

    def flush(self) -> Any:
        """Append what is pending; returns the container."""
        pending, self.pending = self.pending, []
        append_all(self.held, pending)
        return self.held

    def __getattr__(self, name: str) -> Any:
        return getattr(self.container(), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.container().__reduce_ex__(protocol)


def append_all(container: Any, values: list[Any]) -> None:
    if type(container) is set:
        container.update(values)
    else:
        container.extend(values)


def _attach_methods() -> None:
    for name in (
        "len", "iter", "getitem", "setitem", "delitem", "contains", "eq", "ne", "lt", "le", "gt",
        "ge", "hash", "repr", "str", "format", "add", "radd", "mul", "rmul", "reversed", "or",
        "ror", "and", "rand", "sub", "rsub", "xor", "rxor",
    ):  # fmt: skip
        setattr(AppendRecorder, f"__{name}__", _reading(f"__{name}__"))
    for name in ("iadd", "imul", "ior", "iand", "isub", "ixor"):
        setattr(AppendRecorder, f"__{name}__", _in_place(f"__{name}__"))


def _reading(name: str) -> Callable[..., Any]:
    def method(self: AppendRecorder, *args: Any) -> Any:
        held = self.container()
        if name == "__hash__":
            return hash(held)
        found = getattr(held, name, None)
        return NotImplemented if found is None else found(*args)

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: AppendRecorder, other: Any) -> Any:
        found = getattr(self.container(), name, None)
        result = NotImplemented if found is None else found(other)
        return result if result is NotImplemented else self

    return method


_attach_methods()
