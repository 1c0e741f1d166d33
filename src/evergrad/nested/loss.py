"""Losses of ragged predictions."""

from __future__ import annotations

from typing import Any

from evergrad.core.compound import no_form
from evergrad.core.tensor import Tensor
from evergrad.extension import provides
from evergrad.nested.jagged import NestedTensor, jagged_tensor
from evergrad.nested.jagged_rows import covered_values
from evergrad.ops.composite.classification_losses import cross_entropy


@provides("ragged_cross_entropy")
def entropy_of_values(
    input: Any, target: object, weight: Tensor | None, size_average: bool | None, ignore_index: int,
    reduce: bool | None, reduction: str, label_smoothing: float,
) -> Tensor:  # fmt: skip
    """The cross-entropy of all values, whose last dimension has the classes."""
    if not isinstance(input, NestedTensor) or input._ragged_dim != 1 or input.ndim != 3:
        raise no_form("cross_entropy", input)
    if not isinstance(target, NestedTensor) or target.ragged is not input.ragged:
        raise RuntimeError(
            "cross_entropy(): the targets of a nested tensor must be one with the same offsets "
            "(made with nested_tensor_from_jagged(values, other.offsets()))"
        )
    options = weight, size_average, ignore_index, reduce, reduction, label_smoothing
    loss = cross_entropy(covered_values(input), covered_values(target), *options)
    if not loss.ndim or input._lengths is not None:
        return loss
    return jagged_tensor(loss, input._offsets)
