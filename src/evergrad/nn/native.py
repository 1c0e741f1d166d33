"""Functions of ``nn.functional`` that PyTorch also offers at the top, in the form it has there.

A reduction is a number: 0 for none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F

_REDUCTIONS = ("none", "mean", "sum")
_INTERPOLATIONS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _named(reduction: int) -> str:
    if reduction not in (0, 1, 2):
        raise ValueError(f"{reduction} is not a valid value for reduction: 0, 1 or 2")
    return _REDUCTIONS[reduction]


# -- losses -------------------------------------------------------------------------------------


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:  # fmt: skip
    """Binary cross-entropy of logits."""
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_named(reduction), pos_weight=pos_weight
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """How far pairs are from the angle their target says."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_named(reduction))


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: int = 0, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Connectionist temporal classification."""
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _named(reduction), zero_infinity
    )


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Tensor:
    """Distances, large where they should be small and small where they should be large."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_named(reduction))


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """The Kullback-Leibler divergence of log-probabilities from a target."""
    terms = F.kl_div(input, target, reduction="none", log_target=log_target)
    if _named(reduction) == "none":
        return terms
    return terms.mean() if reduction == 1 else terms.sum()


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """How far pairs are from the order their target says."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_named(reduction))


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """The negative log-likelihood of counts."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_named(reduction))


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, reduction: int = 0,
) -> Tensor:  # fmt: skip
    """How much farther the positive is from the anchor than the negative."""
    return F.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_named(reduction)
    )


# -- layers -------------------------------------------------------------------------------------


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """Maxima over as many windows as the output has places, and where they were."""
    return F.adaptive_max_pool1d_with_indices(input, output_size)  # type: ignore[no-any-return]


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest number in each window, and where it was."""
    return F.max_pool1d_with_indices(  # type: ignore[no-any-return]
        input, kernel_size, None if stride == () else stride, padding, dilation, ceil_mode
    )


def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """A convolution over as many dimensions as the weight has, or the transpose of one."""
    kind = f"conv_transpose{weight.ndim - 2}d" if transposed else f"conv{weight.ndim - 2}d"
    function = getattr(F, kind)
    further = (output_padding, groups, dilation) if transposed else (dilation, groups)
    return function(input, weight, bias, stride, padding, *further)  # type: ignore[no-any-return]


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """Further elements of one value around a tensor."""
    return F.pad(input, pad, "constant", value)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """Each channel of each sample, normalized."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Whole channels dropped so that mean and variance stay."""
    return F.feature_alpha_dropout(input, p, train)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one."""
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return v.norm(pow, others, keepdim=True)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """An image read at the places a grid says."""
    mode, padding = _INTERPOLATIONS[interpolation_mode], _PADDINGS[padding_mode]
    return F.grid_sample(input, grid, mode, padding, align_corners)


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """The places an affine map reads from."""
    return F.affine_grid(theta, size, align_corners)
