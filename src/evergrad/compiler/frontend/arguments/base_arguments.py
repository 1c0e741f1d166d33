"""Arguments that a call reads or writes through other views too: their whole storage is one more
argument of the program.

A write through a view changes its storage, of which other arguments may show parts. The program
takes the whole array as an input and gives its new content; which parts of it the arguments are, by
their offsets and strides, is guarded on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.arguments.signature import address_of
from evergrad.compiler.frontend.session import Session
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, on_storage

if TYPE_CHECKING:
    from evergrad.core.shapes import TensorType
    from evergrad.core.types import Array


class BaseArgument:
    """The whole storage of an argument: its type, and the offsets in bytes of the arguments on
    it."""

    __slots__ = ("index", "offsets", "strides", "type")

    def __init__(self, arguments: Sequence[Tensor], indices: Sequence[int], array: Array) -> None:
        self.index: int = indices[0]
        self.type: TensorType = arguments[self.index]._storage.type
        self.strides = array.strides
        start = address_of(array)
        self.offsets: list[tuple[int, int]] = [
            (i, address_of(arguments[i]._value) - start) for i in indices
        ]

    def tensor_for(self, arguments: Sequence[Tensor]) -> Tensor | None:
        """The whole storage as a tensor; ``None`` if the program is not for it."""
        storage = arguments[self.index]._storage
        array: Any = storage.value
        if storage.shared or storage.type is not self.type or array.strides != self.strides:
            return None
        start = address_of(array)
        for index, offset in self.offsets:
            if address_of(arguments[index]._value) - start != offset:
                return None
        return on_storage(array, storage.type, storage, None)


def base_arguments(
    trace: Session, arguments: Sequence[Tensor]
) -> tuple[list[BaseArgument], list[Tensor]]:
    """The storages of arguments that a call has read or written through other views than these, and
    handles on them."""
    of_storage: dict[int, list[int]] = {}
    for index, argument in enumerate(arguments):
        of_storage.setdefault(id(argument._storage), []).append(index)
    found: list[BaseArgument] = []
    handles: list[Tensor] = []
    for indices in of_storage.values():
        given = [arguments[index] for index in indices]
        storage = given[0]._storage
        if storage.shared or any(t.requires_grad or t._grad is not None for t in given):
            continue
        if _is_seen_otherwise(trace, storage, given):
            write = trace.written.get(id(storage))
            array: Any = storage.value if write is None else write.value
            found.append(BaseArgument(arguments, indices, array))
            handles.append(on_storage(array, storage.type, storage, None))
    return found, handles


def _is_seen_otherwise(trace: Session, storage: Storage, given: Sequence[Tensor]) -> bool:
    views = [tensor._value for _, tensor in trace.captures if tensor._storage is storage]
    write = trace.written.get(id(storage))
    if write is not None:
        views.append(write.value)
        if len(given) > 1:
            return True
    return any(not any(is_same_memory(view, t._value) for t in given) for view in views)


def is_same_memory(a: Any, b: Any) -> bool:
    """Whether two arrays are the same elements in the same layout."""
    return bool(
        a.__array_interface__["data"] == b.__array_interface__["data"]
        and a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
    )  # fmt: skip
