"""Short-time Fourier transforms: the spectra of overlapping pieces of a signal, and back.

Made of windows, the transforms of :mod:`evergrad.ops.rows.fft` and overlap-add; no rows of their
own.
"""

from __future__ import annotations

import warnings

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.tensor import Tensor
from evergrad.ops.composite.padding import pad
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import ones
from evergrad.ops.rows.fft import fft, ifft, irfft, rfft
from evergrad.ops.rows.movement.complex_parts import view_as_real
from evergrad.ops.rows.movement.slices import PAD_SLICE, narrow
from evergrad.ops.rows.movement.strided import FOLD, unfold
from evergrad.ops.rows.movement.views import expand, reshape, transpose
from evergrad.ops.surface.public import expose

# What divides the sum of overlapping windows must be larger than this.
_SMALLEST_ENVELOPE = 1e-11


def _window(
    name: str, window: Tensor | None, n_fft: int, win_length: int | None, like: Tensor
) -> Tensor:
    """The window, with zeros on both sides up to the length of a piece."""
    win_length = n_fft if win_length is None else win_length
    if not 0 < win_length <= n_fft:
        raise RuntimeError(
            f"{name}: expected 0 < win_length <= n_fft, but got win_length={win_length}"
        )
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied. To suppress this "
            "warning, explicitly set `window=evergrad.ones(n_fft)`.",
            UserWarning,
            stacklevel=3,
        )
        window = ones(win_length, dtype=like.dtype.to_real())
    if window._type.shape != (win_length,):
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but "
            f"got window with size {list(window._type.shape)}"
        )
    if window.dtype.category < dtypes.FLOATING:
        window = cast(window, like.dtype.to_real())
    if win_length == n_fft:
        return window
    start = (n_fft - win_length) // 2
    return bind(  # type: ignore[no-any-return]
        PAD_SLICE, window, slices=((start, start + win_length, 1),), shape=(n_fft,)
    )


def _step(name: str, hop_length: int | None, n_fft: int) -> int:
    step = n_fft // 4 if hop_length is None else hop_length
    if step <= 0:
        raise RuntimeError(f"{name}: expected hop_length > 0, but got hop_length={step}")
    return step


def _as_signals(name: str, x: Tensor, rank: int) -> Tensor:
    """One more dimension in front of a single signal."""
    if x.ndim not in (rank, rank + 1):
        raise RuntimeError(f"{name}: expected a {rank}D or {rank + 1}D tensor, got {x.ndim}D")
    return reshape(x, (1, *x._type.shape)) if x.ndim == rank else x


@expose(out=False)
@autocast_policy(AutocastPolicy.FLOAT32)
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect",
    normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """The spectra of pieces of ``n_fft`` points every ``hop_length``, as columns."""
    name = "stft"
    if input.dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"{name}: expected a tensor of floating point or complex values")
    if center and align_to_window is not None:
        raise RuntimeError(f"{name}: align_to_window only applies when center=False")
    x = _as_signals(name, input, 1)
    if align_to_window:  # the frames begin with the window, which is shorter than n_fft
        before = (n_fft - (n_fft if win_length is None else win_length)) // 2
        behind = n_fft - (n_fft if win_length is None else win_length) - before
        x = pad(x, (before, behind))
    if center:
        x = pad(x, (n_fft // 2, n_fft // 2), pad_mode)
    if not 0 < n_fft <= x._type.shape[-1]:
        raise RuntimeError(f"{name}: expected 0 < n_fft < {x._type.shape[-1]}, got n_fft={n_fft}")
    step = _step(name, hop_length, n_fft)
    weights = _window(name, window, n_fft, win_length, input)
    is_complex = input.dtype.is_complex or weights.dtype.is_complex
    _refuse_half_of_complex(onesided, is_complex)
    half = not is_complex if onesided is None else onesided
    if return_complex is None and not is_complex:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will "
            "further require that return_complex=True in a future PyTorch release."
        )
    pieces = unfold(x, -1, n_fft, step) * weights
    spectra = (rfft if half else fft)(pieces, norm="ortho" if normalized else None)
    spectra = transpose(spectra, 1, 2)
    found = reshape(spectra, spectra._type.shape[1:]) if input.ndim == 1 else spectra
    return found if return_complex or return_complex is None else view_as_real(found)


def _refuse_half_of_complex(onesided: bool | None, is_complex: bool) -> None:
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")


def _overlap_add(pieces: Tensor, step: int) -> Tensor:
    """Pieces of signals laid down every ``step`` points and added up."""
    count, number, size = pieces._type.shape
    shape = (count, size + step * (number - 1))
    return bind(FOLD, pieces, dim=1, size=size, step=step, shape=shape)  # type: ignore[no-any-return]


def _check_spectra(name: str, x: Tensor, n_fft: int, half: bool) -> None:
    if not x._type.numel:
        raise RuntimeError(f"{name}: input tensor cannot be empty.")
    expected = n_fft // 2 + 1 if half else n_fft
    if x._type.shape[-2] != expected:
        raise RuntimeError(
            f"{name}: expected the frequency dimension (the last but one) of the input to be "
            f"{expected} for n_fft={n_fft} and onesided={half}, but got {x._type.shape[-2]}"
        )


@expose(out=False)
def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False,
    onesided: bool | None = None, length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal with the given spectra: the least-squares inverse of ``stft``."""
    name = "istft"
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    x = _as_signals(name, input, 2)
    half = x._type.shape[-2] != n_fft if onesided is None else onesided
    _check_spectra(name, x, n_fft, half)
    _refuse_half_of_complex(half, return_complex)
    step = _step(name, hop_length, n_fft)
    if step > (n_fft if win_length is None else win_length):
        raise RuntimeError(f"{name}: expected 0 < hop_length <= win_length")
    weights = _window(name, window, n_fft, win_length, input)
    spectra, norm = transpose(x, 1, 2), "ortho" if normalized else None
    if return_complex:
        pieces = ifft(spectra, norm=norm)
    else:
        pieces = irfft(
            spectra if half else narrow(spectra, -1, 0, n_fft // 2 + 1), n_fft, norm=norm
        )
    signal = _overlap_add(pieces * weights, step)
    squares = expand(weights * weights, (1, pieces._type.shape[1], n_fft))
    found = _part(name, signal, _overlap_add(squares, step), n_fft // 2 if center else 0, length)
    return reshape(found, found._type.shape[1:]) if input.ndim == 2 else found


def _part(name: str, signal: Tensor, envelope: Tensor, margin: int, length: int | None) -> Tensor:
    """The signal divided by the sum of its windows, without margins or of a given length."""
    whole = signal._type.shape[-1]
    stop = whole - margin if length is None else margin + length
    count = min(stop, whole) - margin
    divisor = narrow(envelope, -1, margin, count)
    require(
        divisor.abs() > _SMALLEST_ENVELOPE, RuntimeError,
        lambda: f"{name}: window overlap add min: 1",
    )  # fmt: skip
    found = narrow(signal, -1, margin, count) / divisor
    if stop <= whole:
        return found
    warnings.warn(
        "The length of signal is shorter than the length parameter. Result is being padded with "
        "zeros in the tail. Please check your center and hop_length settings.",
        UserWarning,
        stacklevel=3,
    )
    return pad(found, (0, stop - whole))
