"""Tracing under PyTorch's path."""

from .symbolic_trace import Tracer, symbolic_trace, wrap

__all__ = ["Tracer", "symbolic_trace", "wrap"]
