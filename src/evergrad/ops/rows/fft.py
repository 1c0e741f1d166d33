"""Discrete Fourier transforms of any dimensions, and their frequencies.

Three linear rows: complex to complex, real to the half of the spectrum that determines the rest,
and back. A transform and its transpose differ only in the sign of the exponent, so each row's
derivative is another of them. ``scale`` says what is divided by: nothing, the root of the number of
points, or all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy, policy_of
from evergrad.core.bind import bind, cast
from evergrad.core.families import linear
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import Shape, TensorType, normalize_dim, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.core.types import DimsLike
from evergrad.ops.rows.creation.constants import (
    arange,
    check_place,
    chosen_dtype,
    deliver,
    full,
    ones,
)
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.rearrange import roll
from evergrad.ops.rows.movement.slices import PAD_SLICE, SLICE
from evergrad.ops.rows.movement.views import reshape, to_front
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, DeviceLike, DtypeLike, LayoutLike

# What ``evergrad.fft`` offers.
FFT: dict[str, AnyFunction] = {}

# NumPy's names for the scales; those of inverse transforms are the other way round.
_FORWARD_NORM: dict[str, Any] = {"none": "backward", "root": "ortho", "full": "forward"}
_INVERSE_NORM: dict[str, Any] = {"none": "forward", "root": "ortho", "full": "backward"}


# -- rows ---------------------------------------------------------------------------------------
# Dimensions are counted from the back, so that a leading batch dimension changes nothing.


def _batch_leading(
    op: Op, args: Sequence[Tensor], at: Sequence[int | None], **attrs: object
) -> tuple[Tensor, int]:
    return bind(op, to_front(args[0], at[0]), **attrs), 0  # type: ignore[arg-type]


def _complex_eval(x: Array, *, dims: Shape, inverse: bool, scale: str) -> Array:
    if not dims:
        return x.copy()
    if inverse:
        return np.fft.ifftn(x, axes=dims, norm=_INVERSE_NORM[scale])
    return np.fft.fftn(x, axes=dims, norm=_FORWARD_NORM[scale])


def _complex_back(g: Tensor, x: Tensor, *, dims: Shape, inverse: bool, scale: str) -> Tensor:
    return bind(  # type: ignore[no-any-return]
        FFT_COMPLEX, g, dims=dims, inverse=not inverse, scale=scale
    )


FFT_COMPLEX = linear(
    "fft_complex", _complex_eval, lambda x, **attrs: x, _complex_back, batch=_batch_leading,
    emit=numpy_evaluates("a library computes Fourier transforms"), autocast=AutocastPolicy.KEEP,
    doc="The discrete Fourier transform, or its inverse, of complex numbers.",
)  # fmt: skip


def _with_extent(shape: Shape, dim: int, extent: int) -> Shape:
    at = dim % len(shape)
    return (*shape[:at], extent, *shape[at + 1 :])


def _to_half_type(x: TensorType, *, dims: Shape, scale: str) -> TensorType:
    shape = _with_extent(x.shape, dims[-1], x.shape[dims[-1]] // 2 + 1)
    return tensor_type(shape, x.dtype.to_complex())


def _to_half_back(g: Tensor, x: Tensor, *, dims: Shape, scale: str) -> Tensor:
    size = x._type.shape[dims[-1]]
    halved = g * _weights(size, 0.5, g, dims[-1])
    return bind(FFT_FROM_HALF, halved, dims=dims, size=size, scale=scale)  # type: ignore[no-any-return]


FFT_TO_HALF = linear(
    "fft_to_half",
    lambda x, *, dims, scale: np.fft.rfftn(x, axes=dims, norm=_FORWARD_NORM[scale]),
    _to_half_type, _to_half_back, batch=_batch_leading,
    emit=numpy_evaluates("a library computes Fourier transforms"), autocast=AutocastPolicy.KEEP,
    doc="The transform of real numbers, without what is conjugate to the rest.",
)  # fmt: skip


def _from_half_type(x: TensorType, *, dims: Shape, size: int, scale: str) -> TensorType:
    return tensor_type(_with_extent(x.shape, dims[-1], size), x.dtype.to_real())


def _from_half_eval(x: Array, *, dims: Shape, size: int, scale: str) -> Array:
    sizes = [x.shape[d] for d in dims[:-1]] + [size]
    return np.fft.irfftn(x, s=sizes, axes=dims, norm=_INVERSE_NORM[scale])


def _from_half_back(g: Tensor, x: Tensor, *, dims: Shape, size: int, scale: str) -> Tensor:
    spectrum = bind(FFT_TO_HALF, g, dims=dims, scale=scale)
    return spectrum * _weights(size, 2.0, spectrum, dims[-1])  # type: ignore[no-any-return]


FFT_FROM_HALF = linear(
    "fft_from_half", _from_half_eval, _from_half_type, _from_half_back, batch=_batch_leading,
    emit=numpy_evaluates("a library computes Fourier transforms"), autocast=AutocastPolicy.KEEP,
    doc="The inverse transform from half a spectrum, to real numbers.",
)  # fmt: skip


def _weights(size: int, inner: float, spectrum: Tensor, dim: int) -> Tensor:
    """For each frequency of half a spectrum 1, or ``inner`` if it represents its conjugate too."""
    count, paired = size // 2 + 1, (size - 1) // 2
    dtype = spectrum.dtype.to_real()
    single, pairs = ones(1, dtype=dtype), full((paired,), inner, dtype=dtype)
    parts = [single, pairs, single] if size % 2 == 0 else [single, pairs]
    return reshape(cat(parts), (count,) + (1,) * (-dim - 1))


# -- arguments ----------------------------------------------------------------------------------


def _scale(norm: str | None, inverse: bool) -> str:
    modes = {None: "none", "backward": "none", "ortho": "root", "forward": "full"}
    if norm not in modes:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    scale = modes[norm]
    if inverse and scale != "root":
        return "full" if scale == "none" else "none"
    return scale


def _as_floating(x: Tensor) -> Tensor:
    if x.dtype.category < dtypes.FLOATING:
        return cast(x, dtypes.get_default_dtype())
    if x.dtype.itemsize == 2:
        raise RuntimeError(f"Unsupported dtype {x.dtype.name}")
    return x


def _as_real(name: str, x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {x.dtype.name}")
    return _as_floating(x)


def _as_complex(x: Tensor) -> Tensor:
    x = _as_floating(x)
    return cast(x, x.dtype.to_complex())


def _one_dim(input: Tensor, n: int | None, dim: int) -> tuple[tuple[int] | None, tuple[int]]:
    """The size and dimension of a one-dimensional transform, as lists."""
    if not input.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    normalize_dim(dim, input.ndim)
    if n is not None and n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return (None if n is None else (n,)), (dim,)


def _sizes_and_dims(input: Tensor, s: Any, dim: DimsLike) -> tuple[list[int], Shape]:
    """The size for each transformed dimension (-1: its own), and the dimensions from the back."""
    rank = input.ndim
    sizes = None if s is None else [s] if isinstance(s, int) else list(s)
    if dim is not None:
        given = (dim,) if isinstance(dim, int) else tuple(dim)
        dims = tuple(normalize_dim(d, rank) - rank for d in given)
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if sizes is not None and len(sizes) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    else:
        count = rank if sizes is None else len(sizes)
        if count > rank:
            raise RuntimeError(
                f"Got shape with {count} values but input tensor only has {rank} dimensions."
            )
        dims = tuple(range(-count, 0))
    return ([-1] * len(dims) if sizes is None else sizes), dims


def _resized(x: Tensor, sizes: Sequence[int], dims: Shape) -> Tensor:
    """The tensor cut off, or filled up with zeros, to the given sizes."""
    shape = list(x._type.shape)
    for size, dim in zip(sizes, dims, strict=True):
        shape[dim] = shape[dim] if size == -1 else size
        if shape[dim] < 1:
            raise RuntimeError(f"Invalid number of data points ({shape[dim]}) specified")
    common = tuple((0, min(n, m), 1) for n, m in zip(shape, x._type.shape, strict=True))
    if any(stop < n for (_, stop, _), n in zip(common, x._type.shape, strict=True)):
        x = bind(SLICE, x, slices=common)
    if any(stop < n for (_, stop, _), n in zip(common, shape, strict=True)):
        x = bind(PAD_SLICE, x, slices=common, shape=tuple(shape))
    return x


# -- the three kinds of transforms --------------------------------------------------------------


def _complex_transform(
    input: Tensor, s: object, dim: DimsLike, norm: str | None, inverse: bool
) -> Tensor:
    sizes, dims = _sizes_and_dims(input, s, dim)
    x = _resized(_as_complex(input), sizes, dims)
    return bind(  # type: ignore[no-any-return]
        FFT_COMPLEX, x, dims=dims, inverse=inverse, scale=_scale(norm, inverse)
    )


def _to_half(
    name: str, input: Tensor, s: object, dim: DimsLike, norm: str | None, conjugate: bool = False
) -> Tensor:
    """From real numbers; ``conjugate`` gives the inverse transform instead of the forward one."""
    sizes, dims = _sizes_and_dims(input, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = _resized(_as_real(name, input), sizes, dims)
    spectrum = bind(FFT_TO_HALF, x, dims=dims, scale=_scale(norm, conjugate))
    return conj(spectrum) if conjugate else spectrum


def _from_half(
    name: str, input: Tensor, s: object, dim: DimsLike, norm: str | None, conjugate: bool = False
) -> Tensor:
    """To real numbers; ``conjugate`` takes the forward transform instead of the inverse one."""
    sizes, dims = _sizes_and_dims(input, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    size = sizes[-1] if sizes[-1] != -1 else 2 * (input._type.shape[dims[-1]] - 1)
    if size < 1:
        raise RuntimeError(f"Invalid number of data points ({size}) specified")
    x = _resized(_as_complex(input), [*sizes[:-1], size // 2 + 1], dims)
    return bind(  # type: ignore[no-any-return]
        FFT_FROM_HALF, conj(x) if conjugate else x, dims=dims, size=size,
        scale=_scale(norm, not conjugate),
    )  # fmt: skip


# -- one dimension ------------------------------------------------------------------------------


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform along a dimension, cut or filled up to ``n`` points."""
    return _complex_transform(input, *_one_dim(input, n, dim), norm, inverse=False)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``fft``."""
    return _complex_transform(input, *_one_dim(input, n, dim), norm, inverse=True)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """``fft`` of real numbers, without the half that is conjugate to the rest."""
    return _to_half("rfft", input, *_one_dim(input, n, dim), norm)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``rfft``, to ``n`` real numbers (an even number if not given)."""
    return _from_half("irfft", input, *_one_dim(input, n, dim), norm)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """``fft`` of half a signal that is conjugate symmetric in time, to ``n`` real numbers.

    Args:
        input: the signal; any dimensions
        n: length of the result; default 2 (extent - 1)
        dim: the dimension; default -1
        norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
            ``"forward"`` the transform
        out: where to write the result

    >>> eg.fft.hfft(eg.tensor([1.0, 2.0, 3.0]))
    tensor([ 8., -2.,  0., -2.])
    """
    return _from_half("hfft", input, *_one_dim(input, n, dim), norm, conjugate=True)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``hfft``.

    Args:
        input: the signal; any dimensions
        n: length of the signal, cut or padded with zeros; default its own
        dim: the dimension; default -1
        norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
            ``"forward"`` the transform
        out: where to write the result

    >>> eg.fft.ihfft(eg.tensor([1.0, 2.0, 3.0, 2.0]))
    tensor([ 2.0000-0.j, -0.5000-0.j,  0.0000-0.j])
    """
    return _to_half("ihfft", input, *_one_dim(input, n, dim), norm, conjugate=True)


# -- two and more dimensions --------------------------------------------------------------------


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def fftn(input: Tensor, s: object = None, dim: DimsLike = None, norm: str | None = None) -> Tensor:
    """``fft`` along several dimensions (all of them, if neither ``s`` nor ``dim`` is given)."""
    return _complex_transform(input, s, dim, norm, inverse=False)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def ifftn(input: Tensor, s: object = None, dim: DimsLike = None, norm: str | None = None) -> Tensor:
    """The inverse of ``fftn``.

    Args:
        input: the signal; any dimensions
        s: extents to cut or pad to; default its own
        dim: the dimensions; default all, or the last ``len(s)``
        norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
            ``"forward"`` the transform
        out: where to write the result

    >>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> eg.allclose(eg.fft.ifftn(eg.fft.fftn(x)).real, x)
    True
    """
    return _complex_transform(input, s, dim, norm, inverse=True)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def rfftn(input: Tensor, s: object = None, dim: DimsLike = None, norm: str | None = None) -> Tensor:
    """``fftn`` of real numbers, with half of the last dimension.

    Args:
        input: the signal; any dimensions
        s: extents to cut or pad to; default its own
        dim: the dimensions; default all, or the last ``len(s)``
        norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
            ``"forward"`` the transform
        out: where to write the result

    >>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> eg.fft.rfftn(x)
    tensor([[10.+0.j, -2.+0.j],
            [-4.+0.j,  0.+0.j]])
    """
    return _to_half("rfftn", input, s, dim, norm)


@expose(method=False, into=FFT, numpy_names=True)
@autocast_policy(AutocastPolicy.FLOAT32)
def irfftn(
    input: Tensor, s: object = None, dim: DimsLike = None, norm: str | None = None
) -> Tensor:
    """The inverse of ``rfftn``.

    Args:
        input: the signal; any dimensions
        s: extents to cut or pad to; default its own
        dim: the dimensions; default all, or the last ``len(s)``
        norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
            ``"forward"`` the transform
        out: where to write the result

    >>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> eg.allclose(eg.fft.irfftn(eg.fft.rfftn(x), s=(2, 2)), x)
    True
    """
    return _from_half("irfftn", input, s, dim, norm)


@expose(method=False, into=FFT, numpy_names=True)
def hfftn(input: Tensor, s: object = None, dim: DimsLike = None, norm: str | None = None) -> Tensor:
    """``fftn`` of half a signal that is conjugate symmetric, to real numbers.

    Args:
        input: the signal; any dimensions
        s: extents to cut or pad to; default its own
        dim: the dimensions; default all, or the last ``len(s)``
        norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
            ``"forward"`` the transform
        out: where to write the result

    >>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> eg.fft.hfftn(x)
    tensor([[10., -2.],
            [-4.,  0.]])
    """
    return _from_half("hfftn", input, s, dim, norm, conjugate=True)


@expose(method=False, into=FFT, numpy_names=True)
def ihfftn(
    input: Tensor, s: object = None, dim: DimsLike = None, norm: str | None = None
) -> Tensor:
    """The inverse of ``hfftn``.

    Args:
        input: the signal; any dimensions
        s: extents to cut or pad to; default its own
        dim: the dimensions; default all, or the last ``len(s)``
        norm: ``"backward"`` (default) scales the inverse by 1 / n, ``"ortho"`` both by 1 / sqrt(n),
            ``"forward"`` the transform
        out: where to write the result

    >>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> eg.fft.ihfftn(x).real
    tensor([[ 2.5000, -0.5000],
            [-1.0000,  0.0000]])
    """
    return _to_half("ihfftn", input, s, dim, norm, conjugate=True)


def _in_two_dimensions(transform: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``fft2`` from ``fftn``, and the like."""

    def function(
        input: Tensor, s: object = None, dim: DimsLike = (-2, -1), norm: str | None = None
    ) -> Tensor:
        return transform(input, s, dim, norm)

    function.__name__ = function.__qualname__ = transform.__name__[:-1] + "2"
    function.__doc__ = f"``{transform.__name__}`` along two dimensions, the last if not given."
    plain = autocast_policy(policy_of(transform))(function)
    return expose(method=False, into=FFT, numpy_names=True)(plain)


