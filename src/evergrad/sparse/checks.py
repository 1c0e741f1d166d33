"""Gradient checks of functions of sparse tensors, and what has no form here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import ones
from evergrad.sparse.compressed import is_blocked
from evergrad.sparse.coo import SparseTensor
from evergrad.sparse.pattern import Patterned

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """A gradient check that takes functions of sparse tensors, made of one that takes dense ones.

    With ``masked=True`` only the elements that are stored are checked; else all places of the
    matrix are stored first.

    Args:
        gradcheck: such as ``autograd.gradcheck``

    >>> check = eg.sparse.as_sparse_gradcheck(eg.autograd.gradcheck)
    >>> x = eg.eye(2, dtype=eg.float64).to_sparse().requires_grad_()
    >>> check(lambda x: x.to_dense() * 2, (x,), masked=True)
    True
    """

    @functools.wraps(gradcheck)
    def check(func: AnyFunction, inputs: Any, **kwargs: Any) -> bool:
        masked = kwargs.pop("masked", False)
        given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        patterns = [
            (x if masked else _whole(x))
            if isinstance(x, Patterned) and not x.is_nested and x.requires_grad
            else None
            for x in given
        ]

        def on_elements(*values: object) -> Any:
            pairs = zip(patterns, values, strict=True)
            found = func(*[v if p is None else p.detach().with_elements(v) for p, v in pairs])
            if isinstance(found, tuple | list):
                return tuple(map(_dense, found))
            return _dense(found)

        leaves = [
            x if p is None else p.detach().live_elements().clone().requires_grad_()
            for p, x in zip(patterns, given, strict=True)
        ]
        return gradcheck(on_elements, tuple(leaves), **kwargs)

    return check


def _dense(value: object) -> Any:
    return value.to_dense() if isinstance(value, Patterned) and not value.is_nested else value


def _whole(x: Any) -> Any:
    """The same matrix with all of its places stored."""
    options = {} if isinstance(x, SparseTensor) else {"layout": x.layout}
    if not isinstance(x, SparseTensor) and is_blocked(x.layout):
        options["blocksize"] = x.blocksize()
    mask = ones(tuple(x.shape)).to_sparse(dense_dim=x.dense_dim() or None, **options)
    return x.detach().to_dense().sparse_mask(mask)


def spsolve(input: Tensor, other: Tensor, *, left: bool = True) -> NoReturn:
    """PyTorch's solution of sparse linear systems, which it has for CUDA alone: an error.

    Args:
        input: a sparse matrix in CSR
        other: the right side
        left: whether the matrix is on the left; default ``True``

    >>> try:
    ...     eg.sparse.spsolve(eg.eye(2).to_sparse_csr(), eg.ones(2))
    ... except NotImplementedError as error:
    ...     print(type(error).__name__)
    NotImplementedError
    """
    raise NotImplementedError(
        "sparse.spsolve: there is no sparse solver on the CPU, as in PyTorch.\n"
        "  fix: eg.linalg.solve(input.to_dense(), other), or a solver of SciPy."
    )


def to_sparse_semi_structured(
    original_tensor: Tensor, transposed: bool = False, alg_id: int = 0
) -> NoReturn:
    """PyTorch's pruned matrices for tensor cores, which it has for CUDA alone: an error.

    Args:
        original_tensor: a matrix of which two of four neighbours are zero
        transposed, alg_id: ignored

    >>> try:
    ...     eg.sparse.to_sparse_semi_structured(eg.ones(4, 4))
    ... except NotImplementedError as error:
    ...     print(type(error).__name__)
    NotImplementedError
    """
    raise NotImplementedError(
        "sparse.to_sparse_semi_structured: the format is one of CUDA's tensor cores.\n"
        "  fix: to_sparse_csr() or to_sparse_bsr(blocksize), which have products on the CPU."
    )
