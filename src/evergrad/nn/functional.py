"""The functions of neural networks, under PyTorch's names.

Everything here is defined in :mod:`evergrad.ops`; this module only gathers it.
"""

from typing import TYPE_CHECKING

from evergrad.core.autocast import under_autocast
from evergrad.lazy import known_names
from evergrad.nn.fractional_pool import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
)
from evergrad.nn.multihead_function import multi_head_attention_forward
from evergrad.ops.composite.activations import (
    celu,
    celu_,
    elu,
    elu_,
    gelu,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    selu,
    selu_,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
    threshold_,
)
from evergrad.ops.composite.adaptive_pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
)
from evergrad.ops.composite.attention import scaled_dot_product_attention
from evergrad.ops.composite.classification_losses import (
    cross_entropy,
    multi_margin_loss,
    multilabel_margin_loss,
    nll_loss,
)
from evergrad.ops.composite.ctc import ctc_loss
from evergrad.ops.composite.distance import cosine_similarity, normalize, pairwise_distance, pdist
from evergrad.ops.composite.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from evergrad.ops.composite.embedding import embedding, embedding_bag
from evergrad.ops.composite.grid_sample import affine_grid, grid_sample
from evergrad.ops.composite.interpolate import (
    interpolate,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from evergrad.ops.composite.linear_cross_entropy import linear_cross_entropy
from evergrad.ops.composite.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from evergrad.ops.composite.norms import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from evergrad.ops.composite.padding import pad
from evergrad.ops.composite.pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from evergrad.ops.composite.products import bilinear
from evergrad.ops.composite.unfold import fold, unfold
from evergrad.ops.reference import DOCS
from evergrad.ops.rows.conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from evergrad.ops.rows.elementwise.basic import sigmoid
from evergrad.ops.rows.elementwise.trigonometry import tanh
from evergrad.ops.rows.indexing.functions import one_hot
from evergrad.ops.rows.matmul import linear
from evergrad.ops.rows.movement.rearrange import channel_shuffle, pixel_shuffle, pixel_unshuffle
from evergrad.ops.surface.public import accepting_out

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid", "alpha_dropout",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "elu", "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "gaussian_nll_loss", "gelu", "glu", "grid_sample",
    "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "hardtanh_", "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "linear", "linear_cross_entropy",
    "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    "margin_ranking_loss",    "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
    "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish", "mse_loss",
    "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance",
    "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6",
    "relu_", "rms_norm", "rrelu", "rrelu_", "scaled_dot_product_attention", "selu", "selu_",
    "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus",
    "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_",
    "triplet_margin_loss", "triplet_margin_with_distance_loss", "unfold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip

# Functions that state a policy look at autocast's mode; the others stay as they are.
for _name in __all__:
    _function = globals()[_name]
    _function.__doc__ = DOCS.get(f"F.{_name}", DOCS.get(_name, _function.__doc__))
    globals()[_name] = under_autocast(_function)
# PyTorch's native functions among them.
for _name in (
    "avg_pool2d", "avg_pool3d", "gelu", "hardshrink", "linear", "logsigmoid", "softplus",
    "softshrink",
):  # fmt: skip
    globals()[_name] = _function = accepting_out(globals()[_name])
    _function.__module__ = __name__  # by which it is pickled

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
