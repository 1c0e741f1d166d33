"""Intel's accelerators: none is present, and the module answers as PyTorch does without one."""

from __future__ import annotations

from typing import Any, NoReturn


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


def memory_allocated(device: Any = None) -> int:
    return 0


def max_memory_allocated(device: Any = None) -> int:
    return 0


def memory_reserved(device: Any = None) -> int:
    return 0


def max_memory_reserved(device: Any = None) -> int:
    return 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing to reset."""


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("evergrad computes on the CPU; there is no XPU")


current_device = set_device = synchronize = _refuse
get_device_name = get_device_properties = get_device_capability = _refuse
current_stream = stream = Stream = Event = get_rng_state = set_rng_state = _refuse
