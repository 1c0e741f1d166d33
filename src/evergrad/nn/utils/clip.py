"""Clipping gradients, by their common norm or by value."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from evergrad.core.compound import Compound
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.linalg import vector_norm
from evergrad.ops.composite.row_updates import rows_of
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import scalar_tensor, zeros
from evergrad.ops.rows.elementwise.logic import isfinite
from evergrad.ops.rows.movement.joining import stack


def _gradients(parameters: Any) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p._grad for p in given if p._grad is not None]


def _elements(tensor: Tensor, order: float) -> Tensor:
    """The elements that a norm is taken of; of a sparse tensor, each place once. Of a traced
    gradient of a table, those of the rows that were looked up: the others are zero, as all are
    where no row was."""
    detached: Tensor = tensor.detach()
    if isinstance(tensor, Compound):
        found: Tensor = detached.coalesce().values()
    else:
        rows = rows_of(tensor, tensor) if order >= 0 else None
        if rows is None:
            return detached
        found = rows.sums()
    return found if found._type.numel else zeros((1,), dtype=found.dtype)


def get_total_norm(
    tensors: Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The norm of all tensors together, as if they were one vector.

    Args:
        tensors: the tensors
        norm_type: the norm; default 2.0
        error_if_nonfinite: raise for a norm that is inf or NaN; default ``False``
        foreach: accepted, has no effect

    >>> nn.utils.get_total_norm([eg.tensor([3.0]), eg.tensor([[4.0]])])
    tensor(5.)
    """
    parts = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not parts:
        return scalar_tensor(0.0)
    with using(grad=False):
        norms = [vector_norm(_elements(t, norm_type), norm_type) for t in parts]
        total: Tensor = vector_norm(stack(norms), norm_type)
    if error_if_nonfinite:
        require(isfinite(total), RuntimeError, lambda: (
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        ))  # fmt: skip
    return total


def clip_grads_with_norm_(
    parameters: object, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients down if their norm is above the limit.

    Args:
        parameters: tensors with gradients, or one
        max_norm: the greatest norm
        total_norm: the norm they have, from :func:`get_total_norm`
        foreach: accepted, has no effect

    >>> w = nn.Parameter(eg.ones(2))
    >>> w.grad = eg.tensor([3.0, 4.0])
    >>> nn.utils.clip_grads_with_norm_([w], 1.0, eg.tensor(5.0))
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    with using(grad=False):
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in _gradients(parameters):
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale all gradients so that their common norm is at most ``max_norm``; gives the norm.

    Args:
        parameters: tensors with gradients, or one
        max_norm: the greatest norm of all gradients together
        norm_type: the norm; default 2.0, ``inf`` for the largest element
        error_if_nonfinite: raise for a norm that is inf or NaN; default ``False``
        foreach: accepted, has no effect

    >>> w = nn.Parameter(eg.ones(2))
    >>> w.grad = eg.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_gradients(given), float(norm_type), error_if_nonfinite)
    clip_grads_with_norm_(given, max_norm, total)
    return total


def clip_grad_norm(
    parameters: object, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The former spelling of :func:`clip_grad_norm_`.

    >>> w = nn.Parameter(eg.ones(2))
    >>> w.grad = eg.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    """
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: object, clip_value: float, foreach: bool | None = None) -> None:
    """Hold each element of the gradients between ``-clip_value`` and ``clip_value``.

    Args:
        parameters: tensors with gradients, or one
        clip_value: the greatest absolute value
        foreach: accepted, has no effect

    >>> w = nn.Parameter(eg.ones(2))
    >>> w.grad = eg.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_value_([w], 3.5)
    >>> w.grad
    tensor([3.0000, 3.5000])
    """
    limit = float(clip_value)
    with using(grad=False):
        for grad in _gradients(parameters):
            if isinstance(grad, Compound):
                _clamp_places(grad, limit)
            else:
                grad.clamp_(min=-limit, max=limit)


def _clamp_places(grad: Compound, limit: float) -> None:
    """Clamp a sparse gradient where it has elements: those of one place are added up first, and
    zero is within every limit."""
    whole = grad.coalesce()
    grad.take_over(whole.with_elements(whole.values().clamp(min=-limit, max=limit)))
