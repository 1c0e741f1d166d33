"""Discrete Fourier transforms: ``evergrad.fft``, as ``torch.fft`` has them.

This module only gathers what :mod:`evergrad.ops.rows.fft` defines.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from evergrad.ops.rows.fft import FFT as _FFT

if _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any: ...


globals().update(_FFT)

__all__ = sorted(_FFT)
