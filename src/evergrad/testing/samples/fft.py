"""Samples of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.testing.samples import complex_normal, integers, normal, positive, sample

# NumPy transforms no 16-bit floats, and PyTorch none on the CPU.
_DTYPES = ("float32",)


def _enter(
    row: str, name: str, x: object, *args: object, reference: bool = True, **options: Any
) -> None:
    """A transform with the arguments after its input, which NumPy takes in the same order."""
    label = " ".join([name, *map(str, args)])
    expected = (lambda x: getattr(np.fft, name)(x, *args)) if reference else None
    sample(row, lambda ns, x: getattr(ns.fft, name)(x, *args), x, dtypes=_DTYPES, label=label,
           reference=expected, **options)  # fmt: skip


for name in ("fft", "ifft"):
    _enter("fft_complex", name, complex_normal(2, 3))
    _enter("fft_complex", name, normal(4))
    _enter("fft_complex", name, complex_normal(3, 2), 2, 0, "ortho")
    _enter("fft_complex", name, complex_normal(2, 3), 5, -1, "forward")
for name in ("fftn", "ifftn"):
    _enter("fft_complex", name, complex_normal(2, 2, 3))
    _enter("fft_complex", name, complex_normal(2, 2, 3), (3, 1), (2, 0), "ortho")
    _enter("fft_complex", name, normal(2, 3), (2, 2), (0, 1), "forward")
_enter("fft_complex", "fft2", complex_normal(2, 3, 2))
_enter("fft_complex", "ifft2", complex_normal(3, 2, 2), None, (1, 0), "backward")
_enter("fft_complex", "fft", integers(0, 9, 5))
_enter("fft_complex", "fftn", complex_normal(2, 2), None, (), reference=False)

for n in (None, 1, 4, 7):
    _enter("fft_to_half", "rfft", normal(2, 5), n)
    _enter("fft_from_half", "irfft", complex_normal(2, 4), n)
_enter("fft_to_half", "rfft", normal(4, 2), 3, 0, "ortho")
_enter("fft_to_half", "ihfft", normal(2, 4), None, -1, "forward")
_enter("fft_to_half", "rfftn", normal(2, 3, 4))
_enter("fft_to_half", "rfftn", normal(2, 3, 4), (3, 3), (0, 1), "forward")
_enter("fft_to_half", "rfft2", normal(3, 2))
_enter("fft_to_half", "ihfft2", normal(3, 4), reference=False)
_enter("fft_to_half", "ihfftn", normal(2, 3, 4), None, (2, 0), "ortho", reference=False)
_enter("fft_from_half", "irfft", complex_normal(4, 2), 5, 0, "ortho")
_enter("fft_from_half", "irfft", normal(4), 6)
_enter("fft_from_half", "hfft", complex_normal(2, 4), 7, -1, "forward")
_enter("fft_from_half", "irfftn", complex_normal(2, 2, 3))
_enter("fft_from_half", "irfftn", complex_normal(3, 2, 2), (4, 5), (0, 2), "forward")
_enter("fft_from_half", "irfft2", complex_normal(3, 2))
_enter("fft_from_half", "hfft2", complex_normal(3, 3), reference=False)
_enter("fft_from_half", "hfftn", complex_normal(2, 3, 2), None, (2, 1), "ortho", reference=False)

for name in ("fftshift", "ifftshift"):
    _enter("roll", name, normal(3, 4))
    _enter("roll", name, normal(3, 4), -1)
for name in ("fftfreq", "rfftfreq"):
    for n in (4, 5):
        sample("arange", lambda ns, name=name, n=n: getattr(ns.fft, name)(n, 0.25),
               reference=lambda name=name, n=n: getattr(np.fft, name)(n, 0.25),
               label=f"{name} {n}")  # fmt: skip

sample("fft_to_half", lambda ns, x, w: ns.stft(x, 4, 2, window=w, return_complex=True),
       normal(2, 6), positive(4), dtypes=_DTYPES, label="stft")  # fmt: skip
sample("fold_dim", lambda ns, x, w: ns.istft(x, 4, 2, window=w), complex_normal(3, 4), positive(4),
       dtypes=_DTYPES, label="istft")  # fmt: skip
