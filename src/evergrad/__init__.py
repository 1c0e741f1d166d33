"""evergrad: tensors, exact gradients and accounted memory, with PyTorch's names.

This module only gathers what others define: the functions exposed by the modules of
``evergrad.ops``, element types, modes and random state. Packages below (``evergrad.nn``,
``evergrad.optim``, ...) are imported when they are first used as attributes.
"""

import importlib as _importlib
import importlib.util as _importlib_util
import math as _math
import os as _os
from typing import Any as _Any

import evergrad.ops as _ops  # noqa: F401 - its modules enter rows and functions
from evergrad.autograd.modes import (
    enable_grad,
    inference_mode,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from evergrad.core import dtypes as _dtypes
from evergrad.core.device import Device as device  # noqa: N813 - PyTorch's spelling
from evergrad.core.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types
from evergrad.core.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    jagged,
    layout,
    memory_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from evergrad.core.meta import ignore_writes as _ignore_writes
from evergrad.core.printing import set_printoptions
from evergrad.core.rng.default_generator import (
    Generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from evergrad.core.rng.default_generator import default_generator as _default_generator
from evergrad.core.settings import (
    are_deterministic_algorithms_enabled,
    get_default_device,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    set_default_device,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    use_deterministic_algorithms,
)
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.core.vmap import vmap
from evergrad.extension import provided_by as _provided_by
from evergrad.lazy import lazy_names as _lazy_names
from evergrad.lazy import unknown_name as _unknown_name
from evergrad.ops.surface.public import FUNCTIONS as _FUNCTIONS
from evergrad.ops.surface.storages import TypedStorage, UntypedStorage

__version__ = "0.2.0"

# Names of PyTorch that only answer (evergrad.cuda, evergrad.jit, ...) have a folder of their own.
__path__.append(_os.path.join(__path__[0], "compat", "torch"))

__all__ = [
    "Generator",
    "Size",
    "Tensor",
    "TypedStorage",
    "UntypedStorage",
    "are_deterministic_algorithms_enabled",
    "can_cast",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "default_generator",
    "device",
    "dtype",
    "e",
    "enable_grad",
    "finfo",
    "get_default_device",
    "get_default_dtype",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "get_rng_state",
    "iinfo",
    "inf",
    "inference_mode",
    "initial_seed",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "jagged",
    "layout",
    "manual_seed",
    "memory_format",
    "nan",
    "newaxis",
    "no_grad",
    "pi",
    "preserve_format",
    "promote_types",
    "seed",
    "set_default_device",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_grad_enabled",
    "set_num_interop_threads",
    "set_num_threads",
    "set_printoptions",
    "set_rng_state",
    "sparse_bsc",
    "sparse_bsr",
    "sparse_coo",
    "sparse_csc",
    "sparse_csr",
    "strided",
    "use_deterministic_algorithms",
    "vmap",
]

_ignore_writes()

pi = _math.pi
e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None

# Functions of packages that are imported when one of them is first used: {package: names}.
_LAZY = {
    "sparse.construct": (
        "sparse_bsc_tensor",
        "sparse_bsr_tensor",
        "sparse_compressed_tensor",
        "sparse_coo_tensor",
        "sparse_csc_tensor",
        "sparse_csr_tensor",
    ),
    "amp": ("GradScaler", "autocast"),
    "amp.autocast_mode": (
        "clear_autocast_cache",
        "get_autocast_dtype",
        "is_autocast_cache_enabled",
        "is_autocast_enabled",
        "set_autocast_cache_enabled",
        "set_autocast_dtype",
        "set_autocast_enabled",
    ),
    "compiler": ("compile",),
    "cuda": ("Event", "OutOfMemoryError", "Stream"),
    "_root": (
        "AliasDb",
        "DispatchKey",
        "PyTorchFileReader",
        "PyTorchFileWriter",
        "ScriptFunction",
        "ScriptModule",
        "SymBool",
        "SymFloat",
        "SymInt",
        "_assert",
        "_assert_async",
        "_check",
        "_check_index",
        "_check_is_size",
        "_check_not_implemented",
        "_check_tensor_all",
        "_check_tensor_all_with",
        "_check_type",
        "_check_value",
        "_check_with",
        "_convert_indices_from_coo_to_csr",
        "_convert_indices_from_csr_to_coo",
        "_is_functional_tensor",
        "_shape_as_tensor",
        "_softmax_backward_data",
        "get_device_module",
        "get_deterministic_debug_mode",
        "is_deterministic_algorithms_warn_only_enabled",
        "is_warn_always_enabled",
        "set_deterministic_debug_mode",
        "set_warn_always",
        "sym_float",
        "sym_fresh_size",
        "sym_int",
        "sym_ite",
        "sym_max",
        "sym_min",
        "sym_not",
        "sym_sqrt",
        "sym_sum",
    ),
    "_aten": (
        "_chunk_cat",
        "_native_batch_norm_legit",
        "_segment_reduce",
        "_unsafe_masked_index",
        "_unsafe_masked_index_put_accumulate",
    ),
    "func.control_flow": ("cond", "while_loop"),
    "futures": ("Future",),
    "io": ("load", "save"),
    "nn.native": (
        "adaptive_max_pool1d",
        "affine_grid_generator",
        "binary_cross_entropy_with_logits",
        "constant_pad_nd",
        "conv_tbc",
        "convolution",
        "cosine_embedding_loss",
        "ctc_loss",
        "embedding_bag",
        "embedding_renorm_",
        "feature_alpha_dropout",
        "grid_sampler",
        "grid_sampler_2d",
        "grid_sampler_3d",
        "hinge_embedding_loss",
        "instance_norm",
        "kl_div",
        "margin_ranking_loss",
        "max_pool1d_with_indices",
        "native_batch_norm",
        "native_channel_shuffle",
        "native_dropout",
        "native_group_norm",
        "native_layer_norm",
        "native_norm",
        "norm_except_dim",
        "poisson_nll_loss",
        "rrelu",
        "rrelu_",
        "triplet_margin_loss",
    ),
    "nn.recurrent_function": (
        "gru",
        "gru_cell",
        "lstm",
        "lstm_cell",
        "rnn_relu",
        "rnn_relu_cell",
        "rnn_tanh",
        "rnn_tanh_cell",
    ),
}
# Modules that register functions for lower layers, imported when one of these is first called.
_provided_by(
    {
        "evergrad._operators": ("aten_operator",),
        "evergrad.array_api": ("array_namespace",),
        "evergrad.autograd.custom_op": ("function_equation",),
        "evergrad.compiler.api": ("compiled_function",),
        "evergrad.compiler.eager.composites": ("native_composite",),
        "evergrad.compiler.eager.elementwise": ("elementwise_kernel",),
        "evergrad.compiler.eager.reductions": ("reduction_kernel",),
        "evergrad.compiler.eager.checksum": ("memory_hash",),
        "evergrad.compiler.eager.items": ("item_kernel",),
        "evergrad.compiler.eager.lanes": ("lane_kernel",),
        "evergrad.compiler.eager.draws": ("normal_blocks", "permuted"),
        "evergrad.compiler.eager.transposed_copy": ("transposed_copy",),
        "evergrad.compiler.eager.triangular": ("triangular_solver",),
        "evergrad.compiler.eager.softmax": ("softmax_kernel",),
        "evergrad.compiler.eager.graph": ("graph_of_row", "native_graph"),
        "evergrad.compiler.eager.update": ("native_update",),
        "evergrad.compiler.eager.update_loop": ("update_loop",),
        "evergrad.compiler.runtime.thread_pool": ("set_flushing",),
        "evergrad.core.symbolic_numbers": ("number_arithmetic", "number_comparison"),
        "evergrad.distributed.algorithms.join": ("join_context",),
        "evergrad.distributed.evaluate": (
            "communicate",
            "drain_communication",
            "finish_communication",
            "start_communication",
        ),
        "evergrad.distributed.process_group": ("process_group",),
        "evergrad.distributed.sync_batch_norm": ("sync_batch_norm",),
        "evergrad.distributed.reducer": (
            "broadcast_coalesced",
            "gradient_reducer",
            "ranks_with_input",
        ),
        "evergrad.memory.html": ("memory_fragment", "memory_page"),
        "evergrad.compiler.explain.report": ("plan_fragment",),
        "evergrad.ops.surface.notebook": ("tensor_fragment",),
        "evergrad.overrides": ("default_torch_function", "wrap_subclass"),
        "evergrad.memory.reports": ("memory_report",),
        "evergrad.nested.attention": ("ragged_attention",),
        "evergrad.nested.jagged_rows": ("jagged_row",),
        "evergrad.nested.loss": ("ragged_cross_entropy",),
        "evergrad.nn.compiled": ("optimized_module",),
        "evergrad.nn.hooks": ("global_module_hooks", "registration_hooks"),
        "evergrad.optim.optimizer": ("global_optimizer_hooks",),
        "evergrad.ragged.batch": ("ragged_value",),
        "evergrad.sparse.compressed_rows": ("compressed_row",),
        "evergrad.sparse.convert": ("coordinate_pattern", "sparse_mask", "to_sparse"),
        "evergrad.sparse.lookup": ("sparse_lookup", "sparse_rows"),
        "evergrad.sparse.products": ("sparse_times_dense",),
        "evergrad.sparse.rows": ("coo_row",),
    }
)
_LAZY_NAMES = {_name for _names in _LAZY.values() for _name in _names}
_find_lazy = _lazy_names("evergrad", _LAZY)
# Methods that write in place and are functions as well, as in ``sigmoid_(x)``.
_IN_PLACE = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_",
    "arctanh_", "as_strided_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_",
    "clamp_max_", "clamp_min_", "clip_", "conj_physical_", "cos_", "cosh_", "deg2rad_", "erf_",
    "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "gcd_", "i0_",
    "index_put_", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_", "nan_to_num_",
    "neg_", "negative_", "rad2deg_", "reciprocal_", "resize_as_", "round_", "rsqrt_",
    "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_", "trunc_", "xlogy_",
    "zero_",
)  # fmt: skip
# Packages whose settings programs reach through a private name.
_PRIVATE_PACKAGES = {
    "_C", "__config__", "__future__", "_classes", "_dynamo", "_inductor", "_jit_internal",
    "_operators", "_tensor", "_tensor_str", "_utils",
}  # fmt: skip


def __getattr__(name: str) -> _Any:
    """The default generator of the calling thread; packages and their names, on first use."""
    if name == "default_generator":
        return _default_generator()
    if name in _LAZY_NAMES:
        return _find_lazy(name)
    if name.startswith("_foreach_"):
        return getattr(_importlib.import_module("evergrad._foreach"), name)
    is_public = not name.startswith("_") or name in _PRIVATE_PACKAGES
    if is_public and _importlib_util.find_spec(f"evergrad.{name}") is not None:
        return _importlib.import_module(f"evergrad.{name}")
    raise _unknown_name("evergrad", name, _LAZY_NAMES)


for _table in (_dtypes.BY_NAME, _dtypes.ALIASES, _FUNCTIONS):
    globals().update(_table)
    __all__.extend(_table)
for _name in _IN_PLACE:
    globals()[_name] = getattr(Tensor, _name)
__all__.extend((*_IN_PLACE, *(_name for _name in _LAZY_NAMES if not _name.startswith("_"))))
