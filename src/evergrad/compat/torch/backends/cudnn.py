"""NVIDIA's library of layers: not used. Its switches are remembered and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Whether the library is there: no."""
    return False


def version() -> int | None:
    return None


def is_acceptable(tensor: object) -> bool:
    """Whether the library would take a tensor: no."""
    return False


@contextmanager
def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10,
    deterministic: bool = False, allow_tf32: bool = True,
) -> Iterator[None]:  # fmt: skip
    """Set the switches inside a block, without effect."""
    yield
