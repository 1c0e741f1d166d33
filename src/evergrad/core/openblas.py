"""The OpenBLAS of the package scipy-openblas32: its functions, and how many threads they use.

It runs on one thread, because compiled programs call its products from several threads at once. A
factorization that is large enough runs on as many as ``set_num_threads`` allows, one at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evergrad.core import blas, settings


@cache
def library() -> ctypes.CDLL:
    """OpenBLAS itself; importing the package around it takes longer than a small first step."""
    package = find_spec("scipy_openblas32")
    if package is None or package.origin is None:
        raise ImportError("scipy_openblas32 is not installed: pip install scipy-openblas32")
    found = next(Path(package.origin).parent.glob("lib/libscipy_openblas*"))
    loaded = ctypes.CDLL(str(found))
    loaded.scipy_openblas_set_num_threads(1)
    return loaded


def function(name: str) -> Any:
    """A function of BLAS, LAPACK or CBLAS by its name there; it releases the GIL."""
    return getattr(library(), f"scipy_{name}")


@cache
def _set_threads() -> Any:
    """OpenBLAS's setter, called with the GIL held so that no process is forked in the middle."""
    return ctypes.PyDLL(library()._name).scipy_openblas_set_num_threads


@contextmanager
def threads_for(work: int) -> Iterator[int]:
    """Run calls with ``work`` multiply-adds in all on one thread, or on all that are allowed."""
    wanted = settings.get_num_threads() if work >= blas.PARALLEL_MIN_WORK else 1
    if wanted == 1:
        yield 1
        return
    with blas.several_threads:
        _set_threads()(wanted)
        try:
            yield wanted
        finally:
            _set_threads()(1)
