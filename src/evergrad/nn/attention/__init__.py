"""How attention is computed. There is one way here; the switches exist so that programs run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """PyTorch's implementations of scaled dot product attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[None]:
    """Ask for implementations of attention; every one of them is the same here."""
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(chosen, list) or not all(isinstance(b, SDPBackend) for b in chosen):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend")
    yield


__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]
