"""Storages under the path PyTorch's programs import them from."""

from evergrad.ops.surface.storages import TypedStorage, UntypedStorage

_LegacyStorage = TypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
