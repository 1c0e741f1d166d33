"""Losses that choose among classes: plain functions over rows.

Scores have the classes in dimension 1 ([N, C, ...]), or in dimension 0 without a batch ([C]);
targets are class numbers in the shape without that dimension, or probabilities in the full shape.
"""

from __future__ import annotations

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import cast
from evergrad.core.composite import composite
from evergrad.core.compound import Compound
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.tracing import is_known
from evergrad.core.types import Array
from evergrad.errors import DTypeError, ShapeError
from evergrad.extension import ExtensionPoint
from evergrad.ops.composite.activations import (
    below_largest,
    log_softmax,
    relu,
    require_floating,
    widened,
)
from evergrad.ops.composite.losses import chosen_reduction, reduced
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import arange
from evergrad.ops.rows.elementwise.basic import exp, log, where
from evergrad.ops.rows.indexing.functions import first_where, index_select, one_hot
from evergrad.ops.rows.indexing.scatter import gather
from evergrad.ops.rows.movement.views import reshape, squeeze, unsqueeze
from evergrad.ops.rows.reduce.scan import cumprod
from evergrad.ops.rows.reduce.sums import sum as total

# From so many scores on it takes longer to compute a loss in vain than to check its targets.
_LEAST_CHECKED = 1 << 14

_ragged_cross_entropy: ExtensionPoint[..., Tensor] = ExtensionPoint("ragged_cross_entropy")


def _class_dim(input: Tensor) -> int:
    return 0 if input.ndim == 1 else 1


def _on_classes(weight: Tensor, input: Tensor) -> Tensor:
    """A weight of [C] so that it broadcasts with the scores."""
    behind = input.ndim - 1 - _class_dim(input)
    return reshape(weight, (weight._type.numel,) + (1,) * behind)


def _check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    shape, wanted = input._type.shape, target._type.shape
    if not shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise DTypeError(
            f"expected target dtype to be Long or Byte, but got {target.dtype.name}. Class numbers "
            "are integers: target.long(). Probabilities have the shape of the input, "
            f"{list(shape)}, but the target has {list(wanted)}."
        )
    if len(shape) == 1:
        if target._type.numel != 1 or target.ndim > 1:
            raise ValueError(
                f"For 1D input, 1D target must have size 1, but got target size: "
                f"{target._type.numel}"
            )
    elif not wanted or wanted[0] != shape[0]:
        count = wanted[0] if wanted else 0
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size ({count}). "
            f"The input is {list(shape)}, the target {list(wanted)}."
        )
    elif len(shape) == 2 and len(wanted) > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
    elif wanted != (shape[0], *shape[2:]):
        raise ShapeError(f"Expected target size {[shape[0], *shape[2:]]}, got {list(wanted)}")
    classes = shape[_class_dim(input)]
    if weight is not None and weight._type.shape != (classes,):
        raise ShapeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but "
            f"got weight tensor of shape: {list(weight._type.shape)}"
        )


def _out_of_bounds(number: object, classes: int) -> str:
    return (
        f"Target {number} is out of bounds. The input has {classes} classes, 0 to {classes - 1}; a "
        "target that does not count has the number ignore_index."
    )


