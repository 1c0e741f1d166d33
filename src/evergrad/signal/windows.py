"""Window functions whose maximum is 1: ``evergrad.signal.windows``.

They are symmetric unless ``sym=False``, which leaves off the last point of a window that is one
point longer. ``evergrad.hann_window`` and its kin are the older, periodic forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype, get_default_dtype
from evergrad.core.memory_format import strided
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS as _F

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, LayoutLike

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip


class _Options:
    """What the windows have in common: length, symmetry, and how the result is made."""

    def __init__(
        self, name: str, length: int, sym: bool, kind: dtype | None, layout: LayoutLike,
        device: DeviceLike, requires_grad: bool,
    ) -> None:  # fmt: skip
        self.dtype = get_default_dtype() if kind is None else kind
        if length < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={length}")
        if layout is not strided:
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        if self.dtype not in (dtypes.float32, dtypes.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {self.dtype}")
        self.length, self.sym = length, sym
        self.further = {
            "dtype": self.dtype, "layout": layout, "device": device, "requires_grad": requires_grad
        }  # fmt: skip

    @property
    def last(self) -> int:
        """The distance of the first point from the last one of the symmetric window."""
        return self.length - 1 if self.sym or self.length < 2 else self.length

    @property
    def is_trivial(self) -> bool:
        return self.length < 2

    def ones(self) -> Tensor:
        made: Tensor = _F["ones"](self.length, **self.further)
        return made

    def points(self, start: object, end: object) -> Tensor:
        made: Tensor = _F["linspace"](start, end, self.length, **self.further)
        return made


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True,
    dtype: dtype | None = None, layout: LayoutLike = strided, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``exp(-|n - center| / tau)``

    Args:
        M: number of values
        center: default the middle
        tau: decay; default 1.0
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.exponential(5)
    tensor([0.1353, 0.3679, 1.0000, 0.3679, 0.1353])
    """
    options = _Options("exponential", M, sym, dtype, layout, device, requires_grad)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    middle = options.last / 2 if center is None else center
    places = options.points(-middle / tau, (M - 1 - middle) / tau)
    return (-places.abs()).exp()


def cosine(
    M: int, *, sym: bool = True, dtype: dtype | None = None, layout: LayoutLike = strided,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``sin(pi (n + 0.5) / M)``

    Args:
        M: number of values
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.cosine(5)
    tensor([0.3090, 0.8090, 1.0000, 0.8090, 0.3090])
    """
    options = _Options("cosine", M, sym, dtype, layout, device, requires_grad)
    step = math.pi / (options.last + 1) if M else 0.0
    return options.points(0.5 * step, (M - 0.5) * step).sin()


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: dtype | None = None,
    layout: LayoutLike = strided, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``exp(-((n - N / 2) / std)^2 / 2)``

    Args:
        M: number of values
        std: standard deviation; default 1.0
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.gaussian(5)
    tensor([0.1353, 0.6065, 1.0000, 0.6065, 0.1353])
    """
    options = _Options("gaussian", M, sym, dtype, layout, device, requires_grad)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    step = 1 / (std * math.sqrt(2))
    start = -options.last / 2
    places = options.points(start * step, (start + M - 1) * step)
    return (-(places**2)).exp()


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: dtype | None = None,
    layout: LayoutLike = strided, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``i0(beta sqrt(1 - (2 n / N - 1)^2)) / i0(beta)``

    Args:
        M: number of values
        beta: shape; default 12.0
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.kaiser(5)
    tensor([5.2773e-05, 2.1567e-01, 1.0000e+00, 2.1567e-01, 5.2773e-05])
    """
    options = _Options("kaiser", M, sym, dtype, layout, device, requires_grad)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if options.is_trivial:
        return options.ones()
    factor = _F["tensor"](beta, dtype=options.dtype)
    end = min(beta, -beta + (M - 1) * 2 * beta / options.last)
    places = options.points(-beta, end)
    made: Tensor = _F["i0"]((factor * factor - places**2).sqrt()) / _F["i0"](factor)
    return made


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: dtype | None = None,
    layout: LayoutLike = strided, device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The sum of ``(-1)^i a_i cos(2 pi i n / N)``

    Args:
        M: number of values
        a: weights of the cosines
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.general_cosine(5, a=[0.5, 0.5])
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    options = _Options("general_cosine", M, sym, dtype, layout, device, requires_grad)
    if options.is_trivial:
        return options.ones()
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights: Sequence[float] = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    places = options.points(0, (M - 1) * 2 * math.pi / options.last)
    signed = [(-1) ** i * weight for i, weight in enumerate(weights)]
    factors = _F["tensor"](signed, dtype=options.dtype, requires_grad=requires_grad)
    orders = _F["arange"](len(signed), dtype=options.dtype)
    terms = factors.unsqueeze(-1) * (orders.unsqueeze(-1) * places).cos()
    return terms.sum(0)  # type: ignore[no-any-return]


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: dtype | None = None,
    layout: Any = strided, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``alpha - (1 - alpha) cos(2 pi n / N)``

    Args:
        M: number of values
        alpha: default 0.54
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.general_hamming(5)
    tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    further = {"layout": layout, "device": device, "requires_grad": requires_grad}
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, **further)


def hamming(
    M: int, *, sym: bool = True, dtype: dtype | None = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``0.54 - 0.46 cos(2 pi n / N)``

    Args:
        M: number of values
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.hamming(5)
    tensor([0.0800, 0.5400, 1.0000, 0.5400, 0.0800])
    """
    further = {"layout": layout, "device": device, "requires_grad": requires_grad}
    return general_hamming(M, sym=sym, dtype=dtype, **further)


def hann(
    M: int, *, sym: bool = True, dtype: dtype | None = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``0.5 - 0.5 cos(2 pi n / N)``

    Args:
        M: number of values
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.hann(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    further = {"layout": layout, "device": device, "requires_grad": requires_grad}
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, **further)


def blackman(
    M: int, *, sym: bool = True, dtype: dtype | None = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)``

    Args:
        M: number of values
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.blackman(5)
    tensor([-1.4901e-08,  3.4000e-01,  1.0000e+00,  3.4000e-01, -1.4901e-08])
    """
    further = {"layout": layout, "device": device, "requires_grad": requires_grad}
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, **further)


def nuttall(
    M: int, *, sym: bool = True, dtype: dtype | None = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Nuttall's sum of four cosines with a continuous first derivative.

    Args:
        M: number of values
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.nuttall(5)
    tensor([3.6280e-04, 2.2698e-01, 1.0000e+00, 2.2698e-01, 3.6280e-04])
    """
    further = {"layout": layout, "device": device, "requires_grad": requires_grad}
    weights = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(M, a=weights, sym=sym, dtype=dtype, **further)


def bartlett(
    M: int, *, sym: bool = True, dtype: dtype | None = None, layout: LayoutLike = strided,
    device: DeviceLike = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """``1 - |2 n / N - 1|``

    Args:
        M: number of values
        sym: symmetric (default), or a period for spectra
        dtype: element type; default the default type of floats
        layout, device: accepted
        requires_grad: default ``False``

    Here ``N`` is ``M - 1``, or ``M`` with ``sym=False``.

    >>> eg.signal.windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    options = _Options("bartlett", M, sym, dtype, layout, device, requires_grad)
    if options.is_trivial:
        return options.ones()
    places = options.points(-1, -1 + (M - 1) * 2 / options.last)
    return 1 - places.abs()
