"""Losses between numbers: regression, probabilities, margins. Those that choose among classes are
in :mod:`evergrad.ops.composite.classification_losses`.

Plain functions over rows, except ``binary_cross_entropy``, whose slope is bounded where its
logarithms are.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np

from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import INTEGRAL, bool_
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.families import elementwise
from evergrad.core.prepared import not_repeated, prepared
from evergrad.core.row_facts import AutocastPolicy, Builder, Value, expensive
from evergrad.core.shapes import broadcast_shapes
from evergrad.core.tensor import Array, Tensor
from evergrad.core.tracing import is_known
from evergrad.errors import DTypeError, ShapeError
from evergrad.ops.composite.activations import logsigmoid, require_floating, widened
from evergrad.ops.composite.distance import pairwise_distance
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import full_like
from evergrad.ops.rows.elementwise.arithmetic import logaddexp, xlogy
from evergrad.ops.rows.elementwise.basic import exp, log, minimum, sqrt, square, where
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.elementwise.magnitude import abs as absolute
from evergrad.ops.rows.movement.views import expand, unsqueeze
from evergrad.ops.rows.reduce.sums import mean
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.casting import result_type
from evergrad.ops.surface.handles import detach

Distance = Callable[[Tensor, Tensor], Tensor]

# From so many elements on one native program is faster than the plan of a loss.
_LEAST_FUSED = 1 << 12


# -- reduction ----------------------------------------------------------------------------------


def chosen_reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction, also if given by PyTorch's two older arguments."""
    if size_average is not None or reduce is not None:
        averaged = size_average is None or size_average
        reduction = "none" if reduce is False else ("mean" if averaged else "sum")
        warnings.warn(
            "size_average and reduce args will be deprecated, please use "
            f"reduction='{reduction}' instead.",
            UserWarning,
            stacklevel=3,
        )
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """All losses, their mean or their sum."""
    if reduction == "none":
        return loss
    return mean(loss) if reduction == "mean" else total(loss)


def _matched(input: Tensor, target: Tensor, stacklevel: int = 3) -> tuple[Tensor, Tensor]:
    """Input and target in their common shape, which should be that of both."""
    if input._type.shape == target._type.shape:
        return input, target
    not_repeated()
    warnings.warn(
        f"Using a target size ({target.shape}) that is different to the input size "
        f"({input.shape}). This will likely lead to incorrect results due to broadcasting. Please "
        "ensure they have the same size.",
        UserWarning,
        stacklevel=stacklevel,
    )
    shape = broadcast_shapes(input._type.shape, target._type.shape)
    return expand(input, shape), expand(target, shape)


