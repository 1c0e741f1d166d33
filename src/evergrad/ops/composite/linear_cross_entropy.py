"""Cross-entropy of the logits that a linear layer makes."""

from __future__ import annotations

import math

from evergrad.core.autocast import under_autocast
from evergrad.core.tensor import Tensor
from evergrad.ops.composite.classification_losses import cross_entropy
from evergrad.ops.rows.matmul import linear

# Under autocast it is the public function, in float32.
_cross_entropy = under_autocast(cross_entropy)


def _check(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}"
        )
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    shape = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != shape:
        raise RuntimeError(f"expected linear_bias shape {shape}, got {tuple(linear_bias.shape)}")
    if linear_weight.ndim > 2 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, got unbatched input with shape {tuple(input.shape)}"
        )


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: object = None,
) -> Tensor:  # fmt: skip
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)``.

    ``options`` chooses in PyTorch how the batch is cut to save memory; results do not depend on
    it. ``evergrad.compile`` saves that memory by recomputing logits.

    >>> F.linear_cross_entropy(eg.ones(1, 2), eg.ones(3, 2), eg.tensor([0]))
    tensor(1.0986)
    """
    _check(input, linear_weight, linear_bias)
    classes, *further = linear_weight.shape[:-1]
    shape = (*input.shape[:-1], classes, *further)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    flat = linear_weight.reshape(math.prod(further, start=classes), input.shape[-1])
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, flat, bias).reshape(shape)
    ignored = -100 if ignore_index is None else ignore_index
    return _cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction,
        label_smoothing=label_smoothing,
    )  # fmt: skip
