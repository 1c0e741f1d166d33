"""Switches of PyTorch's backends, accepted so that programs that set them run unchanged."""

from __future__ import annotations


class Backend:
    """A library that is not used here: never available, and its switches change nothing."""

    def __init__(self, **switches: object) -> None:
        self.__dict__.update(switches)

    def is_available(self) -> bool:
        return False

    def is_built(self) -> bool:
        return False


cudnn = Backend(enabled=False, benchmark=False, deterministic=True, allow_tf32=False)
cuda = Backend(matmul=Backend(allow_tf32=False))
mps = Backend()
mkldnn = Backend()
