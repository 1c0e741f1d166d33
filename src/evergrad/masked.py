"""Reductions and normalizations over the elements that a mask selects: ``evergrad.masked``.

A mask is broadcast to its input; ``True`` means that the element takes part. What does not is
replaced by the reduction's identity, so a row without any element gives that identity (and NaN
where there is none, as for the mean).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import strided
from evergrad.core.tensor import Tensor
from evergrad.linalg import vector_norm
from evergrad.ops.surface.public import FUNCTIONS as _F

if TYPE_CHECKING:
    from evergrad.core.types import DimsLike

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp",
    "logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum",
    "var",
]  # fmt: skip

Dims = int | tuple[int, ...] | list[int] | None

# -- masks ---------------------------------------------------------------------------------------


def _all_dims(dim: DimsLike, ndim: int) -> tuple[int, ...]:
    """The dimensions to reduce, sorted; all of them for ``None`` and ``()``."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    extent = max(ndim, 1)
    found: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -extent <= d < extent:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[{-extent}, {extent - 1}], but got {d})"
            )
        if d % extent in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        found.append(d % extent)
    return tuple(sorted(found))


def _full_mask(input: Tensor, mask: Tensor) -> Tensor:
    if mask.ndim > input.ndim:
        raise IndexError(
            "expected broadcastable mask (got mask dimensionality higher than of the input)"
        )
    return _F["broadcast_to"](mask, tuple(input.shape)).bool()  # type: ignore[no-any-return]


def _lowest(input: Tensor) -> float:
    if input.dtype.is_floating_point:
        return -math.inf
    if input.dtype.is_complex or input.dtype is dtypes.bool_:
        raise NotImplementedError(f"identity of amax on {input.dtype} input")
    return dtypes.iinfo(input.dtype).min


def _highest(input: Tensor) -> float:
    if input.dtype.is_floating_point:
        return math.inf
    if input.dtype.is_complex or input.dtype is dtypes.bool_:
        raise NotImplementedError(f"identity of amin on {input.dtype} input")
    return dtypes.iinfo(input.dtype).max


def _selected(name: str, input: Tensor, mask: Tensor | None, identity: object) -> Tensor:
    """The input with ``identity`` (or what it gives for the input) where the mask is false."""
    if input.layout is not strided:
        raise ValueError(f"masked {name} expects strided tensor (got {input.layout} tensor)")
    if mask is None:
        return input
    value = identity(input) if callable(identity) else identity
    other = _F["tensor"](value, dtype=input.dtype)
    return _F["where"](_full_mask(input, mask), input, other)  # type: ignore[no-any-return]


def _summed_dtype(input: Tensor, chosen: dtype | None) -> dtype:
    """Sums and products of small integers are made with int64."""
    if chosen is not None:
        return chosen
    is_small = input.dtype in (
        dtypes.uint8, dtypes.bool_, dtypes.int8, dtypes.int16, dtypes.int32,
    )  # fmt: skip
    return dtypes.int64 if is_small else input.dtype


# -- reductions ----------------------------------------------------------------------------------


