"""The warnings of PyTorch's functions that programs see, silence or turn into errors.

A row gives a function the rule by which it warns: called with its arguments, the rule returns the
message or None. The facade puts it around the function, so that evergrad's own callers pay
nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.source_location import user_stacklevel
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

Rule = Callable[..., str | None]

_COPY = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
    "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor)."
)
_QR = (
    "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch "
    "release.\nThe boolean parameter 'some' has been replaced with a string parameter 'mode'.\n"
    "Q, R = torch.qr(A, some)\nshould be replaced with\n"
    "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')"
)
_LU = (
    "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and "
    "will be removed in a future PyTorch release.\nLU, pivots = torch.lu(A, compute_pivots)\n"
    "should be replaced with\nLU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\n"
    "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\nshould be replaced with\n"
    "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)"
)
_CHOLESKY = (
    "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a "
    "future PyTorch release.\nL = torch.cholesky(A)\nshould be replaced with\n"
    "L = torch.linalg.cholesky(A)\nand\nU = torch.cholesky(A, upper=True)\n"
    "should be replaced with\nU = torch.linalg.cholesky(A).mH\n"
    "This transform will produce equivalent results for all valid (symmetric positive definite) "
    "inputs."
)
_TRIANGULAR = (
    "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand will be "
    "removed in a future PyTorch release.\n"
    "torch.linalg.solve_triangular has its arguments reversed and does not return a copy of one "
    "of the inputs.\nX = torch.triangular_solve(B, A).solution\nshould be replaced with\n"
    "X = torch.linalg.solve_triangular(A, B)."
)
_STFT = (
    "stft with return_complex=False is deprecated. In a future pytorch release, stft will return "
    "complex tensors for all inputs, and return_complex=False will raise an error.\n"
    "Note: you can still call torch.view_as_real on the complex output to recover the old return "
    "format."
)
_NESTED = (
    "The PyTorch API of nested tensors is in prototype stage and will change in the near future. "
    "We recommend specifying layout=torch.jagged when constructing a nested tensor, as this "
    "layout receives active development, has better operator coverage, and works with "
    "torch.compile."
)
_REENTRANT = (
    "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in "
    "PyTorch 2.9, calling checkpoint without use_reentrant will raise an exception. "
    "use_reentrant=False is recommended, but if you need to preserve the current default "
    "behavior, you can pass use_reentrant=True. Refer to docs for more details on the differences "
    "between the two variants."
)
_SEQUENTIAL = (
    "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed "
    "explicitly. In version 2.9 we will raise an exception if use_reentrant is not passed. "
    "use_reentrant=False is recommended, but if you need to preserve the current default "
    "behavior, you can pass use_reentrant=True. Refer to docs for more details on the differences "
    "between the two variants."
)
_NO_INPUT = "None of the inputs have requires_grad=True. Gradients will be None"
_MESHGRID = (
    "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument."
)
_WHERE = (
    "where received a uint8 condition tensor. This behavior is deprecated and will be removed in "
    "a future version of PyTorch. Use a boolean condition instead."
)
_CSR = (
    "Sparse CSR tensor support is in beta state. If you miss a functionality in the sparse tensor "
    "support, please submit a feature request to https://github.com/pytorch/pytorch/issues."
)


def _always(message: str) -> Rule:
    return lambda *args, **kwargs: message


def _meshgrid(*tensors: object, indexing: str | None = None) -> str | None:
    return _MESHGRID if indexing is None else None


def _tensor(data: object, *args: object, **kwargs: object) -> str | None:
    return _COPY if isinstance(data, Tensor) else None


def _gumbel(
    logits: object, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> str | None:
    return "`eps` parameter is deprecated and has no effect." if eps != 1e-10 else None


def _stft(*args: object, return_complex: bool | None = None, **kwargs: object) -> str | None:
    return _STFT if return_complex is False else None


def _nested(tensor_list: object, *, layout: object = None, **kwargs: object) -> str | None:
    return None if "jagged" in str(layout) else _NESTED


def _where(condition: object, *args: object, **kwargs: object) -> str | None:
    is_byte = isinstance(condition, Tensor) and condition.dtype is dtypes.uint8
    return _WHERE if is_byte else None


def _checkpoint(
    function: object, *args: object, use_reentrant: bool | None = None, **kwargs: object
) -> str | None:
    if use_reentrant is None:
        return _REENTRANT
    has_input = any(isinstance(a, Tensor) and a.requires_grad for a in args)
    return _NO_INPUT if use_reentrant and not has_input else None


def _sequential(
    functions: object, segments: int, input: object, use_reentrant: bool | None = None,
    **kwargs: object,
) -> str | None:  # fmt: skip
    return _SEQUENTIAL if use_reentrant is None else None


def _degrees(name: str) -> Rule:
    def rule(
        input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: Any = None, **kwargs: object,
    ) -> str | None:  # fmt: skip
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        lost = (1 if unbiased is None else int(unbiased)) if correction is None else correction
        dims = range(input.ndim) if dim is None or dim == () else dim
        count = 1
        for d in (dims,) if isinstance(dims, int) else dims:
            count *= input.shape[d] if input.ndim else 1
        if count > lost or not input.numel():
            return None
        return (
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel)."
        )

    return rule


_RULES: dict[str, Rule] = {
    "torch.meshgrid": _meshgrid,
    "torch.functional.meshgrid": _meshgrid,
    "torch.tensor": _tensor,
    "torch.qr": _always(_QR),
    "torch.lu": _always(_LU),
    "torch.cholesky": _always(_CHOLESKY),
    "torch.triangular_solve": _always(_TRIANGULAR),
    "torch.stft": _stft,
    "torch.where": _where,
    "torch.var": _degrees("var"),
    "torch.std": _degrees("std"),
    "torch.var_mean": _degrees("var_mean"),
    "torch.std_mean": _degrees("std_mean"),
    "torch.sparse_csr_tensor": _always(_CSR),
    "torch.nested.nested_tensor": _nested,
    "torch.nn.functional.gumbel_softmax": _gumbel,
    "torch.utils.checkpoint.checkpoint": _checkpoint,
    "torch.utils.checkpoint.checkpoint_sequential": _sequential,
}


def with_warning(name: str, function: Any) -> Any:
    """The function under that name, which warns as PyTorch's does; itself if that one does not."""
    rule = _RULES.get(name)
    return function if rule is None else _warning(function, rule)


def _warning(function: AnyFunction, rule: Rule) -> AnyFunction:
    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        try:
            message = rule(*args, **kwargs)
        except (TypeError, IndexError, AttributeError):  # the function itself refuses such a call
            message = None
        if message is not None:
            warnings.warn(message, UserWarning, stacklevel=user_stacklevel())
        return function(*args, **kwargs)

    return call