def _compared(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Input and target of one shape; one may be boolean or of integers, but none complex."""
    x, y = _matched(input, target, stacklevel=4)
    x, y = (cast(v, w.dtype) if v.dtype is bool_ else v for v, w in ((x, y), (y, x)))
    require_floating(name, x if x.dtype.category >= y.dtype.category else y)
    return x, y


def _check_weight(input: Tensor, weight: Tensor) -> None:
    if weight._type.shape != input._type.shape:
        raise ValueError("Weights and input must have the same size.")


def _weighted(loss: Tensor, input: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Reduced with weights: the mean is divided by their sum."""
    if weight is None:
        return reduced(loss, reduction)
    _check_weight(input, weight)
    if reduction == "mean":
        return total(loss * weight) / total(weight)
    return reduced(loss * weight, reduction)


# -- regression ---------------------------------------------------------------------------------


@autocast_policy(AutocastPolicy.FLOAT32)
@prepared
def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The squared difference."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    x, y = _compared("mse_loss", input, target)
    if weight is None:
        return _mean_of_squares(x, y, reduction=reduction)  # type: ignore[no-any-return]
    return _weighted(square(x - y), input, weight, reduction)


@eager_composite(least=_LEAST_FUSED)
def _mean_of_squares(x: Tensor, y: Tensor, *, reduction: str) -> Tensor:
    return reduced(square(x - y), reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
@prepared
def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The absolute difference."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    x, y = _matched(input, target)
    return _weighted(absolute(x - y), input, weight, reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
@prepared
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """The absolute difference, rounded off by a parabola within ``beta`` of 0."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    x, y = _compared("smooth_l1_loss", input, target)
    if beta == 0:
        return reduced(absolute(x - y), reduction)
    return reduced(_rounded_off(x, y, edge=beta, slope=1.0, curve=0.5 / beta), reduction)


@eager_composite(least=_LEAST_FUSED)
def _rounded_off(x: Tensor, y: Tensor, *, edge: float, slope: float, curve: float) -> Tensor:
    """The absolute difference with a parabola within ``edge`` of 0."""
    difference = x - y
    size = absolute(difference)
    return where(size >= edge, (size - 0.5 * edge) * slope, square(difference) * curve)


@autocast_policy(AutocastPolicy.FLOAT32)
@prepared
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Half the squared difference, continued as a straight line beyond ``delta``."""
    reduction = chosen_reduction(reduction, None, None)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    x, y = _compared("huber_loss", input, target)
    loss: Tensor = _rounded_off(x, y, edge=delta, slope=delta, curve=0.5)
    if weight is not None:
        _check_weight(input, weight)
        loss = loss * weight
    return reduced(loss, reduction)


# -- probabilities ------------------------------------------------------------------------------


def _bounded_logs(x: Array) -> tuple[Array, Array]:
    return np.maximum(np.log(x), -100), np.maximum(np.log1p(-x), -100)


def _bce_eval(x: Array, t: Array) -> object:
    of_one, of_zero = _bounded_logs(x)
    return (t - 1) * of_zero - t * of_one


def _emit_bce(b: Builder, x: Value, target: Value) -> Value:
    of_one = b.maximum(b.math("log", x), b.number(-100))
    of_zero = b.maximum(b.math("log1p", b.neg(x)), b.number(-100))
    missing = b.mul(b.sub(target, b.number(1)), of_zero)
    return b.sub(missing, b.mul(target, of_one))


BINARY_CROSS_ENTROPY = elementwise(
    "binary_cross_entropy", _bce_eval,
    (
        lambda g, y, x, t: g * (x - t) / clamp((1 - x) * x, min=1e-12),
        lambda g, y, x, t: g * (log(1 - x) - log(x)),
    ),
    emit=expensive(_emit_bce, floats=True),
    takes_out=False, doc="-t log(x) - (1 - t) log(1 - x), with logarithms of at least -100.",
)  # fmt: skip


@autocast_policy(AutocastPolicy.FLOAT32)
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the probability given to the target, for targets in [0, 1]."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    if target._type.shape != input._type.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    if target.dtype is not input.dtype:
        raise DTypeError(f"Found dtype {target.dtype.name} but expected {input.dtype.name}")
    for name, given in (("input", input), ("target", target)):
        _require_probabilities(name, given)
    loss = bind(BINARY_CROSS_ENTROPY, input, target)
    return reduced(loss if weight is None else loss * weight, reduction)


def _require_probabilities(name: str, given: Tensor) -> None:
    def message() -> str:
        return f"all elements of {name} should be between 0 and 1"

    if not is_known(given):
        require((given >= 0) & (given <= 1), RuntimeError, message)
        return
    values = given.array()
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise RuntimeError(message())


@autocast_policy(AutocastPolicy.FLOAT32)
@prepared
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``binary_cross_entropy`` of ``sigmoid(input)``, without its rounding."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    if target._type.shape != input._type.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape}). "
            "Bring one to the shape of the other: target.view_as(input), .squeeze(1)."
        )
    x, wanted = widened(input), widened(target)
    against = logaddexp(-x, 0.0)  # minus the logarithm of sigmoid(input)
    if pos_weight is not None:
        against = against * ((pos_weight - 1) * wanted + 1)
    loss = cast((1 - wanted) * x + against, result_type(input, target))
    return reduced(loss if weight is None else loss * weight, reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    """What is lost by using the distribution of logarithms ``input`` for ``target``."""
    by_batch = reduction == "batchmean"
    if reduction == "mean" and size_average is None and reduce is None:
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.'mean' will be changed to behave the same as 'batchmean' in the next major "
            "release.",
            UserWarning,
            stacklevel=2,
        )
    reduction = chosen_reduction("sum" if by_batch else reduction, size_average, reduce)
    if min(input.dtype.category, target.dtype.category) <= INTEGRAL:
        raise RuntimeError("kl_div: Integral inputs not supported.")
    if log_target:
        loss = exp(target) * (target - input)
    else:
        loss = xlogy(target, target) - target * input
    result = reduced(loss, reduction)
    return result / input._type.shape[0] if by_batch and input.ndim else result


@autocast_policy(AutocastPolicy.FLOAT32)
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
    size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the logarithm of a Poisson distribution; ``full`` adds Stirling's approximation."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        large = where(target > 1, target, 1)
        stirling = large * log(large) - large + 0.5 * log(2 * math.pi * large)
        loss = loss + where(target > 1, stirling, 0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the logarithm of a normal distribution with the given variance."""
    if isinstance(var, float):
        var = full_like(input, var)
    require(~(var < 0), ValueError, lambda: "var has negative entry/entries")
    var = _variance_for(input, var)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var + detach(clamp(var, min=eps) - var)  # the slope is that of the variance itself
    loss = 0.5 * (log(var) + square(input - target) / var)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def _variance_for(input: Tensor, var: Tensor) -> Tensor:
    """One variance for each element, or one for all elements of one dimension."""
    shape, own = input._type.shape, var._type.shape
    if own == shape:
        return var
    if own == shape[:-1]:
        return unsqueeze(var, -1)
    different = [m for n, m in zip(shape, own, strict=False) if n != m]
    if len(own) != len(shape) or different != [1]:
        raise ValueError("var is of incorrect size")
    return var


# -- margins ------------------------------------------------------------------------------------


@autocast_policy(AutocastPolicy.FLOAT32)
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """A distance where the target is 1; what it lacks to the margin where it is -1."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    lacking = clamp(margin - input, min=0)
    loss = where(target != 1, lacking, 0) + where(target != -1, input, 0)
    return reduced(loss, reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """What ``input1`` lacks to be larger (target 1) or smaller (-1) than ``input2`` by a margin."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduced(clamp(-target * (input1 - input2) + margin, min=0), reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``log(1 + exp(-target * input))``, for targets 1 and -1."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    return reduced(logaddexp(-(target * input), 0.0), reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes of the cross-entropy of yes and no, for targets 1 and 0."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    return reduced(mean(loss if weight is None else loss * weight, -1), reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 minus the cosine where the target is 1; the cosine above the margin where it is -1."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    if target.ndim > 1 or not input1.ndim == input2.ndim == target.ndim + 1:
        raise ShapeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found "
            f"inputs with sizes {list(input1._type.shape)} and {list(input2._type.shape)}."
        )
    tiny = 1e-12
    lengths = sqrt((total(input1 * input1, -1) + tiny) * (total(input2 * input2, -1) + tiny))
    cosine = total(input1 * input2, -1) / lengths
    alike, unlike = 1 - cosine, clamp(cosine - margin, min=0)
    loss = where(target == 1, alike, 0) + where(target == -1, unlike, 0)
    return reduced(loss, reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
    eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """What the negative lacks to be farther from the anchor than the positive by a margin."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    return triplet_margin_with_distance_loss(
        anchor, positive, negative, margin=margin, swap=swap, reduction=reduction,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Distance | None = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``triplet_margin_loss`` with a distance of one's own.

    Args:
        anchor, positive, negative: of one shape
        distance_function: of two tensors; default the Euclidean distance
        margin: default 1.0
        swap: use the smaller of ``d(a, n)`` and ``d(p, n)``; default ``False``
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``

    >>> a = eg.zeros(1, 2)
    >>> F.triplet_margin_with_distance_loss(a, a, a + 3, margin=5.0)
    tensor(0.7574)
    """
    reduction = chosen_reduction(reduction, None, None)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(clamp(near - far + margin, min=0), reduction)
