"""Intel's library of products: not used."""

from __future__ import annotations


def is_available() -> bool:
    """Whether evaluation uses it: no."""
    return False
