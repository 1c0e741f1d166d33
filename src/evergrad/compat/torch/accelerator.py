"""Answers to programs that ask for an accelerator beside the CPU: there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike


def is_available() -> bool:
    """Whether there is an accelerator: no."""
    return False


def device_count() -> int:
    """How many accelerators there are: none."""
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """The accelerator's device: there is none, so programs fall back to the CPU."""
    return None


def _none_available() -> NoReturn:
    raise RuntimeError(
        "Cannot access accelerator device when none is available. Ask accelerator.is_available() "
        "first: evergrad computes on the CPU."
    )


def current_device_index() -> int:
    _none_available()


def set_device_index(device: DeviceLike, /) -> None:
    _none_available()


def synchronize(device: DeviceLike = None, /) -> None:
    _none_available()


def empty_cache() -> None:
    _none_available()


def memory_allocated(device_index: object = None, /) -> int:
    _none_available()


def max_memory_allocated(device_index: object = None, /) -> int:
    _none_available()


def memory_reserved(device_index: object = None, /) -> int:
    _none_available()


def reset_peak_memory_stats(device_index: object = None, /) -> None:
    _none_available()
