"""Helpers around modules: clipping, flat vectors, sequences, parametrizations."""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_modules as _lazy_modules
from evergrad.nn.utils import parametrizations, parametrize, rnn, stateless
from evergrad.nn.utils.clip import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from evergrad.nn.utils.float8 import Float8Linear, store_float8_
from evergrad.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from evergrad.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from evergrad.nn.utils.skip import skip_init
from evergrad.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from evergrad.nn.utils.vector import parameters_to_vector, vector_to_parameters
from evergrad.nn.utils.weight_norm import remove_weight_norm, weight_norm

if TYPE_CHECKING:
    from evergrad.nn.utils import prune as prune
else:
    __getattr__ = _lazy_modules("evergrad.nn.utils", "prune")

__all__ = [
    "Float8Linear",
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "store_float8_",
    "vector_to_parameters",
    "weight_norm",
]
