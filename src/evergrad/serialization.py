"""PyTorch's ``torch.serialization``: saving, loading, and what files may name."""

from evergrad.io.allowed_names import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from evergrad.io.loading import get_unsafe_globals_in_checkpoint, load
from evergrad.io.saving import DEFAULT_PROTOCOL, save

__all__ = [
    "DEFAULT_PROTOCOL",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "safe_globals",
    "save",
]
