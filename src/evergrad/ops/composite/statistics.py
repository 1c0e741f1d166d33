"""Covariances, correlations, and slices held to a norm: composites."""

from __future__ import annotations

import math
import warnings
from typing import Any

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.shapes import normalize_dim
from evergrad.core.tensor import Tensor
from evergrad.core.tracing import is_known
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.assemble import complex as as_complex
from evergrad.ops.rows.elementwise.basic import sqrt, where
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.elementwise.magnitude import conj
from evergrad.ops.rows.linalg.norms import vector_norm
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.complex_parts import imag, real
from evergrad.ops.rows.movement.strided import diagonal
from evergrad.ops.rows.movement.views import reshape, squeeze, transpose, unsqueeze
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.public import expose


def _check_weights(name: str, weights: Tensor, observations: int, category: int) -> None:
    kind = "integral" if category == dtypes.INTEGRAL else "floating point"
    if weights.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
            f"{weights.ndim} dimensions"
        )
    if weights.dtype.category != category:
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with "
            f"{weights.dtype.name} dtype"
        )
    if weights._type.numel != observations:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the "
            f"input but got {weights._type.numel} != {observations}"
        )
    require(~(weights < 0), RuntimeError, lambda: f"cov(): {name} cannot be negative")


@expose(out=False)
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The covariances of variables (rows) over observations (columns), which may count several
    times (``fweights``) or matter more than others (``aweights``)."""
    if input.ndim > 2:
        raise RuntimeError(
            "cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    rows = reshape(input, (1, -1)) if input.ndim < 2 else input
    count = rows._type.shape[1]
    weights: Any = None
    for name, given, category in (
        ("fweights", fweights, dtypes.INTEGRAL), ("aweights", aweights, dtypes.FLOATING),
    ):  # fmt: skip
        if given is not None:
            _check_weights(name, given, count, category)
            weights = given if weights is None else weights * given
    sum_of_weights: int | Tensor = count if weights is None else total(weights)
    freedom: int | Tensor = sum_of_weights - correction
    if aweights is not None and correction:
        freedom = sum_of_weights - total(weights * aweights) / sum_of_weights * correction
    if isinstance(freedom, Tensor) and not is_known(freedom):
        freedom = where(freedom <= 0, 0, freedom)
    elif float(freedom) <= 0:
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "number of observations.",
            UserWarning,
            stacklevel=2,
        )
        freedom = freedom * 0
    weighed = rows if weights is None else rows * weights
    mean = unsqueeze(total(weighed, 1), 1) / sum_of_weights
    apart = rows - mean
    weighed = apart if weights is None else apart * weights
    product = matmul(weighed, conj(transpose(apart, 0, 1)))
    found = product / freedom if isinstance(freedom, Tensor) or freedom else product / 0.0
    return found if found._type.numel != 1 else squeeze(found)


@expose(out=False)
def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlation coefficients of variables (rows) over observations (columns)."""
    if input.ndim > 2:
        raise RuntimeError(
            "corrcoef(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    found = cov(input)
    if not found.ndim:
        return found / found
    deviation = sqrt(real(diagonal(found)))
    found = found / unsqueeze(deviation, 1) / unsqueeze(deviation, 0)
    if found.dtype.is_complex:
        return as_complex(clamp(real(found), -1, 1), clamp(imag(found), -1, 1))
    return clamp(found, -1, 1)


@expose(inplace=True, numpy_names=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices along a dimension, each scaled down to the norm ``maxnorm`` if it has more."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if input.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    dim = normalize_dim(dim, input.ndim)
    others = tuple(d for d in range(input.ndim) if d != dim)
    # A norm of 16 bits would move slices across the border, and be rounded before the result is.
    wide = dtypes.float32 if input.dtype in (dtypes.float16, dtypes.bfloat16) else input.dtype
    norms = vector_norm(input, math.inf if p == math.inf else p, others, True, dtype=wide)
    large = norms > maxnorm
    scale = where(large, maxnorm / (where(large, norms, 1) + 1e-7), 1)
    return cast(cast(input, wide) * scale, input.dtype)
