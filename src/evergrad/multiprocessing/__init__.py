"""Python's ``multiprocessing`` under PyTorch's name, with :func:`spawn`.

Tensors can be sent through queues and pipes and given to processes. One that was moved to shared
memory with ``share_memory_`` is sent by reference, and writes of either process are seen by the
other; of any other tensor the other process gets a copy.
"""

import multiprocessing as _multiprocessing
from multiprocessing import *  # noqa: F403 - everything it offers is offered here

from evergrad.multiprocessing.processes import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)
from evergrad.ops.surface.sharing import register_with_processes

__all__ = [
    *_multiprocessing.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

_STRATEGY = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """How memory can be shared: without names, by inheritance or by sending descriptors."""
    return {_STRATEGY}


def get_sharing_strategy() -> str:
    """How memory is shared."""
    return _STRATEGY


def set_sharing_strategy(new_strategy: str) -> None:
    """Accept the strategy there is, and ``file_system``, which asks for less."""
    if new_strategy not in (_STRATEGY, "file_system"):
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of "
            f"{get_all_sharing_strategies()}"
        )


register_with_processes()
