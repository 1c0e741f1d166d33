"""Sparse tensors in files: the dense tensors they are made of, and making them again."""

from __future__ import annotations

from typing import Any

from evergrad.core.memory_format import layout, sparse_coo, sparse_csc, sparse_csr
from evergrad.core.tensor import Tensor
from evergrad.errors import FileFormatError
from evergrad.io.containers import make_size
from evergrad.sparse.construct import sparse_compressed_tensor, sparse_coo_tensor
from evergrad.sparse.invariants import check_compressed, check_coo

LAYOUTS = (sparse_coo, sparse_csr, sparse_csc)

_CHECKS_PER_BYTE = 8
_FREE_CHECKS = 1 << 16


def parts_of(tensor: Any) -> tuple[Any, ...]:
    """What a sparse tensor is made of, as PyTorch lists it."""
    if tensor.layout is sparse_coo:
        indices, values = tensor._indices().detach(), tensor._values().detach()
        return indices, values, tensor.shape, tensor.is_coalesced()
    if tensor.layout is sparse_csr:
        indices = tensor.crow_indices(), tensor.col_indices()
    else:
        indices = tensor.ccol_indices(), tensor.row_indices()
    return (*indices, tensor.values().detach(), tensor.shape)


class SparseMaker:
    """Makes the sparse tensors of one file.

    Their indices can be checked only when all bytes have been read, which in old files comes last.
    Checking takes time, so all of them together may not be much larger than the file.
    """

    def __init__(self, file_size: int) -> None:
        self._made: list[Any] = []
        self._budget = file_size * _CHECKS_PER_BYTE + _FREE_CHECKS

    def make(self, kind: Any, data: Any) -> Tensor:
        """A sparse tensor of its parts."""
        if not any(kind is known for known in LAYOUTS) or type(data) is not tuple:
            raise FileFormatError("a sparse tensor has no layout that is read here.")
        self._charge(data)
        try:
            made = _coo(*data) if kind is sparse_coo else _compressed(kind, *data)
        except RuntimeError as error:
            raise _refused(error) from None
        self._made.append(made)
        return made

    def _charge(self, data: tuple[Any, ...]) -> None:
        self._budget -= sum(part.nbytes for part in data if isinstance(part, Tensor))
        if self._budget < 0:
            raise FileFormatError("sparse tensors are larger than the file: it is corrupted.")

    def verify(self) -> None:
        """Make sure that all indices are within the shapes."""
        for tensor in self._made:
            first, second = (part.array() for part in parts_of(tensor)[:2])
            try:
                if tensor.layout is sparse_coo:
                    check_coo(first, tuple(tensor.shape), tensor.is_coalesced())
                else:
                    check_compressed(first, second, tuple(tensor.shape), tensor.layout)
            except (RuntimeError, LookupError) as error:
                raise _refused(error) from None


def _coo(indices: Any, values: Any, size: Any, coalesced: Any = None) -> Tensor:
    _require_tensors(indices, values)
    return sparse_coo_tensor(
        indices, values, make_size(size), is_coalesced=coalesced is True, check_invariants=False
    )


def _compressed(kind: layout, pointers: Any, plain: Any, values: Any, size: Any) -> Tensor:
    _require_tensors(pointers, plain, values)
    return sparse_compressed_tensor(
        pointers, plain, values, make_size(size), layout=kind, check_invariants=False
    )


def _require_tensors(*parts: Any) -> None:
    if not all(type(part) is Tensor for part in parts):
        raise FileFormatError("a sparse tensor has parts that are none: the file is corrupted.")


def _refused(error: Exception) -> FileFormatError:
    return FileFormatError(f"a sparse tensor is wrong: {error}. The file is corrupted.")
