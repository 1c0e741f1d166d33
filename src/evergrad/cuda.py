"""Answers to programs that ask for a GPU: there is none."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """Whether there is a GPU: no."""
    return False


def device_count() -> int:
    """How many GPUs there are: none."""
    return 0


def is_initialized() -> bool:
    return False


def manual_seed(seed: int) -> None:
    """Nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def empty_cache() -> None:
    """Nothing to give back; :func:`evergrad.memory.trim` does so for the CPU."""


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""
