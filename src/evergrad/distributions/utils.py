"""What distributions share: parameters of one shape, probabilities as logits, cached attributes."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import evergrad
from evergrad.core.dtypes import dtype
from evergrad.core.state import using
from evergrad.core.tensor import Tensor

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

EULER_CONSTANT = 0.57721566490153286060
LOG_2 = math.log(2)
LOG_2PI = math.log(2 * math.pi)


def broadcast_all(*values: object) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the type of the first tensor."""
    if not all(isinstance(value, (Tensor, int, float, complex)) for value in values):
        raise ValueError("Input arguments must all be instances of Number or evergrad.Tensor.")
    kinds = [value.dtype for value in values if isinstance(value, Tensor)]
    kind = kinds[0] if kinds else evergrad.get_default_dtype()
    tensors = [
        value if isinstance(value, Tensor) else evergrad.tensor(value, dtype=kind)
        for value in values
    ]
    shape = evergrad.broadcast_shapes(*(tensor.shape for tensor in tensors))
    return tuple(tensor if tensor.shape == shape else tensor.expand(shape) for tensor in tensors)


def standard_normal(shape: Sequence[int], kind: dtype) -> Tensor:
    """Normal numbers of mean 0 and variance 1."""
    return evergrad.randn(tuple(shape), dtype=kind)


def sum_rightmost(value: Tensor, ndims: int) -> Tensor:
    """The sum over the last ``ndims`` dimensions."""
    if ndims == 0:
        return value
    return value.reshape((*value.shape[: value.ndim - ndims], -1)).sum(-1)


# -- probabilities and logits -------------------------------------------------------------------


def check_one_given(probs: object, logits: object) -> None:
    """Refuse both parameters, or none."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities out of logits: by the sigmoid for coins, by softmax for categories."""
    return evergrad.sigmoid(logits) if is_binary else evergrad.softmax(logits, -1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities moved off 0 and 1 by the smallest step at 1."""
    eps = evergrad.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds for coins, logarithms for categories; finite also at 0 and 1."""
    inside = clamp_probs(probs)
    logs: Tensor = evergrad.log(inside)
    return logs - evergrad.log1p(-inside) if is_binary else logs


# -- attributes computed once -------------------------------------------------------------------


class lazy_property:  # noqa: N801 - PyTorch's spelling
    """An attribute that is computed when it is first asked for, and then kept."""

    def __init__(self, wrapped: Callable[[Any], object]) -> None:
        self.wrapped = wrapped
        self.__name__: str = wrapped.__name__
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: object, owner: object = None) -> Any:
        if instance is None:
            return self
        with using(grad=True):
            value = self.wrapped(instance)
        setattr(instance, self.__name__, value)
        return value


# -- triangles as vectors -----------------------------------------------------------------------


def _is_in_triangle(size: int, diag: int) -> Tensor:
    places = evergrad.arange(size)
    return places < places.reshape(size, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements on and below a diagonal of each matrix, row by row, as a vector."""
    size = mat.shape[-1]
    if not -size <= diag < size:
        raise ValueError(f"diag ({diag}) provided is outside [{-size}, {size - 1}].")
    return mat[..., _is_in_triangle(size, diag)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The inverse of :func:`tril_matrix_to_vec`; zeros stand above the diagonal."""
    length = vec.shape[-1]
    size = _triangle_size(length, diag)
    matrix: Tensor = evergrad.zeros((*vec.shape[:-1], size, size), dtype=vec.dtype)
    matrix[..., _is_in_triangle(size, diag)] = vec
    return matrix


def _triangle_size(length: int, diag: int) -> int:
    """The extent of the square matrix that has ``length`` elements up to a diagonal."""
    for size in count(max(1, -diag)):
        below = sum(min(max(row + diag + 1, 0), size) for row in range(size))
        if below == length:
            return size
        if below > length:
            break
    raise ValueError(
        f"The size of last dimension is {length} which cannot be expressed as the lower "
        "triangular part of a square D x D matrix."
    )
