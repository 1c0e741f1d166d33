"""The extension ``fft``: discrete Fourier transforms."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evergrad.array_api.adapt import FFT, Function, enter
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.fft import FFT as _ENGINE

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike


def _transform(name: str) -> Function:
    function = _ENGINE[name]

    def adapted(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        return function(x, n, axis, norm)

    return adapted


def _transform_of_axes(name: str) -> Function:
    function = _ENGINE[name]

    def adapted(
        x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Tensor:  # fmt: skip
        return function(x, s, axes, norm)

    return adapted


def _frequencies(name: str) -> Function:
    function = _ENGINE[name]

    def adapted(
        n: int, /, *, d: float = 1.0, dtype: DtypeLike = None, device: DeviceLike = None
    ) -> Tensor:
        return function(n, d, dtype=dtype, device=device)

    return adapted


def _shift(name: str) -> Function:
    function = _ENGINE[name]

    def adapted(x: Tensor, /, *, axes: object = None) -> Tensor:
        return function(x, axes)

    return adapted


for _adapter, _names in {
    _transform: ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"),
    _transform_of_axes: ("fftn", "ifftn", "rfftn", "irfftn"),
    _frequencies: ("fftfreq", "rfftfreq"),
    _shift: ("fftshift", "ifftshift"),
}.items():
    for _name in _names:
        enter(_name, _adapter(_name), _ENGINE[_name], into=FFT)

globals().update(FFT)

__all__ = sorted(FFT)
