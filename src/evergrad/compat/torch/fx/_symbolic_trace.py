"""Tracing under PyTorch's path."""

from .symbolic_trace import PH, PHBase, Tracer, is_fx_tracing, symbolic_trace, wrap

__all__ = ["PH", "PHBase", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]