fft2: Callable[..., Tensor] = _in_two_dimensions(fftn)
ifft2: Callable[..., Tensor] = _in_two_dimensions(ifftn)
rfft2: Callable[..., Tensor] = _in_two_dimensions(rfftn)
irfft2: Callable[..., Tensor] = _in_two_dimensions(irfftn)
hfft2: Callable[..., Tensor] = _in_two_dimensions(hfftn)
ihfft2: Callable[..., Tensor] = _in_two_dimensions(ihfftn)


# -- frequencies --------------------------------------------------------------------------------


def _frequencies(
    name: str, places: Tensor, step: float, out: Tensor | None, dtype: DtypeLike,
    device: DeviceLike, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Places in a spectrum as frequencies, made as factory functions make tensors."""
    check_place(device)
    dtype = chosen_dtype(dtype, out)
    if dtype.category < dtypes.FLOATING:
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    return deliver(name, cast(places, dtype) * step, out, requires_grad)


@expose(method=False, out=False, into=FFT)
def fftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: DtypeLike = None,
    layout: LayoutLike = None, device: DeviceLike = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The frequencies of ``fft`` of ``n`` points, ``d`` apart; takes ``dtype`` and the like."""
    places = arange(n)
    signed = where(places < (n + 1) // 2, places, places - n)
    step = 1 / (n * d) if n else 1.0
    return _frequencies("fftfreq", signed, step, out, dtype, device, requires_grad)


@expose(method=False, out=False, into=FFT)
def rfftfreq(
    n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: DtypeLike = None,
    layout: LayoutLike = None, device: DeviceLike = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The frequencies of ``rfft`` of ``n`` points, ``d`` apart; takes ``dtype`` and the like."""
    step = 1 / (n * d) if n else 1.0
    return _frequencies("rfftfreq", arange(n // 2 + 1), step, out, dtype, device, requires_grad)


def _rolled(input: Tensor, dim: DimsLike, extra: int) -> Tensor:
    given = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = tuple(normalize_dim(d, input.ndim) for d in given)
    if not dims:
        raise RuntimeError("`shifts` required")
    return roll(input, tuple((input._type.shape[d] + extra) // 2 for d in dims), dims)


@expose(method=False, out=False, into=FFT, numpy_names=True)
def fftshift(input: Tensor, dim: DimsLike = None) -> Tensor:
    """A spectrum with the zero frequency moved to the middle."""
    return _rolled(input, dim, 0)


@expose(method=False, out=False, into=FFT, numpy_names=True)
def ifftshift(input: Tensor, dim: DimsLike = None) -> Tensor:
    """The inverse of ``fftshift``.

    Args:
        input: a spectrum
        dim: the dimensions; default all

    >>> eg.fft.ifftshift(eg.tensor([-1.0, 0.0, 1.0]))
    tensor([ 0.,  1., -1.])
    """
    return _rolled(input, dim, 1)
