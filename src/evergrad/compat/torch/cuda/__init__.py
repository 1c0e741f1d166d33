"""Answers to programs that ask for a GPU: there is none.

Questions are answered as PyTorch's CPU build answers them. Calls that only wait, seed or tidy up
do nothing; calls that need a device raise the ``AssertionError`` PyTorch raises.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from evergrad.lazy import lazy_modules
from evergrad.ops.surface.casting import TYPE_NAMES

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Leaves


class OutOfMemoryError(RuntimeError):
    """What a GPU without enough memory would raise."""


def _no_device() -> NoReturn:
    raise AssertionError(
        "evergrad is not compiled with CUDA enabled: it computes on the CPU. "
        "Ask cuda.is_available() first, or leave the device out."
    )


# -- questions ----------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether there is a GPU: no."""
    return False


def device_count() -> int:
    """How many GPUs there are: none."""
    return 0


_initialized = False  # read by packages


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU that is not there knows bfloat16. The CPU does."""
    return False


def is_tf32_supported() -> bool:
    return False


def get_arch_list() -> list[str]:
    return []


def get_rng_state_all() -> Leaves:
    return []


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, Any]:
    """Nothing is known of a memory that is not there."""
    return OrderedDict()


def _no_bytes(name: str) -> Callable[..., int]:
    def answer(device: DeviceLike = None) -> int:
        return 0

    answer.__name__ = answer.__qualname__ = name
    answer.__doc__ = "Bytes on the GPU: none. The CPU's are counted by :mod:`evergrad.memory`."
    return answer


memory_allocated: Callable[..., int] = _no_bytes("memory_allocated")
max_memory_allocated: Callable[..., int] = _no_bytes("max_memory_allocated")
memory_reserved: Callable[..., int] = _no_bytes("memory_reserved")
max_memory_reserved: Callable[..., int] = _no_bytes("max_memory_reserved")


# -- what needs a device ------------------------------------------------------------------------


def init() -> None:
    _no_device()


def current_device() -> int:
    """The number of the selected GPU: there is none, which is an error."""
    _no_device()


def get_device_name(device: DeviceLike = None) -> str:
    _no_device()


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    _no_device()


def get_device_properties(device: DeviceLike = None) -> Any:
    _no_device()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    _no_device()


def get_rng_state(device: DeviceLike = "cuda") -> Any:
    _no_device()


def initial_seed() -> int:
    _no_device()


def current_stream(device: DeviceLike = None) -> Any:
    _no_device()


# -- what does nothing --------------------------------------------------------------------------


def set_device(device: DeviceLike) -> None:
    """There is nothing to select."""


def synchronize(device: DeviceLike = None) -> None:
    """Nothing to wait for."""


def empty_cache() -> None:
    """Nothing to give back; :func:`evergrad.memory.trim` does so for the CPU."""


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Nothing was counted; :mod:`evergrad.memory` counts on the CPU."""


def manual_seed(seed: int) -> None:
    """Nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def seed() -> None:
    """Nothing to seed."""


def seed_all() -> None:
    """Nothing to seed."""


def set_rng_state(new_state: object, device: DeviceLike = "cuda") -> None:
    """Nothing to set."""


def set_rng_state_all(new_states: object) -> None:
    """Nothing to set."""


@contextmanager
def device(device: DeviceLike) -> Iterator[None]:
    """``with cuda.device(0):``, without effect."""
    yield


@contextmanager
def stream(stream: object) -> Iterator[None]:
    """``with cuda.stream(s):``, without effect: work is done at once and in order."""
    yield


class Event:
    """A moment in time. Work is done when a call returns, so this is when ``record`` was called."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,
        external: bool = False,
    ) -> None:  # fmt: skip
        self.enable_timing = enable_timing
        self._moment: float | None = None

    def record(self, stream: object = None) -> None:
        self._moment = time.perf_counter()

    def query(self) -> bool:
        """Whether the work before it is done: always."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: object = None) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._moment is None or end_event._moment is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._moment - self._moment) * 1000.0


class Stream:
    """A queue of work on a GPU: there is none, which is an error."""

    def __init__(self, device: DeviceLike = None, priority: int = 0, **kwargs: object) -> None:
        raise RuntimeError("cuda.Stream requires CUDA support; evergrad computes on the CPU")


# -- FloatTensor and the like -------------------------------------------------------------------


class AbsentType:
    """``cuda.FloatTensor`` and the like: the type of no tensor, which cannot make one."""

    is_cuda = True

    def __init__(self, name: str, dtype: DtypeLike) -> None:
        self.__name__ = name
        self.dtype = dtype

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            f"type evergrad.cuda.{self.__name__} not available: evergrad computes on the CPU. "
            f"Use evergrad.{self.__name__}."
        )

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<class 'evergrad.cuda.{self.__name__}'>"


_ABSENT = {
    name: AbsentType(name, dtype)
    for name, dtype in TYPE_NAMES.items()
    if not name.startswith("Complex")
}


_find_module = lazy_modules("evergrad.cuda", "amp")


def __getattr__(name: str) -> Any:
    """The legacy types, and ``cuda.amp``, which is imported when first used."""
    return _ABSENT[name] if name in _ABSENT else _find_module(name)
