"""Functions that few programs call, made of others: what :mod:`.private_names` refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import evergrad
from evergrad.autograd import set_detect_anomaly
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.optim import line_search

# -- convolutions ---------------------------------------------------------------------------------


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A 1-d convolution of (time, batch, channel) with a (width, in, out) weight."""
    found = F.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return found.permute(2, 0, 1)


# -- rounding to the numbers of a quantized type --------------------------------------------------


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int
) -> Tensor:
    """The nearest number of a quantized type; gradients pass within its range."""
    if quant_min > quant_max:
        raise RuntimeError("`quant_min` should be less than or equal to `quant_max`.")
    scale, zero_point = (x.detach() if isinstance(x, Tensor) else x for x in (scale, zero_point))
    places = evergrad.round(input.detach() / scale + zero_point)
    inside = (places >= quant_min) & (places <= quant_max)
    rounded: Tensor = (places.clamp(quant_min, quant_max) - zero_point) * scale
    # Zero, whose gradient is that of the input.
    passed: Tensor = evergrad.where(inside, input - input.detach(), 0)
    found: Tensor = rounded.to(input.dtype) + passed
    return found


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point for each index of a dimension."""
    shape = [1] * input.ndim
    shape[axis] = -1
    return fake_quantize_per_tensor_affine(
        input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max
    )


# -- line searches --------------------------------------------------------------------------------


def strong_wolfe(
    obj_func: Callable[..., tuple[float, Tensor]], x: object, t: float, d: Tensor, f: float,
    g: Tensor, gtd: float | Tensor, c1: float = 1e-4, c2: float = 0.9,
    tolerance_change: float = 1e-9, max_ls: int = 25,
) -> tuple[float, Tensor, float, int]:  # fmt: skip
    """The line search of L-BFGS: value, gradient, step length and number of evaluations."""
    if (c1, c2) != (1e-4, 0.9):
        raise NotImplementedError("the line search has PyTorch's constants: c1=1e-4, c2=0.9")
    at, value, gradient, used = line_search.strong_wolfe(
        lambda at: obj_func(x, at, d), d, float(t), f, g, float(gtd), tolerance_change, max_ls
    )
    return value, gradient, at, used


def cubic_interpolate(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float,
    bounds: tuple[float, float] | None = None,
) -> float:  # fmt: skip
    """Where the cubic through two points with their slopes is lowest."""
    first, second = (
        line_search.Point(float(x), float(f), float(g)) for x, f, g in ((x1, f1, g1), (x2, f2, g2))
    )
    return line_search.lowest_between(first, second, bounds)


# -- answers --------------------------------------------------------------------------------------


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Whether backward looks for NaN."""
    set_detect_anomaly(enabled, check_nan)


def is_distributed(input: Tensor) -> bool:
    return False


def yes() -> bool:
    return True


def without_cuda() -> NoReturn:
    raise AssertionError("Torch not compiled with CUDA enabled")


def call_later(callable: Callable[[], object], **options: object) -> None:
    """Without effect: the device on whose first use it would be called is never used."""


class Stream:
    """A queue of work on the processor, whose work is done at once."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: object) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def record_event(self, event: object = None) -> object:
        return event

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""


_CURRENT = Stream()


def current_cpu_stream(device: object = None) -> Stream:
    return _CURRENT


@contextmanager
def cpu_stream(stream: object) -> Iterator[None]:
    """Without effect."""
    yield


PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}
INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
