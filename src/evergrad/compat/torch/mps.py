"""Answers to programs that ask for an Apple GPU: it is not used.

Calls that only wait, seed or tidy up do nothing, so that programs which make them in passing run.
"""

from __future__ import annotations


def is_available() -> bool:
    """Whether there is an Apple GPU to compute on: no."""
    return False


def device_count() -> int:
    """How many Apple GPUs there are to compute on: none."""
    return 0


def synchronize() -> None:
    """Nothing to wait for."""


def empty_cache() -> None:
    """Nothing to give back."""


def manual_seed(seed: int) -> None:
    """Nothing to seed."""


def seed() -> None:
    """Nothing to seed."""


def current_allocated_memory() -> int:
    """Bytes on the GPU: none."""
    return 0


def driver_allocated_memory() -> int:
    """Bytes on the GPU: none."""
    return 0
