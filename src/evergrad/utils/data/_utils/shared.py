"""How a batch gets from a worker to the process that asked for it: through memory both see.

A value is pickled with its arrays left out. The arrays are copied once, into a slot of an arena,
and unpickled as views of that slot; only the rest, some hundred bytes, goes through the pipe.

An arena is a nameless file in memory, cut into slots of one size, that a worker makes and whose
descriptor it sends along once. Slots are used again: when the last array in a slot is gone, its
number goes back to the worker with the next task. Nothing has a name, so nothing can be left
behind, whichever process dies first. Where descriptors cannot be sent, arrays go through the pipe.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.core.types import Array
from evergrad.memory.shared import nameless_file

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor


Place = tuple[int, int]
"""The number of an arena and of a slot in it."""

_CAN_SHARE = hasattr(socket, "send_fds")
# Arrays with fewer bytes than this in all are as quick through the pipe.
_SMALL = 1 << 14
# Pages of an arena that are never written take no memory, so that arenas can be large.
_ARENA_BYTES = 1 << 25
_ALIGNMENT = 64


class Parcel(NamedTuple):
    """A pickled value; its arrays stand in ``inline``, or in a slot at ``place``.

    ``new_arena`` is the pair of sizes (slot, arena) of an arena whose descriptor follows.
    """

    body: bytes
    lengths: tuple[int, ...]
    inline: bytes
    place: Place | None
    new_arena: tuple[int, int] | None


# -- packing, in the worker ---------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Leaves out arrays also of element types that NumPy itself does not know, as bfloat16."""

    def reducer_override(self, obj: object) -> Any:
        if type(obj) is np.ndarray and obj.dtype.isbuiltin == 2:
            bits = np.ascontiguousarray(obj).reshape(obj.shape).view(f"u{obj.dtype.itemsize}")
            return _as_type, (bits, obj.dtype)
        return NotImplemented


def _as_type(bits: Array, dtype: np.dtype[np.generic]) -> Array:
    return bits.view(dtype)


class _Arena:
    """One nameless file in memory, as its maker sees it."""

    def __init__(self, slot_bytes: int) -> None:
        count = max(1, _ARENA_BYTES // slot_bytes)
        self.slot_bytes = slot_bytes
        self.nbytes = count * slot_bytes
        self.free = list(range(count))
        self.descriptor = nameless_file("evergrad-batches", self.nbytes)
        self.memory = np.frombuffer(mmap.mmap(self.descriptor, self.nbytes), np.uint8)


class Packer:
    """A worker's end: packs values into slots of its arenas."""

    def __init__(self) -> None:
        self._arenas: list[_Arena] = []

    def pack(self, value: object) -> Parcel:
        body = io.BytesIO()
        buffers: list[pickle.PickleBuffer] = []
        _Pickler(body, protocol=5, buffer_callback=buffers.append).dump(value)
        pieces = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        lengths = tuple(piece.size for piece in pieces)
        total = _room_for(lengths)
        if total < _SMALL or not _CAN_SHARE:
            memory = np.zeros(total, np.uint8)
            _copy_into(memory, pieces)
            return Parcel(body.getvalue(), lengths, memory.tobytes(), None, None)
        known = len(self._arenas)
        number, slot = self._take_slot(total)
        arena = self._arenas[number]
        _copy_into(arena.memory[slot * arena.slot_bytes :], pieces)
        new = (arena.slot_bytes, arena.nbytes) if number == known else None
        return Parcel(body.getvalue(), lengths, b"", (number, slot), new)

    def _take_slot(self, nbytes: int) -> Place:
        """A free slot of the smallest power of two that is large enough."""
        slot_bytes = 1 << (nbytes - 1).bit_length()
        for number, arena in enumerate(self._arenas):
            if arena.slot_bytes == slot_bytes and arena.free:
                return number, arena.free.pop()
        arena = _Arena(slot_bytes)
        self._arenas.append(arena)
        return len(self._arenas) - 1, arena.free.pop()

    def release(self, places: Iterable[Place]) -> None:
        for number, slot in places:
            self._arenas[number].free.append(slot)

    def send_new_arena(self, connection: Connection) -> None:
        """Send the descriptor of the newest arena, which the maker needs no longer."""
        descriptor = self._arenas[-1].descriptor
        with socket.socket(fileno=os.dup(connection.fileno())) as channel:
            socket.send_fds(channel, [b"\0"], [descriptor])
        os.close(descriptor)


def _starts(lengths: Iterable[int]) -> list[int]:
    """Where each piece begins, and at last where the next one would."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + -(-length // _ALIGNMENT) * _ALIGNMENT)
    return starts


def _room_for(lengths: tuple[int, ...]) -> int:
    return _starts(lengths)[-1]


def _copy_into(memory: Array, pieces: list[Array]) -> None:
    for piece, start in zip(pieces, _starts(p.size for p in pieces), strict=False):
        memory[start : start + piece.size] = piece


# -- unpacking, in the process that asked -------------------------------------------------------


class _Lease(Array):
    """One slot, for as long as an array stands in it."""

    give_back: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.give_back is not None:
            self.give_back()


class Unpacker:
    """The receiving end for one worker: maps its arenas, and notes which slots are free again."""

    def __init__(self) -> None:
        self._arenas: list[tuple[mmap.mmap, int]] = []
        # Filled by whatever thread drops the last array of a slot.
        self._freed: deque[Place] = deque()

    def receive_new_arena(self, sizes: tuple[int, int], connection: Connection) -> None:
        slot_bytes, nbytes = sizes
        with socket.socket(fileno=os.dup(connection.fileno())) as channel:
            _, (descriptor,), _, _ = socket.recv_fds(channel, 1, 1)
        self._arenas.append((mmap.mmap(descriptor, nbytes), slot_bytes))
        os.close(descriptor)

    def unpack(self, parcel: Parcel) -> Any:
        if parcel.place is None:
            memory = memoryview(bytearray(parcel.inline))
        else:
            memory = self._lease(parcel.place).data
        starts = _starts(parcel.lengths)
        pieces = [memory[a : a + n] for a, n in zip(starts, parcel.lengths, strict=False)]
        result: Tensor | list[Tensor | tuple[float, ...]] | int = pickle.loads(
            parcel.body, buffers=pieces
        )
        return result

    def discard(self, parcel: Parcel | None) -> None:
        """Give back the slot of a value that is not wanted."""
        if parcel is not None and parcel.place is not None:
            self._freed.append(parcel.place)

    def _lease(self, place: Place) -> Array:
        number, slot = place
        memory, slot_bytes = self._arenas[number]
        lease = _Lease((slot_bytes,), np.uint8, memory, slot * slot_bytes)
        lease.give_back = functools.partial(self._freed.append, place)
        return lease

    def take_freed(self) -> list[Place]:
        """The slots that have become free since this was last asked."""
        taken = []
        while self._freed:
            taken.append(self._freed.popleft())
        return taken
