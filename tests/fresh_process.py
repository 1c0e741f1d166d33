"""Tests of the resident set run in a process of their own: a worker that has run thousands of other
tests also has their threads, caches and fragmented heaps, whose pages move while a test measures.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from evergrad import config


def resident() -> int:
    """Bytes of this process in physical memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def in_fresh_process(function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)`` in a new process with the cyclic collector off; its error is raised here.

    ``function`` is defined at the top level of a module.
    """
    with ProcessPoolExecutor(
        max_workers=1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
        initargs=(config.KERNEL_CACHE,),
    ) as process:
        return process.submit(function, *args).result()


def _prepare(kernel_cache: str) -> None:
    config.KERNEL_CACHE = kernel_cache
    gc.disable()
