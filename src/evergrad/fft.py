"""Discrete Fourier transforms: ``evergrad.fft``, as ``torch.fft`` has them.

This module only gathers what :mod:`evergrad.ops.fft` defines.
"""

from evergrad.ops.fft import FFT as _FFT

globals().update(_FFT)

__all__ = sorted(_FFT)
