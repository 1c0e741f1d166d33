"""Losses as layers. Each holds its settings and calls the function of the same name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn.linear import Linear
from evergrad.nn.module import TensorModule

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike


def legacy_reduction(size_average: bool | None, reduce: bool | None) -> str:
    """The ``reduction`` that PyTorch's two former flags stand for."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


class _Loss(TensorModule):
    """A loss of a prediction and a target."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            reduction = legacy_reduction(size_average, reduce)
        self.reduction = reduction


class _WeightedLoss(_Loss):
    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """The mean absolute difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """The mean squared difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Squared for small differences, absolute for large ones."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean", beta: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Squared for small differences, linear beyond ``delta``."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """The negative log-likelihood of the target class."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input, target, weight=self.weight, ignore_index=self.ignore_index,
            reduction=self.reduction,
        )  # fmt: skip


class NLLLoss2d(NLLLoss):
    """The negative log-likelihood under its former name for images.

    The arguments are those of :class:`NLLLoss`. Input (N, C, H, W) of log probabilities, targets
    (N, H, W).

    >>> nn.NLLLoss2d()(eg.zeros(1, 2, 1, 1).log_softmax(1), eg.zeros(1, 1, 1, dtype=eg.int64))
    tensor(0.6931)
    """


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts.

    ``exp(input) - target * input``.

    Args:
        log_input: whether the input is the logarithm of the rate; default ``True``
        full: add Stirling's approximation of ``log(target!)``; default ``False``
        eps: keeps ``log(input)`` finite for ``log_input=False``; default 1e-8
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    >>> nn.PoissonNLLLoss()(eg.zeros(2), eg.tensor([1.0, 2.0]))
    tensor(1.)
    """

    eps: float
    full: bool
    log_input: bool

    def __init__(
        self, log_input: bool = True, full: bool = False, size_average: bool | None = None,
        eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps,
            reduction=self.reduction,
        )  # fmt: skip


class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of a normal distribution with predicted variance.

    ``(log(var) + (input - target) ** 2 / var) / 2``.

    Args:
        full: add the constant ``log(2 pi) / 2``; default ``False``
        eps: the least variance; default 1e-6
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``

    >>> nn.GaussianNLLLoss()(eg.zeros(2), eg.ones(2), eg.ones(2))
    tensor(0.5000)
    """

    eps: float
    full: bool

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Any) -> Tensor:
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """The Kullback-Leibler divergence from log-probabilities to a target distribution."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean", log_target: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class BCELoss(_WeightedLoss):
    """The cross entropy of probabilities of two outcomes."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """A sigmoid and the cross entropy of two outcomes, in one stable step."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class CrossEntropyLoss(_WeightedLoss):
    """The cross entropy of logits with class numbers or class probabilities."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input, target, weight=self.weight, ignore_index=self.ignore_index,
            reduction=self.reduction, label_smoothing=self.label_smoothing,
        )  # fmt: skip


class LinearCrossEntropyLoss(_WeightedLoss):
    """The cross entropy of the logits that a linear layer of its own makes of the input.

    Args:
        in_features: the size of an input
        num_classes: how many classes
        out_features: further dimensions of targets; default none
        bias: whether logits have a bias; default ``False``
        weight, reduction, label_smoothing: as in :class:`CrossEntropyLoss`
        ignore_index: a class number that counts nothing; default -100
        options: how PyTorch cuts the batch to save memory; results do not depend on it

    >>> nn.LinearCrossEntropyLoss(2, 3)(eg.zeros(1, 2), eg.tensor([0]))
    tensor(1.0986, grad_fn=<MeanBackward0>)
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
        bias: bool = False, device: DeviceLike = None, dtype: DtypeLike = None,
        reduction: str = "mean", weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: object = None,
    ) -> None:  # fmt: skip
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        count = math.prod(out_features, start=num_classes)
        self.linear: Linear = Linear(in_features, count, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*shape, self.linear.in_features), target,
            linear_bias=None if bias is None else bias.reshape(shape), weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing, options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class HingeEmbeddingLoss(_Loss):
    """Small distances for targets 1, distances beyond a margin for targets -1.

    ``x`` for target 1, ``max(0, margin - x)`` for target -1.

    Args:
        margin: default 1.0
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    >>> nn.HingeEmbeddingLoss()(eg.tensor([0.5, 0.5]), eg.tensor([1, -1]))
    tensor(0.5000)
    """

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """The logistic loss of targets 1 and -1.

    ``log(1 + exp(-target * input))``.

    Args:
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    >>> nn.SoftMarginLoss()(eg.tensor([0.0, 2.0]), eg.tensor([1.0, 1.0]))
    tensor(0.4100)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """A hinge loss of several right classes.

    Args:
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    Input (N, C) or (C), targets of the same shape: class numbers up to the first -1.

    >>> nn.MultiLabelMarginLoss()(eg.tensor([0.1, 0.2, 0.4, 0.8]), eg.tensor([3, 0, -1, 1]))
    tensor(0.8500)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The logistic loss of several right classes.

    Args:
        weight: what each class counts, (C)
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    Input (N, C) of scores, targets (N, C) of zeros and ones.

    >>> nn.MultiLabelSoftMarginLoss()(eg.zeros(1, 2), eg.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )


