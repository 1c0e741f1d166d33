"""All storages of the process, those of collected tests included."""

from __future__ import annotations

import gc
import weakref

from evergrad.core.storage import Storage

_frozen: list[weakref.ref[Storage]] = []


def freeze() -> None:
    """Leave all objects out of further collections; their storages stay known."""
    gc.collect()
    _frozen.extend(map(weakref.ref, _tracked()))
    gc.freeze()


def all_storages() -> list[Storage]:
    frozen = [storage for reference in _frozen if (storage := reference()) is not None]
    return [*frozen, *_tracked()]


def _tracked() -> list[Storage]:
    return [thing for thing in gc.get_objects() if type(thing) is Storage]
