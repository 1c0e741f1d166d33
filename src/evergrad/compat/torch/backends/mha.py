"""PyTorch's shortcut for attention in evaluation mode: there is one way here, and it is exact."""

from __future__ import annotations

_wanted = True


def get_fastpath_enabled() -> bool:
    """Whether the fast path is enabled."""
    return _wanted


def set_fastpath_enabled(value: bool) -> None:
    """Ask for the shortcut or not, without effect."""
    global _wanted
    _wanted = value
