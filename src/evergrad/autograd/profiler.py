"""The profiler, under the module path it once had."""

from evergrad.lazy import lazy_names

__getattr__ = lazy_names("evergrad", {"profiler": ("profile", "record_function")})
