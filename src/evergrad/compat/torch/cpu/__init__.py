"""Questions about the one device there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import amp

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike


def is_available() -> bool:
    """Whether there is a CPU."""
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    """How many CPUs there are, as devices: one."""
    return 1


def current_device() -> str:
    return "cpu"


def set_device(device: DeviceLike) -> None:
    """There is nothing to select."""


def synchronize(device: DeviceLike = None) -> None:
    """Nothing to wait for: work is done when a call returns."""


__all__ = [
    "amp", "current_device", "device_count", "is_available", "is_initialized", "set_device",
    "synchronize",
]  # fmt: skip
