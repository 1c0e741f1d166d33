"""Storages: the buffers behind tensors, and the only mutable values of the engine.

A :class:`Storage` owns one buffer, counts every write in its version counter, and is entered in the
ledger while it lives. Tensors alias it. While a trace is running a storage may hold a symbolic
value instead of an array; it then has no bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import SourceLocation
from evergrad.core.types import Array as Array
from evergrad.extension import ExtensionPoint, provides
from evergrad.memory.ledger import LEDGER, SAVED, exclusive

if TYPE_CHECKING:
    from evergrad.core.trace import Var
    from evergrad.core.types import DtypeLike


_memory_hash: ExtensionPoint[[], Callable[[int, int, int], None] | None] = ExtensionPoint(
    "memory_hash"
)
# Bytes of the hashes of a block, and from how many bytes on they are faster than CRC-32.
_BLOCK_BYTES = 512
_HASHED_BYTES = 1 << 14


class NoArray:
    """The value of a tensor made of parts, which has no array: every use raises."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(
            "this operation reads a dense array, which a sparse or nested tensor does not have.\n"
            "  fix: use to_dense() (of a nested tensor: values(), unbind() or to_padded_tensor())."
        )

    def __array__(self, dtype: DtypeLike = None, copy: object = None) -> object:
        return self.array


NO_ARRAY: Any = NoArray()


class Storage:
    """One buffer. ``value`` is its whole array; every tensor on it aliases that.

    ``saved`` says that a graph has saved it as a residual at some time, ``shared`` that an array of
    code outside is on its memory and can write to it without a new version; a storage that is both
    has a checksum. It stays shared: whether the array still lives cannot be known. Memory that is
    handed over never is, because ``adopt`` takes the array instead of ``share``.
    """

    __slots__ = (
        "__weakref__", "category", "nbytes", "saved", "saved_checksum", "shared", "type", "value",
        "version", "writer",
    )  # fmt: skip

    value: Array | Var
    type: TensorType
    nbytes: int
    version: int
    category: int
    saved: bool
    writer: SourceLocation | None
    saved_checksum: int | None
    shared: bool

    @exclusive
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

    @exclusive
    def __del__(self) -> None:
        ledger = LEDGER
        nbytes = self.nbytes
        ledger.live -= nbytes
        ledger.count -= 1
        if self.category:
            ledger.by_category[self.category] -= nbytes
        if ledger.observer is not None:
            ledger.observer.freed(self)

    @exclusive
    def tag(self, category: int) -> None:
        """Move the bytes to another category of the ledger."""
        if self.category:
            LEDGER.by_category[self.category] -= self.nbytes
        self.category = category
        if category:
            LEDGER.by_category[category] += self.nbytes

    @exclusive
    def mark_saved(self) -> None:
        """Note that it is a residual: as watch() and tag(), in one call for every saved result."""
        if not self.saved:
            self.saved = True
            self.saved_checksum = None
        if not self.category:
            self.category = SAVED
            LEDGER.by_category[SAVED] += self.nbytes

    def watch(self) -> None:
        """Note that later writes from outside have to be detected."""
        if not self.saved:
            self.saved = True
            self.saved_checksum = None

    def mark_shared(self) -> None:
        """Note that code outside may write to the buffer from now on."""
        if not self.shared and self.saved:
            self.saved_checksum = self.checksum()
        self.shared = True

    def checksum(self) -> int:
        return checksum(self.value)

    @exclusive
    def fill(self, array: Array, nbytes: int) -> None:
        """Replace a symbolic value by an array, and enter its bytes in the ledger."""
        self.value = array
        category = self.category
        self.tag(0)
        LEDGER.live += nbytes - self.nbytes
        self.nbytes = nbytes
        self.tag(category)
        if LEDGER.observer is not None:
            LEDGER.observer.allocated(self)
        if LEDGER.live > LEDGER.peak:
            LEDGER.peak = LEDGER.live

    @exclusive
    def resize(self, nbytes: int) -> None:
        """Enter another size in the ledger, after ``value`` was replaced."""
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
        MUTATIONS.advance()


class InferenceStorage(Storage):
    """A storage made in inference mode: written to nowhere else, and saved by no graph."""

    __slots__ = ()


@provides("storage_class")
def storage_class() -> type[Storage]:
    """The class of the objects that are buffers."""
    return Storage


def checksum(array: Any) -> int:
    """A hash of the elements in C order, whatever the strides."""
    size = array.nbytes
    if size == 0:
        return 0
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    function = _memory_hash() if size >= _HASHED_BYTES else None
    if function is None:
        return zlib.crc32(array.reshape(-1).view(np.uint8))
    hashes = np.empty(_BLOCK_BYTES, np.uint8)
    function(hashes.ctypes.data, array.ctypes.data, size // _BLOCK_BYTES)
    found = zlib.crc32(hashes.data)
    rest = size % _BLOCK_BYTES
    return zlib.crc32(array.reshape(-1).view(np.uint8)[-rest:], found) if rest else found
