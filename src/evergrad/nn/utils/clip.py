"""Clipping gradients, by their common norm or by value."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from evergrad.core.compound import Compound
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.linalg import vector_norm
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import scalar_tensor
from evergrad.ops.rows.elementwise.logic import isfinite
from evergrad.ops.rows.movement.joining import stack


def _gradients(parameters: Any) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p._grad for p in given if p._grad is not None]


def _elements(tensor: Tensor) -> Tensor:
    """The elements that a norm is taken of; of a sparse tensor, each place once."""
    detached: Any = tensor.detach()
    found: Tensor = detached.coalesce().values() if isinstance(tensor, Compound) else detached
    return found


def get_total_norm(
    tensors: Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The norm of all tensors together, as if they were one vector."""
    parts = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not parts:
        return scalar_tensor(0.0)
    with using(grad=False):
        norms = [vector_norm(_elements(t), norm_type) for t in parts]
        total: Tensor = vector_norm(stack(norms), norm_type)
    if error_if_nonfinite:
        require(isfinite(total), RuntimeError, lambda: (
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        ))  # fmt: skip
    return total


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients down if their norm is above the limit."""
    with using(grad=False):
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in _gradients(parameters):
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale all gradients so that their common norm is at most ``max_norm``; gives the norm."""
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_gradients(given), float(norm_type), error_if_nonfinite)
    clip_grads_with_norm_(given, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The former spelling of :func:`clip_grad_norm_`."""
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Hold each element of the gradients between ``-clip_value`` and ``clip_value``."""
    limit = float(clip_value)
    with using(grad=False):
        for grad in _gradients(parameters):
            if isinstance(grad, Compound):
                _clamp_places(grad, limit)
            else:
                grad.clamp_(min=-limit, max=limit)


def _clamp_places(grad: Any, limit: float) -> None:
    """Clamp a sparse gradient where it has elements: those of one place are added up first, and
    zero is within every limit."""
    whole = grad.coalesce()
    grad.take_over(whole.with_elements(whole.values().clamp(min=-limit, max=limit)))
