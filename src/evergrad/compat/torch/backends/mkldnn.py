"""Intel's library of layers: not used."""

from __future__ import annotations


def is_available() -> bool:
    """Whether evaluation uses it: no."""
    return False


enabled = False
deterministic = True
