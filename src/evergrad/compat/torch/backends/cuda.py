"""Switches of CUDA's products and attention: remembered, and without effect."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class Products:
    """``cuda.matmul``: how exact products would be on a GPU."""

    def __init__(self) -> None:
        self.allow_tf32 = False
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False


matmul: Products = Products()
_wanted = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built() -> bool:
    """Whether CUDA was built in: no."""
    return False


def flash_sdp_enabled() -> bool:
    return _wanted["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    _wanted["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    return _wanted["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    _wanted["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    return _wanted["math"]


def enable_math_sdp(enabled: bool) -> None:
    _wanted["math"] = enabled


def cudnn_sdp_enabled() -> bool:
    return _wanted["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    _wanted["cudnn"] = enabled


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:  # fmt: skip
    """Choose implementations of attention; there is one here."""
    warnings.warn(
        "`backends.cuda.sdp_kernel()` is deprecated. Please see `nn.attention.sdpa_kernel()` for "
        "the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    yield
