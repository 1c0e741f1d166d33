"""The profiler, under the module path it once had."""

from collections.abc import Callable

from evergrad.lazy import lazy_names

__getattr__: Callable[[str], object] = lazy_names(
    "evergrad", {"profiler": ("profile", "record_function")}
)
