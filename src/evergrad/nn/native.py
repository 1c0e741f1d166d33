"""Functions of ``nn.functional`` that PyTorch also offers at the top, in the form it has there.

A reduction is a number: 0 for none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.ops.composite.activations import drawn_rrelu
from evergrad.ops.surface.public import FUNCTIONS, accepting_out

if TYPE_CHECKING:
    from evergrad.core.types import DimsLike, DtypeLike, GeneratorLike, Ints

_REDUCTIONS = ("none", "mean", "sum")
_INTERPOLATIONS = ("bilinear", "nearest", "bicubic")
_BAGS = ("sum", "mean", "max")
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
    log_probs: Tensor, targets: Tensor, input_lengths: object, target_lengths: object,
    blank: int = 0, reduction: int = 0, zero_infinity: bool = False,
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


def adaptive_max_pool1d(input: Tensor, output_size: Ints) -> tuple[Tensor, Tensor]:
    """Maxima over as many windows as the output has places, and where they were."""
    return F.adaptive_max_pool1d_with_indices(input, output_size)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Ints, stride: Ints = (), padding: Ints | str = 0,
    dilation: Ints = 1, ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The largest number in each window, and where it was."""
    return F.max_pool1d_with_indices(
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


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    generator: GeneratorLike = None,
) -> Tensor:  # fmt: skip
    """``leaky_relu`` whose slope is drawn for each element while training, else in the middle."""
    return drawn_rrelu(input, lower, upper, training, False, generator)


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    generator: GeneratorLike = None,
) -> Tensor:  # fmt: skip
    """``rrelu`` in place."""
    return drawn_rrelu(input, lower, upper, training, True, generator)


@accepting_out
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


grid_sampler_2d = grid_sampler
grid_sampler_3d = grid_sampler


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution over the first dimension of ``(time, batch, channels)``."""
    found = F.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return found.permute(2, 0, 1)


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The sum (0), mean (1) or maximum (2) of the rows of each bag.

    PyTorch gives three more tensors for its backward pass: which bag each index belongs to, how
    many there are in each bag, and the rows of the maxima, which here is empty.
    """
    found = F.embedding_bag(
        indices, weight, offsets, None, 2.0, scale_grad_by_freq, _BAGS[mode], sparse,
        per_sample_weights, include_last_offset, padding_idx,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    ends = FUNCTIONS["cat"]([starts[1:], starts.new_full((1,), indices.numel())])
    bags = FUNCTIONS["repeat_interleave"](FUNCTIONS["arange"](len(starts)), ends - starts)
    return found, bags, ends - starts, starts.new_empty(0)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Shorten, in place, the rows that are looked up and longer than ``max_norm``."""
    F.embedding(indices, input, max_norm=max_norm, norm_type=norm_type)
    return input


# -- normalization, with the statistics that PyTorch's backward pass reads -----------------------


def _statistics(input: Tensor, dims: DimsLike, eps: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The mean and one over the standard deviation."""
    x = input.float() if input.dtype.itemsize < 4 else input
    mean = x.mean(dims, keepdim=keepdim)
    inverse = (x.var(dims, unbiased=False, keepdim=keepdim) + eps).rsqrt()
    return mean.to(input.dtype), inverse.to(input.dtype)


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Layer normalization, the mean and one over the standard deviation."""
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    found = F.layer_norm(input, tuple(normalized_shape), weight, bias, eps)
    return found, *_statistics(input.detach(), dims, eps, True)


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int,
    group: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Group normalization, the mean and one over the standard deviation of each group."""
    found = F.group_norm(input, group, weight, bias, eps)
    return found, *_statistics(input.reshape(N, group, C // group * HxW), (2,), eps, False)


@accepting_out
def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Batch normalization, the mean and one over the standard deviation in training."""
    found = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return found, input.new_empty(0), input.new_empty(0)
    dims = (0, *range(2, input.ndim))
    return found, *_statistics(input.detach(), dims, eps, False)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """What dropout keeps, scaled, and where it does."""
    if train is False or p == 0:
        return input.clone(), FUNCTIONS["ones_like"](input, dtype=dtypes.bool_)
    kept = F.dropout(FUNCTIONS["ones_like"](input), p, True)
    return input * kept, kept != 0


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of several groups, taken in turn."""
    return F.channel_shuffle(input, groups)


@accepting_out
def native_norm(
    input: Tensor,
    p: object = 2,
    dim: DimsLike = None,
    keepdim: bool = False,
    dtype: DtypeLike = None,
) -> Tensor:
    """The p-norm of a tensor."""
    return input.norm(p, dim, keepdim, dtype=dtype)
