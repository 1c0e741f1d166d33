"""Discrete Fourier transforms: ``evergrad.fft``, as ``torch.fft`` has them.

This module only gathers what :mod:`evergrad.ops.rows.fft` defines.
"""

from evergrad.lazy import known_names as _known_names
from evergrad.ops.rows.fft import FFT as _FFT

__getattr__ = _known_names(__name__)

globals().update(_FFT)

__all__ = sorted(_FFT)