def _counted(target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Class numbers that can be looked up, and which of them count (``None``: all do)."""
    known = is_known(target)
    is_plain = known and ignore_index < 0 and target._type.numel
    if is_plain and _are_classes(target.array(), classes):
        return cast(target, dtypes.int64), None
    counts = target != ignore_index
    if not known:
        outside = counts & ((target < 0) | (target >= classes))
        require(
            ~outside, IndexError,
            lambda: _out_of_bounds(first_where(outside, target), classes),
        )  # fmt: skip
    else:
        numbers = target.array()
        if numbers.size and (numbers.min() < 0 or numbers.max() >= classes):
            wrong = numbers[((numbers < 0) | (numbers >= classes)) & counts.array()]
            if wrong.size:
                raise IndexError(_out_of_bounds(wrong.flat[0], classes))
        elif counts.array().all():
            return cast(target, dtypes.int64), None
    return where(counts, cast(target, dtypes.int64), 0), counts


def _are_classes(numbers: Array, classes: int) -> bool:
    """Whether all are below a number and none is negative."""
    if numbers.dtype == np.int64 and numbers.flags.c_contiguous:  # a negative number is a large one
        return bool(np.maximum.reduce(numbers.reshape(-1).view(np.uint64)) < classes)
    return bool(numbers.min() >= 0 and numbers.max() < classes)


def _at(input: Tensor, places: Tensor) -> Tensor:
    """For every sample the element of its class."""
    dim = _class_dim(input)
    places = reshape(places, (1,)) if input.ndim == 1 else unsqueeze(places, 1)
    return squeeze(gather(input, dim, places), dim)


def _of_classes(
    loss: Tensor, counts: Tensor | None, places: Tensor, weight: Tensor | None, reduction: str
) -> Tensor:
    """Losses of samples with the weights of their classes; the mean is divided by those."""
    if weight is None and counts is None:
        return reduced(loss, reduction)
    if weight is None:
        assert counts is not None
        counts = reshape(counts, loss._type.shape)
        weights = cast(counts, loss.dtype)
        loss = where(counts, loss, 0)
    else:
        weights = reshape(index_select(weight, 0, reshape(places, -1)), loss._type.shape)
        loss = loss * weights
        if counts is not None:
            counts = reshape(counts, loss._type.shape)
            weights, loss = where(counts, weights, 0), where(counts, loss, 0)
    if reduction == "mean":
        return total(loss) / total(weights)
    return reduced(loss, reduction)


@autocast_policy(AutocastPolicy.FLOAT32)
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the logarithm of the probability of the target's class, from logarithms."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    if _may_all_count(input, target, ignore_index):
        try:
            return _nll_of_classes(input, target, weight, reduction)
        except (IndexError, RuntimeError):
            pass  # one may not, or is no class, which the lookup has found: with other words
    _check_classes(input, target, weight)
    places, counts = _counted(target, input._type.shape[_class_dim(input)], ignore_index)
    # In float16 the sum of a mean may overflow.
    loss = _picked(widened(input), places, counts, weight, reduction=reduction)
    return cast(loss, input.dtype)


@prepared
def _nll_of_classes(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """``nll_loss`` of class numbers that all count."""
    _check_classes(input, target, weight)
    loss = _picked(widened(input), target, None, weight, reduction=reduction)
    return cast(loss, input.dtype)


def _may_all_count(input: Tensor, target: Tensor, ignore_index: int) -> bool:
    """Whether targets are known to be classes that all count. Few are not looked at beforehand:
    those that are no class are found when they are looked up."""
    type, shape = target._type, input._type.shape
    if ignore_index >= 0 or type.dtype is not dtypes.int64 or not shape or not is_known(target):
        return False
    if input._type.numel < _LEAST_CHECKED and STATE.get().trace is None:  # else found too late
        return True
    return bool(type.numel and _are_classes(target.array(), shape[_class_dim(input)]))


@autocast_policy(AutocastPolicy.FLOAT32)
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """``nll_loss`` of ``log_softmax(input)``; targets may also be probabilities. Of a nested tensor
    the last dimension has the classes, and the targets are nested likewise."""
    if isinstance(input, Compound):
        options = weight, size_average, ignore_index, reduce, reduction, label_smoothing
        return _ragged_cross_entropy(input, target, *options)
    reduction = chosen_reduction(reduction, size_average, reduce)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    if target._type.shape == input._type.shape:
        given = widened(input), widened(target), weight, ignore_index, reduction, label_smoothing
        return cast(_from_probabilities(*given), input.dtype)
    if _may_all_count(input, target, ignore_index):
        try:
            return _entropy_of_classes(input, target, weight, reduction, label_smoothing)
        except (IndexError, RuntimeError):
            pass  # one may not, or is no class, which the lookup has found: with other words
    _check_classes(input, target, weight)
    require_floating("log_softmax", input)
    places, counts = _counted(target, input._type.shape[_class_dim(input)], ignore_index)
    if label_smoothing:
        loss = _smoothed(widened(input), places, counts, weight, reduction, label_smoothing)
    else:
        loss = _entropy(widened(input), places, counts, weight, reduction=reduction)
    return cast(loss, input.dtype)


@prepared
def _entropy_of_classes(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """``cross_entropy`` of class numbers that all count."""
    _check_classes(input, target, weight)
    require_floating("log_softmax", input)
    if smoothing:
        loss = _smoothed(widened(input), target, None, weight, reduction, smoothing)
    else:
        loss = _entropy(widened(input), target, None, weight, reduction=reduction)
    return cast(loss, input.dtype)


@eager_composite(least=512, aten="nll_loss_forward")
def _picked(
    input: Tensor, places: Tensor, counts: Tensor | None, weight: Tensor | None, *, reduction: str
) -> Tensor:
    """Minus the logarithms of classes that have been looked at (see ``_counted``)."""
    return _of_classes(-_at(input, places), counts, places, weight, reduction)


def _side_by_side(input: Tensor, *others: object) -> int:
    """The elements of scores whose classes are contiguous; kernels are for these."""
    return input._type.numel if input.ndim < 3 else 0


@composite("cross_entropy", least=512, size=_side_by_side, aten="nll_loss_forward")
def _entropy(
    input: Tensor, places: Tensor, counts: Tensor | None, weight: Tensor | None, *, reduction: str
) -> Tensor:
    """The cross-entropy of classes that have been looked at (see ``_counted``)."""
    dim = _class_dim(input)
    below = below_largest(input, dim)
    loss = log(total(exp(below), dim)) - _at(below, places)
    return _of_classes(loss, counts, places, weight, reduction)


def _from_probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
    smoothing: float,
) -> Tensor:  # fmt: skip
    if not target.dtype.is_floating_point:
        raise DTypeError(
            "Expected floating point type for target with class probabilities, got "
            f"{target.dtype.name}. Convert it with .float(), or pass class numbers, without the "
            "dimension of the classes."
        )
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    dim = _class_dim(input)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input._type.shape[dim]
    logs = log_softmax(input, dim)
    if weight is not None:
        logs = logs * _on_classes(weight, input)
    loss = -total(logs * target, dim)
    if reduction == "mean":
        samples = input._type.numel // input._type.shape[dim]
        return total(loss) / samples
    return reduced(loss, reduction)


def _smoothed(
    input: Tensor, places: Tensor, counts: Tensor | None, weight: Tensor | None, reduction: str,
    smoothing: float,
) -> Tensor:  # fmt: skip
    """A part of the target's probability given to all classes alike."""
    dim = _class_dim(input)
    logs = log_softmax(input, dim)
    chosen = _of_classes(-_at(logs, places), counts, places, weight, reduction)
    weighted = logs if weight is None else logs * _on_classes(weight, input)
    of_samples = -total(weighted, dim)
    counts = reshape(places >= 0 if counts is None else counts, of_samples._type.shape)
    spread = where(counts, of_samples, 0)
    if reduction == "mean":
        of_targets: Tensor = counts
        if weight is not None:
            of_targets = index_select(weight, 0, reshape(places, -1))
            of_targets = where(counts, reshape(of_targets, counts._type.shape), 0)
        spread = total(spread) / total(of_targets)
    else:
        spread = reduced(spread, reduction)
    return chosen * (1 - smoothing) + spread * (smoothing / input._type.shape[dim])


# -- margins ------------------------------------------------------------------------------------


@autocast_policy(AutocastPolicy.FLOAT32)
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """What the score of the target's class lacks to exceed each other one by a margin."""
    reduction = chosen_reduction(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    scores = reshape(input, (1, input._type.numel)) if input.ndim < 2 else input
    samples, classes = scores._type.shape
    if target._type.numel != samples or target.ndim > 1:
        raise ShapeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{samples}], but got "
            f"{list(target._type.shape)}. Input has shape {list(input._type.shape)}."
        )
    places = reshape(target, (samples,))
    require((places >= 0) & (places < classes), RuntimeError, lambda: "target out of range")
    loss = _lacking(scores, places, weight, p=p, margin=margin)
    return reduced(loss if input.ndim == 2 else reshape(loss, ()), reduction)


