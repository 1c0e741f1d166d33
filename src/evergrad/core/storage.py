"""The bytes behind tensors, and the only thing in the engine that changes.

A :class:`Storage` owns one buffer, counts every write in ``version``, and is entered in the ledger
for as long as it lives. Tensors are views on it. While a trace is running a storage may hold a
symbolic value instead of an array; it then weighs nothing.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import SourceLocation
from evergrad.extension import provides
from evergrad.memory.ledger import LEDGER, SAVED

if TYPE_CHECKING:
    from evergrad.core.trace import Var

Array = np.ndarray[Any, Any]


class NoArray:
    """Stands where the array of a tensor made of parts would be, and refuses every use."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(
            "this operation reads a dense array, which a sparse or nested tensor does not have.\n"
            "  fix: use to_dense() (of a nested tensor: values(), unbind() or to_padded_tensor())."
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


NO_ARRAY: Any = NoArray()


class Storage:
    """One buffer. ``value`` is its canonical array; every tensor on it is a view of that.

    ``saved`` tells that a graph has kept it for backward at some time, ``shared`` that code
    outside can write to it unseen; a storage that is both is guarded by a checksum.
    """

    __slots__ = (
        "__weakref__", "category", "nbytes", "saved", "saved_checksum", "shared", "type", "value",
        "version", "writer",
    )  # fmt: skip

    value: Array | Var
    writer: SourceLocation | None
    saved_checksum: int | None

    def __init__(self, value: Array | Var, type: TensorType, nbytes: int) -> None:
        self.value = value
        self.type = type
        self.nbytes = nbytes
        self.version = 0
        self.category = 0
        self.saved = False
        self.shared = False
        ledger = LEDGER
        ledger.live += nbytes
        ledger.count += 1
        if ledger.observer is not None:
            ledger.observer.allocated(self)
        if ledger.live > ledger.peak:
            ledger.peak = ledger.live

    def __del__(self) -> None:
        ledger = LEDGER
        nbytes = self.nbytes
        ledger.live -= nbytes
        ledger.count -= 1
        if self.category:
            ledger.by_category[self.category] -= nbytes
        if ledger.observer is not None:
            ledger.observer.freed(self)

    def tag(self, category: int) -> None:
        """Move the bytes to another category of the ledger."""
        if self.category:
            LEDGER.by_category[self.category] -= self.nbytes
        self.category = category
        if category:
            LEDGER.by_category[category] += self.nbytes

    def mark_saved(self) -> None:
        """Note that a graph keeps it: as watch() and tag(), in one call for every kept result."""
        if not self.saved:
            self.saved = True
            self.saved_checksum = None
        if not self.category:
            self.category = SAVED
            LEDGER.by_category[SAVED] += self.nbytes

    def watch(self) -> None:
        """Be ready to notice writes from outside."""
        if not self.saved:
            self.saved = True
            self.saved_checksum = None

    def mark_shared(self) -> None:
        """Note that code outside may now write to the buffer."""
        if not self.shared:
            self.shared = True
            if self.saved:
                self.saved_checksum = self.checksum()

    def checksum(self) -> int:
        return checksum(self.value)

    def resize(self, nbytes: int) -> None:
        """Enter another size in the ledger, after ``value`` has been exchanged."""
        category, observer = self.category, LEDGER.observer
        self.tag(0)
        if observer is not None:
            observer.freed(self)
        LEDGER.live += nbytes - self.nbytes
        self.nbytes = nbytes
        self.tag(category)
        if observer is not None:
            observer.allocated(self)
        if LEDGER.live > LEDGER.peak:
            LEDGER.peak = LEDGER.live
        MUTATIONS.count += 1


@provides("storage_class")
def storage_class() -> type[Storage]:
    """The class of the objects that are buffers."""
    return Storage


def checksum(array: Any) -> int:
    """A fingerprint of the elements, whatever the strides."""
    if array.size == 0:
        return 0
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
