"""The processor that everything runs on."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """PyTorch's name for kernels chosen by processor: NumPy chooses its own."""
    return "DEFAULT"