class CosineEmbeddingLoss(_Loss):
    """Makes pairs point the same way (target 1) or not (target -1).

    ``1 - cos`` for target 1, ``max(0, cos - margin)`` for target -1.

    Args:
        margin: between -1 and 1; default 0.0
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    Inputs (N, D) and (N, D), target (N).

    >>> a, b = eg.tensor([[1.0, 0.0]]), eg.tensor([[0.0, 1.0]])
    >>> nn.CosineEmbeddingLoss()(a, b, eg.tensor([1]))
    tensor(1.)
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MarginRankingLoss(_Loss):
    """One input ranked above the other by a margin.

    ``max(0, -target * (input1 - input2) + margin)``.

    Args:
        margin: default 0.0
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    >>> nn.MarginRankingLoss()(eg.tensor([1.0]), eg.tensor([3.0]), eg.tensor([1.0]))
    tensor(2.)
    """

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MultiMarginLoss(_WeightedLoss):
    """A hinge loss of one right class.

    Args:
        p: power of what is lacking, 1 (default) or 2
        margin: default 1.0
        weight: what each class counts, (C)
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``
        size_average, reduce: former spellings of ``reduction``

    Input (N, C) of scores, targets (N) of class numbers.

    >>> nn.MultiMarginLoss()(eg.tensor([[0.1, 0.2, 0.4, 0.8]]), eg.tensor([3]))
    tensor(0.3250)
    """

    margin: float

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise ValueError(
                f"MultiMarginLoss: expected weight to be None or 1D tensor, got "
                f"{weight.ndim}D instead"
            )
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight,
            reduction=self.reduction,
        )  # fmt: skip


def _require_margin(loss: _Loss, margin: float) -> None:
    if margin <= 0:
        raise ValueError(
            f"{type(loss).__name__}: expected margin to be greater than 0, got {margin} instead"
        )


class TripletMarginLoss(_Loss):
    """An anchor closer to the positive than to the negative by a margin."""

    swap: bool
    eps: float
    p: float
    margin: float

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        _require_margin(self, margin)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class TripletMarginWithDistanceLoss(_Loss):
    """The triplet loss with a distance of one's own.

    Args:
        distance_function: of two tensors; default :class:`PairwiseDistance`
        margin: default 1.0
        swap: use the smaller of ``d(a, n)`` and ``d(p, n)``; default ``False``
        reduction: ``"mean"`` (default), ``"sum"`` or ``"none"``

    >>> loss = nn.TripletMarginWithDistanceLoss(
    ...     distance_function=lambda a, b: (a - b).abs().sum(-1)
    ... )
    >>> loss(eg.zeros(1, 2), eg.ones(1, 2), eg.zeros(1, 2))
    tensor(3.)
    """

    swap: bool
    margin: float

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0, swap: bool = False, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction=reduction)
        _require_margin(self, margin)
        self.distance_function: Callable[[Tensor, Tensor], Tensor] = (
            PairwiseDistance() if distance_function is None else distance_function
        )
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction,
        )  # fmt: skip


class CTCLoss(_Loss):
    """The likelihood of a label sequence over all its alignments."""

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip


class CosineSimilarity(TensorModule):
    """The cosine of the angle between vectors."""

    eps: float
    dim: int

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(TensorModule):
    """The p-norm of the difference between vectors.

    Args:
        p: the norm; default 2.0
        eps: added to the difference; default 1e-6
        keepdim: keep the last dimension with extent 1; default ``False``

    Inputs (N, D) or (D).

    >>> nn.PairwiseDistance()(eg.tensor([[3.0, 0.0]]), eg.tensor([[0.0, 4.0]]))
    tensor([5.])
    """

    keepdim: bool
    eps: float
    norm: float

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
