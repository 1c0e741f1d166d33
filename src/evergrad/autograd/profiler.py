"""The profiler, under the module path it once had."""

from collections.abc import Callable
from typing import Any

from evergrad.lazy import lazy_names

__getattr__: Callable[[str], Any] = lazy_names(
    "evergrad", {"profiler": ("profile", "record_function")}
)
