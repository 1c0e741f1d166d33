"""Matrix products on one BLAS thread or all, by their size.

NumPy's BLAS wakes all its threads for products that take a tenth of a millisecond, and its threads
wait by spinning: on a busy machine such a product can take a hundred times as long. Small products
therefore run on one thread. Where NumPy's BLAS is not OpenBLAS its own choice stands.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core import fork, settings
from evergrad.core.types import Array

# Multiply-adds from which on several threads are used.
PARALLEL_MIN_WORK = 1 << 23

_threads_set = 0

# Held by products on several threads, and while a process is forked: OpenBLAS joins its threads
# then, and deadlocks on one that has just been given work.
several_threads: threading.RLock = threading.RLock()
fork.register(
    "blas threads",
    before=several_threads.acquire,
    after_in_parent=several_threads.release,
    after_in_child=several_threads.release,
)


def _find_setter() -> Callable[[int], object] | None:
    """OpenBLAS's function that sets the number of threads, if NumPy brought an OpenBLAS."""
    package = os.path.dirname(np.__file__)
    for folder in (package + ".libs", package + "/.libs", package + "/.dylibs"):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in (n for n in names if "openblas" in n):
            # Called with the GIL held, so that no process is forked meanwhile: the child would
            # deadlock on a lock that OpenBLAS holds.
            library = ctypes.PyDLL(os.path.join(folder, name))
            for symbol in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads"):
                if hasattr(library, symbol):
                    return getattr(library, symbol)  # type: ignore[no-any-return]
    return None


_set_threads = _find_setter()


def matmul(a: Array, b: Array, **out: Any) -> Any:
    """``np.matmul`` on one thread or on all allowed ones, by the size of the product."""
    # Each matrix of a batch is a product of its own.
    work = a.shape[-2] * b.shape[-2] * b.shape[-1] if a.ndim > 1 and b.ndim > 1 else 0
    wanted = settings.get_num_threads() if work >= PARALLEL_MIN_WORK else 1
    if wanted > 1:
        with several_threads:
            _use_threads(wanted)
            return np.matmul(a, b, **out)
    if _threads_set != 1:
        _use_threads(1)
    return np.matmul(a, b, **out)


def small_matmul(a: Array, b: Array) -> Array:
    """``np.matmul`` of contiguous matrices that are not worth a second thread."""
    if _threads_set != 1:
        _use_threads(1)
    result: Array = np.matmul(a, b)
    return result


def small_call(function: Callable[..., object], *args: object, **options: object) -> Any:
    """A function of ``np.linalg`` on matrices that are not worth a second thread."""
    if _threads_set != 1:
        _use_threads(1)
    return function(*args, **options)


def _use_threads(count: int) -> None:
    global _threads_set
    if count != _threads_set and _set_threads is not None:
        _set_threads(count)
        _threads_set = count
