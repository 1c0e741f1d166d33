"""Process-wide settings of PyTorch's API, and what they mean here.

Results do not depend on any of them but ``set_flush_denormal``: evaluation is always deterministic
and in full precision.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.core.device import CPU, Device, check_device
from evergrad.core.functionalize import guard
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_set_flushing: ExtensionPoint[[bool], bool] = ExtensionPoint("set_flushing")
_threads = processors()
_interop_threads = 1
_deterministic = False
_matmul_precision = "highest"


_counts_data_writes = True


def counts_data_writes() -> bool:
    """Whether a write through ``.data`` or NumPy is an error of backward."""
    return _counts_data_writes


def set_data_writes_counted(mode: bool) -> None:
    """Whether backward raises if a tensor it needs was written through ``.data`` or through a NumPy
    array on its memory (default: yes).

    PyTorch does not notice: the gradient is silently computed from the new elements. With
    ``False`` it is so here too, with a warning; ``evergrad.as_torch`` chooses that.
    """
    global _counts_data_writes
    _counts_data_writes = bool(mode)


def get_num_threads() -> int:
    """How many threads large matrix products may use."""
    found: int = guard(lambda: _threads, "the number of threads")
    return found


# Called with the new number of threads after each change: teams end their surplus threads.
_listeners: list[Callable[[int], None]] = []


def on_num_threads(listener: Callable[[int], None]) -> None:
    """Have a function called when the number of threads is set."""
    _listeners.append(listener)


def set_num_threads(int: int) -> None:
    """Set how many threads large matrix products may use; surplus threads end."""
    global _threads
    _threads = _positive("set_num_threads", int)
    for listener in _listeners:
        listener(_threads)


def get_num_interop_threads() -> int:
    """The number set by ``set_num_interop_threads``; 1 by default."""
    return _interop_threads


def set_num_interop_threads(int: int) -> None:
    """Stored without effect: ops run one after the other."""
    global _interop_threads
    _interop_threads = _positive("set_num_interop_threads", int)


def _positive(name: str, count: int) -> int:
    if count < 1:
        raise RuntimeError(f"{name} expects a positive integer, got {count}")
    return count


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Stored without effect: all algorithms here are deterministic."""
    global _deterministic
    _deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether ``use_deterministic_algorithms`` was switched on."""
    return _deterministic


def get_float32_matmul_precision() -> str:
    """The precision that was set; products are computed in full float32."""
    return _matmul_precision


def set_float32_matmul_precision(precision: str) -> None:
    """Stored without effect: products are computed in full float32."""
    global _matmul_precision
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', or 'medium'")
    _matmul_precision = precision


def set_flush_denormal(mode: bool) -> bool:
    """Whether subnormal (denormal) numbers are flushed to zero; by default they are not.

    Compiled programs follow from their next call on, ops outside of them those of the calling
    thread. Moments of optimizers may decay into subnormal numbers, with which processors compute
    many times slower.

    Args:
        mode: whether to flush

    Returns ``False`` where code cannot be generated, and nothing changes.

    >>> eg.set_flush_denormal(True)
    True
    >>> eg.tensor([1e-30]) * 1e-10
    tensor([0.])
    >>> eg.set_flush_denormal(False)
    True
    """
    return _set_flushing(bool(mode))


def get_default_device() -> Device:
    """The device of new tensors: the CPU."""
    return CPU


def set_default_device(device: DeviceLike) -> None:
    """Accept the CPU, raise for other devices."""
    if device is not None:
        check_device(device)
