"""Apple's GPU: not used."""

from __future__ import annotations


def is_available() -> bool:
    """Whether tensors can be made on an Apple GPU: no."""
    return False


def is_built() -> bool:
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    return False
