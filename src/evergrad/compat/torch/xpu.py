"""Intel's accelerators: none is present, and the module answers as PyTorch does without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """No generator to seed."""


def manual_seed_all(seed: int) -> None:
    """No generator to seed."""


def empty_cache() -> None:
    """Nothing is cached."""


def memory_allocated(device: DeviceLike = None) -> int:
    return 0


def max_memory_allocated(device: DeviceLike = None) -> int:
    return 0


def memory_reserved(device: DeviceLike = None) -> int:
    return 0


def max_memory_reserved(device: DeviceLike = None) -> int:
    return 0


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Nothing to reset."""


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    raise RuntimeError("evergrad computes on the CPU; there is no XPU")


current_device: Callable[..., NoReturn] = _refuse
set_device: Callable[..., NoReturn] = _refuse
synchronize: Callable[..., NoReturn] = _refuse
get_device_name: Callable[..., NoReturn] = _refuse
get_device_properties: Callable[..., NoReturn] = _refuse
get_device_capability: Callable[..., NoReturn] = _refuse
current_stream: Callable[..., NoReturn] = _refuse
stream: Callable[..., NoReturn] = _refuse
Stream: Callable[..., NoReturn] = _refuse
Event: Callable[..., NoReturn] = _refuse
get_rng_state: Callable[..., NoReturn] = _refuse
set_rng_state: Callable[..., NoReturn] = _refuse
