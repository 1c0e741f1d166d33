"""``map_location``: where the storages of a file are to be. There is one place, the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.core.storage import Storage
from evergrad.core.tensor import CPU, Device
from evergrad.ops.surface.handles import UntypedStorage

# What a place named in a file comes to, for a storage or (``None``) for a device.
Restore = Callable[[Storage | None, str], None]

_ACCELERATORS = ("cuda", "xpu", "mps", "hpu", "xla", "mtia", "npu")


def restorer(map_location: Any) -> Restore:
    """A function that raises unless a storage from that place may be put on the CPU."""
    if map_location is None:
        return lambda storage, place: _require_cpu(place)
    if isinstance(map_location, dict):
        return lambda storage, place: _require_cpu(map_location.get(place, place))
    if isinstance(map_location, (str, bytes, Device)):
        target = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        return lambda storage, place: _require_cpu(target)
    if not callable(map_location):
        raise TypeError(
            f"'{type(map_location).__name__}' object is not callable: map_location is a device, "
            "its name, a dict of names, or a function (storage, location)"
        )
    return lambda storage, place: _ask(map_location, storage, place)


def _ask(function: Callable[..., Any], storage: Storage | None, place: str) -> None:
    if storage is None:
        _require_cpu(place)
        return
    answer = function(UntypedStorage(storage), place)
    if answer is None:
        _require_cpu(place)
    elif not isinstance(answer, UntypedStorage) or answer._storage is not storage:
        raise TypeError(
            "map_location(storage, location) must return the storage it was given, or None, not "
            f"{answer!r}: there is no other place than the CPU"
        )


def _require_cpu(place: Any) -> None:
    kind = str(place).partition(":")[0]
    if kind == "cpu":
        return
    if kind in _ACCELERATORS:
        raise RuntimeError(
            f"Attempting to deserialize object on a {kind.upper()} device but evergrad computes on "
            "the CPU. Please use evergrad.load with map_location=evergrad.device('cpu') to map "
            "your storages to the CPU."
        )
    if kind == "meta":
        raise RuntimeError(
            "evergrad has no tensors without memory, so map_location='meta' cannot be. With "
            "mmap=True nothing is read from the file before it is used."
        )
    raise RuntimeError(
        f"don't know how to restore data location of evergrad.UntypedStorage (tagged with {place})"
    )


def device_maker(restore: Restore) -> Callable[..., Device]:
    """``torch.device`` in a file: goes where storages of that place go."""

    def make_device(kind: str, index: int | None = None) -> Device:
        restore(None, f"{kind}" if index is None else f"{kind}:{index}")
        return CPU

    return make_device