def sum(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The sum of the selected elements.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.sum(x, 0, mask=mask)
    tensor(4.)
    """
    chosen = _summed_dtype(input, dtype)
    values = _selected("sum", input, mask, 0)
    dims = _all_dims(dim, input.ndim)
    return values.sum(dims, bool(keepdim), dtype=chosen)


def prod(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The product of the selected elements.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.prod(x, 0, mask=mask)
    tensor(3.)
    """
    values = _selected("prod", input, mask, 1).to(_summed_dtype(input, dtype))
    for d in reversed(_all_dims(dim, input.ndim)):
        values = values.prod(dim=d, keepdim=bool(keepdim))
    return values


def cumsum(
    input: Tensor, dim: int, *, dtype: dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """Running sums of the selected elements.

    Args:
        input: the tensor
        dim: the dimension
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.cumsum(x, 0, mask=mask)
    tensor([1., 1., 4.])
    """
    axis = _all_dims(dim, input.ndim)[0]
    chosen = dtype or input.dtype
    values = _selected("cumsum", input, mask, 0)
    return values.cumsum(axis, dtype=chosen).to(chosen)


def cumprod(
    input: Tensor, dim: int, *, dtype: dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """Running products of the selected elements.

    Args:
        input: the tensor
        dim: the dimension
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.cumprod(x, 0, mask=mask)
    tensor([1., 1., 3.])
    """
    axis = _all_dims(dim, input.ndim)[0]
    chosen = dtype or input.dtype
    values = _selected("cumprod", input, mask, 1)
    return values.cumprod(axis, dtype=chosen).to(chosen)


def amax(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The largest of the selected elements.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.amax(x, 0, mask=mask)
    tensor(3.)
    """
    values = _selected("amax", input, mask, _lowest)
    found = values.amax(_all_dims(dim, input.ndim), bool(keepdim))
    return found.to(dtype or input.dtype)


def amin(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The smallest of the selected elements.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.amin(x, 0, mask=mask)
    tensor(1.)
    """
    values = _selected("amin", input, mask, _highest)
    found = values.amin(_all_dims(dim, input.ndim), bool(keepdim))
    return found.to(dtype or input.dtype)


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False,
    dtype: dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where the largest of the selected elements is, in the input's type if none is given.

    Args:
        input: the tensor
        dim: the dimension; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.argmax(x, 0, mask=mask)
    tensor(2.)
    """
    values = _selected("argmax", input, mask, _lowest)
    return values.argmax(dim, bool(keepdim)).to(dtype or input.dtype)


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False,
    dtype: dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where the smallest of the selected elements is, in the input's type if none is given.

    Args:
        input: the tensor
        dim: the dimension; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.argmin(x, 0, mask=mask)
    tensor(0.)
    """
    values = _selected("argmin", input, mask, _highest)
    return values.argmin(dim, bool(keepdim)).to(dtype or input.dtype)


def _count(input: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    full = _F["ones"](tuple(input.shape), dtype=dtypes.bool_)
    chosen = full if mask is None else _full_mask(input, mask)
    return sum(chosen, dim, keepdim=keepdim)


def mean(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The mean of the selected elements; NaN where there are none.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.mean(x, 0, mask=mask)
    tensor(2.)
    """
    chosen = dtype or input.dtype
    if not (chosen.is_floating_point or chosen.is_complex):
        raise ValueError(
            "mean(): Could not infer output dtype. The dtype must be either a floating point or "
            f"complex dtype. Got: {chosen}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=chosen, mask=mask)
    return total / _count(input, dim, bool(keepdim), mask)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The lower median of the selected elements; NaN where there are none.

    Args:
        input: the tensor
        dim: the dimension; default -1
        keepdim: keep it with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.median(x, mask=mask)
    tensor(1.)
    """
    axis = _all_dims(dim, input.ndim)[0]
    is_float = input.dtype.is_floating_point
    values = input if is_float else input.to(dtypes.float32)
    found = _F["nanmedian"](_selected("median", values, mask, math.nan), axis, keepdim)[0]
    if is_float:
        return found  # type: ignore[no-any-return]
    if found.isnan().any():
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return found.to(dtype or input.dtype)  # type: ignore[no-any-return]


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The logarithm of the sum of the exponentials of the selected elements.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.logsumexp(x, 0, mask=mask)
    tensor(3.1269)
    """
    identity = complex(-math.inf) if input.dtype.is_complex else _lowest
    values = _selected("logsumexp", input, mask, identity)
    found = values.logsumexp(_all_dims(dim, input.ndim), keepdim=keepdim)
    return found.to(dtype or input.dtype)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: dtype | None = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``log(exp(input) + exp(other))`` of what the two masks select.

    Args:
        input, other: tensors
        dtype: element type to compute in
        input_mask, other_mask: which elements are selected; default all

    >>> eg.masked.logaddexp(eg.zeros(2), eg.zeros(2), other_mask=eg.tensor([True, False]))
    tensor([0.6931, 0.0000])
    """
    left = _selected("logaddexp", input, input_mask, _lowest)
    right = _selected("logaddexp", other, other_mask, _lowest)
    return left.logaddexp(right).to(dtype or input.dtype)


def norm(
    input: Tensor, ord: float | None = 2.0, dim: Dims = None, *, keepdim: bool | None = False,
    dtype: dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The vector norm of the selected elements.

    Args:
        input: the tensor
        ord: the norm; default 2.0
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.norm(x, 2.0, 0, mask=mask)
    tensor(3.1623)
    """
    values = _selected("norm", input, mask, math.inf if ord == -math.inf else 0)
    dims = _all_dims(dim, input.ndim)
    chosen = dtype or input.dtype
    return vector_norm(values, ord, dims, bool(keepdim), dtype=chosen)


def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *,
    correction: float | None = None, keepdim: bool | None = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The variance of the selected elements.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        unbiased, correction: degrees of freedom that are taken off; default 1
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.var(x, 0, mask=mask)
    tensor(2.)
    """
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    removed = float(unbiased is None or unbiased) if correction is None else float(correction)
    chosen = dtype or input.dtype
    if dtype is None and not (chosen.is_floating_point or chosen.is_complex):
        chosen = dtypes.float32
    is_float = chosen.is_floating_point or chosen.is_complex
    computed = chosen if is_float else dtypes.float32
    count = _count(input, dim, True, mask)
    centered = input - sum(input, dim, keepdim=True, dtype=chosen, mask=mask) / count
    total = sum(centered * centered.conj(), dim, keepdim=keepdim, dtype=computed, mask=mask)
    left = count.reshape(tuple(total.shape))
    if removed:
        left = (left.to(computed.to_real()) - removed).clamp(min=0)
    return (total / left).to(chosen)


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *,
    correction: float | None = None, keepdim: bool | None = False, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation of the selected elements.

    Args:
        input: the tensor
        dim: the dimensions; default all
        keepdim: keep them with extent 1; default ``False``
        unbiased, correction: degrees of freedom that are taken off; default 1
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.std(x, 0, mask=mask)
    tensor(1.4142)
    """
    found = var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    )
    return found.sqrt()


# -- normalizations ------------------------------------------------------------------------------


def softmax(
    input: Tensor, dim: int, *, dtype: dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """Softmax over the selected elements.

    Args:
        input: the tensor
        dim: the dimension
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.softmax(x, 0, mask=mask)
    tensor([0.1192, 0.0000, 0.8808])
    """
    values = _selected("softmax", input, mask, _lowest)
    axis = _all_dims(dim, input.ndim)[0]
    return _F["softmax"](values, axis, dtype=dtype or input.dtype)  # type: ignore[no-any-return]


def log_softmax(
    input: Tensor, dim: int, *, dtype: dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of softmax over the selected elements.

    Args:
        input: the tensor
        dim: the dimension
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.log_softmax(x, 0, mask=mask)
    tensor([-2.1269,    -inf, -0.1269])
    """
    values = _selected("log_softmax", input, mask, _lowest)
    axis = _all_dims(dim, input.ndim)[0]
    return _F["log_softmax"](values, axis, dtype=dtype or input.dtype)  # type: ignore[no-any-return]


def softmin(
    input: Tensor, dim: int, *, dtype: dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """Softmax of the negated selected elements.

    Args:
        input: the tensor
        dim: the dimension
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.softmin(x, 0, mask=mask)
    tensor([0.8808, 0.0000, 0.1192])
    """
    values = _selected("softmin", input, mask, _highest)
    axis = _all_dims(dim, input.ndim)[0]
    return _F["softmax"](-values, axis, dtype=dtype or input.dtype)  # type: ignore[no-any-return]


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The selected elements divided by their norm, which is at least ``eps``.

    Args:
        input: the tensor
        ord: the norm
        dim: the dimension
        eps: the least norm to divide by; default 1e-12
        dtype: element type to compute in
        mask: which elements are selected; default all

    >>> x, mask = eg.tensor([1.0, 5.0, 3.0]), eg.tensor([True, False, True])
    >>> eg.masked.normalize(x, 1.0, 0, mask=mask)
    tensor([0.2500, 0.0000, 0.7500])
    """
    values = _selected("normalize", input, mask, 0)
    length = norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return values / length.maximum(length.new_full([], eps))
