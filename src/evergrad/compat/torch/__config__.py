"""How this library was built."""

from __future__ import annotations

import sys

import llvmlite
import numpy

from evergrad.core.settings import get_num_threads

from .version import __version__


def show() -> str:
    """A description of the build."""
    return (
        f"evergrad (PyTorch {__version__} names), Python {sys.version.split()[0]}\n"
        f"  - NumPy {numpy.__version__}\n  - llvmlite {llvmlite.__version__}\n"
    )


def parallel_info() -> str:
    """A description of the thread pools."""
    return f"evergrad thread pool: {get_num_threads()} threads\n"
