"""What dense tensors say about layouts, and the way to the others.

The layouts themselves are packages that are imported when one of these is first used
(:mod:`evergrad.sparse`, :mod:`evergrad.nested`); their tensors have forms of these of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr
from evergrad.core.tensor import Tensor
from evergrad.extension import ExtensionPoint
from evergrad.ops.composite.products import mm
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.surface.casting import to
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evergrad.core.types import DtypeLike

_to_sparse: ExtensionPoint[..., Tensor] = ExtensionPoint("to_sparse")
_sparse_mask: ExtensionPoint[..., Tensor] = ExtensionPoint("sparse_mask")

# -- to and from --------------------------------------------------------------------------------


@expose(function=False)
def to_sparse(
    self: Tensor, sparse_dim: object = None, *, layout: Layout | None = None,
    blocksize: object = None, dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """What is not zero, as a sparse tensor; ``sparse_dim`` says how many dimensions to index."""
    return _to_sparse(self, sparse_dim, layout=layout, blocksize=blocksize, dense_dim=dense_dim)


@expose(function=False)
def to_sparse_coo(self: Tensor) -> Tensor:
    """In coordinate form."""
    return to_sparse(self)


@expose(function=False)
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """A matrix with compressed rows; dimensions before the last two are batches."""
    return to_sparse(self, layout=sparse_csr, dense_dim=dense_dim)


@expose(function=False)
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """A matrix with compressed columns; dimensions before the last two are batches."""
    return to_sparse(self, layout=sparse_csc, dense_dim=dense_dim)


@expose(function=False)
def to_sparse_bsr(self: Tensor, blocksize: object, dense_dim: int | None = None) -> Tensor:
    """A matrix of dense blocks with compressed rows: those blocks that are not all zero."""
    return to_sparse(self, layout=sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


@expose(function=False)
def to_sparse_bsc(self: Tensor, blocksize: object, dense_dim: int | None = None) -> Tensor:
    """A matrix of dense blocks with compressed columns."""
    return to_sparse(self, layout=sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


@expose(function=False)
def to_dense(self: Tensor, dtype: DtypeLike = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor itself: it is dense."""
    return self if dtype is None else to(self, dtype)


@expose(function=False)
def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places of a sparse tensor."""
    return _sparse_mask(self, mask)


# -- questions ----------------------------------------------------------------------------------


@expose(function=False)
def sparse_dim(self: Tensor) -> int:
    """The number of indexed dimensions: none."""
    return 0


@expose(function=False)
def dense_dim(self: Tensor) -> int:
    """The number of dimensions that are not indexed: all."""
    return self.ndim


def _expected_layout(tensor: Tensor, name: str, wanted: str) -> str:
    found = getattr(tensor, "layout_name", "Strided")
    return f"{name} expected {wanted} tensor layout but got {found}"


def _asks_for_layout(name: str, wanted: str) -> None:
    def ask(self: Tensor) -> Any:
        raise RuntimeError(_expected_layout(self, name, wanted))

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = f"For a {wanted} tensor; an error for any other."
    expose(function=False)(ask)


for _name, _wanted in {
    "is_coalesced": "sparse coordinate",
    "coalesce": "sparse coordinate",
    "indices": "sparse coordinate",
    "values": "sparse",
    "crow_indices": "sparse row compressed",
    "col_indices": "sparse row compressed",
    "ccol_indices": "sparse column compressed",
    "row_indices": "sparse column compressed",
}.items():
    _asks_for_layout(_name, _wanted)


@expose(function=False)
def sparse_resize_(self: Tensor, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Tensor:
    """Another shape of a sparse coordinate tensor; an error for any other."""
    raise NotImplementedError(_expected_layout(self, "sparse_resize_", "sparse coordinate"))


@expose(function=False)
def sparse_resize_and_clear_(
    self: Tensor, size: Sequence[int], sparse_dim: int, dense_dim: int
) -> Tensor:
    """Another shape of a sparse coordinate tensor without its elements; an error for any other."""
    name = "sparse_resize_and_clear_"
    raise NotImplementedError(_expected_layout(self, name, "sparse coordinate"))


@expose(function=False)
def resize_as_sparse_(self: Tensor, the_template: Tensor) -> Tensor:
    """The shape of another sparse coordinate tensor; an error for tensors of other layouts."""
    raise NotImplementedError(_expected_layout(self, "resize_as_sparse_", "sparse coordinate"))


# -- products by their sparse names -------------------------------------------------------------


@expose("dsmm", "hsmm", method=False)
def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices: another name of ``mm``.

    Args:
        input, mat2: matrices
        out: where to write the result

    >>> eg.spmm(eg.eye(2), eg.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    return mm(input, mat2)


@expose(out=False)
def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, as a sparse tensor.

    Args:
        input: a sparse matrix
        mat2: a dense one

    >>> eg.smm(eg.eye(2).to_sparse(), eg.ones(2, 1)).to_dense()
    tensor([[1.],
            [1.]])
    """
    return to_sparse(matmul(input, mat2))


@expose(method=False)
def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, as a sparse tensor of dense rows.

    Args:
        mat1: a sparse matrix
        mat2: a dense one
        out: where to write the result

    >>> eg.hspmm(eg.eye(2).to_sparse(), eg.ones(2, 1)).dense_dim()
    1
    """
    return to_sparse(mm(mat1, mat2), 1)


@expose()
def sspaddmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``, as a sparse tensor.

    Args:
        input: a sparse matrix (n, m)
        mat1: a sparse matrix (n, k)
        mat2: a dense one (k, m)
        beta, alpha: factors; default 1
        out: where to write the result

    >>> eye = eg.eye(2).to_sparse()
    >>> eg.sspaddmm(eye, eye, eg.ones(2, 2)).to_dense()
    tensor([[2., 1.],
            [1., 2.]])
    """
    if input.layout is not sparse_coo or mat1.layout is not sparse_coo:
        raise RuntimeError(
            "sspaddmm: expected input and mat1 to be sparse tensors in coordinate form, got "
            f"{input.layout} and {mat1.layout}"
        )
    added: Tensor = input * beta + smm(mat1, mat2) * alpha
    return added
