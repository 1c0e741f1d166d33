"""Tensors in memory that processes share, and how they are sent.

A storage in an arena is sent as the arena's descriptor and a place in it, so that both processes
write to the same elements. Every other storage is sent as its elements. One that goes to a process
that is being started is moved to an arena first, as PyTorch does, if nothing refers to its array.
"""

from __future__ import annotations

import gc
from types import FrameType
from typing import Any

import numpy as np

from evergrad.core.dtypes import dtype
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.shapes import Shape, tensor_type
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor
from evergrad.memory.shared import ARENAS, Arena, place_of
from evergrad.ops.surface.copying import reduce_storage
from evergrad.ops.surface.public import expose
from evergrad.ops.surface.storages import in_shared_memory


@expose(function=False)
def share_memory_(self: Tensor) -> Tensor:
    """Move the elements to memory shared with processes that are started or sent the tensor."""
    storage = self._storage
    if in_shared_memory(storage):
        return self
    if self._view is not None or _is_referenced_elsewhere(storage, self):
        raise RuntimeError(
            "share_memory_() moves the elements, which views and graphs made before would not "
            "follow. Call it on the tensor itself, before it is used."
        )
    self.array()  # a value that is still traced is computed
    _move(storage, [self])
    return self


def _move(storage: Storage, handles: list[Tensor]) -> None:
    """Copy the elements to an arena; the storage and these handles are on the copy from now on."""
    array = storage.value
    assert isinstance(array, np.ndarray)
    moved = ARENAS.empty(array.nbytes).view(array.dtype).reshape(array.shape)
    moved[...] = array
    storage.value = moved
    for handle in handles:
        handle._value = moved
    MUTATIONS.advance()
    storage.mark_shared()
    register_with_processes()


def _is_referenced_elsewhere(storage: Storage, owner: Tensor) -> bool:
    """Whether anything but ``owner`` references a storage: a view, a handle or a graph. Reference
    counts do not tell that: they differ between versions of Python and without a GIL."""
    referrers = gc.get_referrers(storage)
    return any(found is not owner and not isinstance(found, FrameType) for found in referrers)


@expose(function=False)
def is_shared(self: Tensor) -> bool:
    """Whether the elements are in memory shared with other processes."""
    return in_shared_memory(self._storage)


# -- sending ------------------------------------------------------------------------------------


def register_with_processes() -> None:
    """Have ``multiprocessing`` send the descriptor of shared memory instead of its elements."""
    # start-up: only for programs with processes
    from multiprocessing import reduction

    if not hasattr(reduction, "DupFd"):
        return  # a system without descriptors: the elements are sent
    reduction.ForkingPickler.register(Storage, _reduce_for_process)
    reduction.ForkingPickler.register(Arena, _reduce_arena)


def _reduce_for_process(storage: Storage) -> Any:
    """A storage as another process gets it: by reference if it is in memory that can be sent."""
    # start-up: only for programs with processes
    from multiprocessing import context

    if not in_shared_memory(storage) and context.get_spawning_popen() is not None:
        _move_if_free(storage)
    array = storage.value
    place = place_of(array) if isinstance(array, np.ndarray) else None
    if place is None or not array.flags.c_contiguous:
        return reduce_storage(storage)
    return _load_shared_storage, (*place, storage.type.shape, storage.type.dtype)


def _move_if_free(storage: Storage) -> None:
    """Move a storage to an arena unless a view or a residual of a graph has its array as well."""
    referrers = gc.get_referrers(storage)
    handles = [found for found in referrers if isinstance(found, Tensor)]
    is_residual = any(
        isinstance(found, tuple) and any(isinstance(entry, np.ndarray) for entry in found)
        for found in referrers
    )
    is_viewed = any(found._view is not None for found in handles)
    if isinstance(storage.value, np.ndarray) and not (is_residual or is_viewed):
        _move(storage, handles)


def _load_shared_storage(arena: Arena, start: int, shape: Shape, dtype: dtype) -> Storage:
    type = tensor_type(shape, dtype)
    memory = np.frombuffer(arena, np.uint8, type.nbytes, start)
    made = Storage(memory.view(dtype.np).reshape(shape), type, type.nbytes)
    made.mark_shared()
    return made


def _reduce_arena(arena: Arena) -> Any:
    # start-up: as above
    from multiprocessing.reduction import DupFd

    return _load_arena, (DupFd(arena.descriptor), len(arena))


def _load_arena(descriptor: Any, nbytes: int) -> Arena:
    register_with_processes()
    return ARENAS.receive(descriptor.detach(), nbytes)