@eager_composite(least=64)
def _lacking(
    scores: Tensor, places: Tensor, weight: Tensor | None, *, p: int, margin: float
) -> Tensor:
    """The losses of all samples: the mean over classes."""
    classes = scores._type.shape[1]
    lacking = relu(scores - unsqueeze(_at(scores, places), 1) + margin)  # slope 0 at 0
    is_target = unsqueeze(places, 1) == arange(classes)
    loss = where(is_target, 0, lacking if p == 1 else lacking * lacking)
    if weight is not None:
        loss = loss * unsqueeze(index_select(weight, 0, places), 1)
    return total(loss, 1) / classes


@autocast_policy(AutocastPolicy.FLOAT32)
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """What each target class lacks to exceed each other class by 1; targets end at the first -1.

    Args:
        input: (N, C) or (C), scores
        target: of the same shape, class numbers up to the first -1
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of it

    >>> F.multilabel_margin_loss(eg.tensor([0.1, 0.2, 0.4, 0.8]), eg.tensor([3, 0, -1, 1]))
    tensor(0.8500)
    """
    reduction = chosen_reduction(reduction, size_average, reduce)
    if target._type.shape != input._type.shape:
        raise ShapeError(
            f"inconsistent target size: {list(target._type.shape)} for input of size: "
            f"{list(input._type.shape)}"
        )
    classes = input._type.shape[-1] if input.ndim else 1
    scores = reshape(input, (input._type.numel // max(classes, 1), classes))
    labels = reshape(target, scores._type.shape)
    listed = cumprod(cast(labels >= 0, dtypes.int64), 1) == 1
    places = where(listed, labels, 0)
    among = unsqueeze(cast(listed, dtypes.int64), 2) * one_hot(places, classes)
    others = total(among, 1) == 0  # [N, C]
    lacking = 1 - unsqueeze(gather(scores, 1, places), 2) + unsqueeze(scores, 1)  # [N, label, C]
    compared = unsqueeze(listed, 2) & unsqueeze(others, 1)
    loss = total(where(compared, relu(lacking), 0), (1, 2)) / classes
    return reduced(loss if input.ndim == 2 else reshape(loss, ()), reduction)
