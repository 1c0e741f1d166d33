"""``tensor.data = value`` in a session, where the tensor is from before the call.

In eager code the tensor gets the memory of the value. A program keeps the memory of the tensor, so
the two storages exchange their contents instead: all handles on the storage of the value, and what
graphs have saved of it, move to that of the tensor; handles that the call has taken of the former
memory move to a storage of their own, which has the former elements. Who shares memory with whom is
then what it is in eager code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.core.node import Leaf, Node
from evergrad.core.source_location import user_location
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, on_storage
from evergrad.core.trace import Var
from evergrad.core.tracing import trace_value

if TYPE_CHECKING:
    from evergrad.compiler.frontend.session import Session

# A version that no storage has: what was saved is out of date.
_OUTDATED = -1


def can_exchange(trace: Session, tensor: Tensor, value: Tensor) -> bool:
    """Whether an exchange does what replacing the memory of a tensor does: the value is the whole
    of a storage that the call has made, of the same type and strides, and no other tensor from
    before the call is on the memory of the tensor."""
    storage, source = tensor._storage, value._storage
    is_whole = tensor._view is None and type(storage) is Storage and not storage.shared
    is_made = trace.is_own(source.value) and id(source) not in trace.written
    if not (is_whole and is_made and source is not storage):
        return False
    if not (value._type.same(tensor._type) and source.type.same(storage.type)):
        return False
    strides = {a.layout_array().strides for a in (tensor, value)} | {source.value.layout.strides}  # type: ignore[union-attr]
    if len(strides) > 1 or not (tensor._node is None or isinstance(tensor._node, Leaf)):
        return False
    others = () if trace.flags is None else trace.flags.tensors()
    return not any(t is not tensor and t._storage is storage for t in others)


def exchange(trace: Session, tensor: Tensor, value: Tensor) -> None:
    """Exchange the contents of the storages of a tensor and of a value."""
    storage, source = tensor._storage, value._storage
    former = former_value(trace, storage)
    apart = Storage(former, storage.type, 0)
    apart.version, apart.saved = storage.version, storage.saved
    for handle in handles_on(trace, storage):
        if handle is not tensor:
            forget_captures(trace, handle)
            move(handle, apart, lambda version: version)
            if not trace.is_own(handle._value):
                handle._value = former
                if handle._view is not None:
                    handle._view.traced = _OUTDATED
            handle._value = trace_value(trace, handle)
            trace.note_handle(handle)
    version = max(storage.version, source.version) + 1
    then = source.version

    def moved(known: int) -> int:
        return version if known == then else _OUTDATED

    for handle in handles_on(trace, source):
        move(handle, storage, moved)
    move_residuals(trace, {id(storage): (apart, lambda v: v), id(source): (storage, moved)})
    storage.value, storage.version = source.value, version
    storage.saved = source.saved
    storage.writer = user_location(2)


def former_value(trace: Session, storage: Storage) -> Var:
    """The value of an outside storage, which is about to be written."""
    held = storage.value
    if isinstance(held, Var) and held.trace is trace:
        return held
    handle = on_storage(held, storage.type, storage, None)
    trace.note_write(storage, handle, None)
    return trace.capture(handle)


def handles_on(trace: Session, storage: Storage) -> list[Tensor]:
    """The tensors that the call has made on a storage."""
    made = [*trace.made.values(), *(reference() for reference in trace.handles)]
    found = {id(t): t for t in made if t is not None and t._storage is storage}
    return list(found.values())


def move(handle: Tensor, storage: Storage, version_of: Callable[[int], int]) -> None:
    """Let a handle be on another storage with the same elements."""
    handle._storage = storage
    view = handle._view
    if view is not None:
        view.traced, view.seen = version_of(view.traced), version_of(view.seen)


def forget_captures(trace: Session, handle: Tensor) -> None:
    """Let a tensor on the same memory stand for a handle that is about to leave it."""
    if not any(tensor is handle for _, tensor in trace.captures):
        return
    former = on_storage(handle._value, handle._type, handle._storage, handle._view)
    trace.captures = [(v, former if t is handle else t) for v, t in trace.captures]
    for key in [key for key in trace._captured if key[0] == id(handle)]:
        del trace._captured[key]


def move_residuals(trace: Session, moved: dict[int, tuple[Storage, Callable[[int], int]]]) -> None:
    """Let graphs have saved their residuals of other storages, by the id of the present one."""

    def entry_of(entry: Any) -> Any:
        if not isinstance(entry, tuple) or len(entry) != 4 or id(entry[1]) not in moved:
            return entry
        storage, version_of = moved[id(entry[1])]
        return entry[0], storage, version_of(entry[2]), entry[3]

    for node in (reference() for reference in trace.nodes):
        if isinstance(node, Node) and node.saved:
            node.saved = type(node.saved)(map(entry_of, node.saved))
