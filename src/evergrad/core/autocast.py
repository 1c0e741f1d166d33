"""Autocast: which ops compute in a lower precision and which in float32 while the mode is on.

The mode is a field of :class:`~evergrad.core.state.State`. The policy of rows is applied in
``bind``, which costs nothing while the mode is off; functions of several rows are wrapped by
:func:`under_autocast` when they become public. The lists are those of PyTorch's CPU backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import dtype
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
Convert = Callable[[Tensor], Tensor]

LOWER_ROWS = frozenset({"matmul", "linear"})
FLOAT32_ROWS = frozenset({"prod"})

LOWER_FUNCTIONS = frozenset({
    "addbmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "prelu", "scaled_dot_product_attention", "vecdot",
})  # fmt: skip

FLOAT32_FUNCTIONS = frozenset({
    "adaptive_avg_pool3d", "adaptive_max_pool3d", "avg_pool3d", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "cdist", "cholesky", "cholesky_ex", "cholesky_inverse",
    "cholesky_solve", "cond", "cosine_embedding_loss", "cross_entropy", "ctc_loss", "eig", "eigh",
    "eigvals", "eigvalsh", "fft", "fft2", "fftn", "fractional_max_pool2d", "fractional_max_pool3d",
    "geqrf", "grid_sample", "hfft", "hinge_embedding_loss", "householder_product", "huber_loss",
    "ifft", "ifft2", "ifftn", "ihfft", "inv", "inv_ex", "inverse", "irfft", "irfft2", "irfftn",
    "kl_div", "l1_loss", "local_response_norm", "lstsq", "lu", "lu_solve", "margin_ranking_loss",
    "matrix_rank", "max_pool3d", "max_unpool2d", "max_unpool3d", "mse_loss", "multi_margin_loss",
    "multilabel_margin_loss", "nanquantile", "nll_loss", "orgqr", "ormqr", "pinverse",
    "poisson_nll_loss", "polar", "qr", "quantile", "rfft", "rfft2", "rfftn", "smooth_l1_loss",
    "soft_margin_loss", "solve", "stft", "svd", "svdvals", "tensorinv", "tensorsolve", "trace",
    "triangular_solve", "triplet_margin_loss", "view_as_complex",
})  # fmt: skip

PROMOTED_FUNCTIONS = frozenset({"index_copy"})

# Products that PyTorch does not cast, though their rows have a policy.
PLAIN_FUNCTIONS = frozenset({"addmv", "bilinear", "dot", "mv", "vdot"})


class Autocast:
    """The active mode: the lower precision, and a cache of weights cast to it.

    The cache lives as long as the outermost block, so that a weight used several times is cast
    once and its gradient comes back through one cast.
    """

    __slots__ = ("cache", "dtype")

    def __init__(self, dtype: dtype, cache: dict[Any, tuple[Tensor, int, Tensor]] | None) -> None:
        self.dtype = dtype
        self.cache = cache

    def convert_arguments(self, row: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a row, cast by its policy; the same tuple if nothing changes."""
        if row in LOWER_ROWS:
            convert = self.lowered
        elif row in FLOAT32_ROWS:
            convert = widened
        else:
            return args
        converted = tuple([convert(a) if isinstance(a, Tensor) else a for a in args])
        changed = any(a is not b for a, b in zip(args, converted, strict=True))
        return converted if changed else args

    def lowered(self, tensor: Tensor) -> Tensor:
        """The tensor in the lower precision, if it is eligible."""
        if not _is_eligible(tensor) or tensor.dtype is self.dtype:
            return tensor
        if self.cache is None or not _is_weight(tensor):
            return cast(tensor, self.dtype)
        key = (id(tensor), self.dtype)
        held = self.cache.get(key)
        if held is None or held[1] != tensor._storage.version:
            held = self.cache[key] = (tensor, tensor._storage.version, cast(tensor, self.dtype))
        return held[2]


def _is_eligible(tensor: Tensor) -> bool:
    kind = tensor.dtype
    return kind.is_floating_point and kind is not dtypes.float64


def _is_weight(tensor: Tensor) -> bool:
    """A leaf that requires grad; values of a trace have no identity to cache by."""
    state = STATE.get()
    return (
        state.grad
        and state.trace is None
        and tensor.dtype is dtypes.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and tensor._view is None
    )


def widened(tensor: Tensor) -> Tensor:
    """The tensor in float32, if it is eligible."""
    return cast(tensor, dtypes.float32) if _is_eligible(tensor) else tensor


def as_lowered(tensor: Tensor) -> Tensor:
    """A result in the lower precision, if the mode is on."""
    autocast = STATE.get().autocast
    return tensor if autocast is None else autocast.lowered(tensor)


def addend_for(product: Tensor, addend: Tensor) -> Tensor:
    """The addend of a product, lowered if autocast has lowered the product."""
    autocast = STATE.get().autocast
    if autocast is None or product.dtype is not autocast.dtype:
        return addend
    return autocast.lowered(addend)


def under_autocast(name: str, function: F) -> F:
    """The function wrapped with its autocast policy; itself if it has none."""
    policy = _POLICIES.get(name)
    if policy is None:
        return function

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        autocast = STATE.get().autocast
        if autocast is None:
            return function(*args, **kwargs)
        convert = policy(autocast, args)
        with using(autocast=None):
            return function(
                *[_converted(convert, a) for a in args],
                **{key: _converted(convert, value) for key, value in kwargs.items()},
            )

    return guarded  # type: ignore[return-value]


def _converted(convert: Convert, value: Any) -> Any:
    if isinstance(value, Tensor):
        return convert(value)
    if type(value) in (list, tuple):
        return type(value)(_converted(convert, v) for v in value)
    return value


def _to_widest(autocast: Autocast, args: tuple[Any, ...]) -> Convert:
    """Float32 if one argument has it, else the lower precision."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    has_float32 = any(t.dtype is dtypes.float32 for t in tensors)
    return widened if has_float32 else autocast.lowered


_POLICIES: dict[str, Callable[[Autocast, tuple[Any, ...]], Convert]] = {
    **dict.fromkeys(LOWER_FUNCTIONS, lambda autocast, args: autocast.lowered),
    **dict.fromkeys(FLOAT32_FUNCTIONS, lambda autocast, args: widened),
    **dict.fromkeys(PROMOTED_FUNCTIONS, _to_widest),
    **dict.fromkeys(PLAIN_FUNCTIONS, lambda autocast, args: lambda tensor: tensor),
}
