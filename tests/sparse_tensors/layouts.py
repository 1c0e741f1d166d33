"""Programs on sparse and ragged tensors, run in evergrad and in PyTorch, and their results compared
part by part."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import evergrad
from twins import assert_same, quietly

Program = Callable[[Any], Any]

# Stored out of order, one place twice.
PLACES = [[0, 1, 0, 2], [2, 0, 2, 3]]
NUMBERS = [3.0, -4.0, 5.5, 0.25]
SHAPE = (3, 4)


def example(ns: Any, coalesced: bool = False, **options: Any) -> Any:
    """A 3 x 4 sparse matrix of float64."""
    made = ns.sparse_coo_tensor(PLACES, NUMBERS, SHAPE, dtype=ns.float64)
    made = made.coalesce() if coalesced else made
    return made.detach().requires_grad_() if options.get("requires_grad") else made


def dense_example(ns: Any, rows: int = 3, columns: int = 4) -> Any:
    """A dense matrix of float64 without zeros."""
    return (ns.arange(rows * columns, dtype=ns.float64).reshape(rows, columns) + 1) / 7


def hybrid_example(ns: Any) -> Any:
    """Two indexed dimensions, one dense."""
    values = (ns.arange(12, dtype=ns.float64).reshape(4, 3) - 5) / 3
    return ns.sparse_coo_tensor(PLACES, values, (*SHAPE, 3))


def parts(value: Any) -> Any:
    """A result as arrays and words: sparse tensors as their parts."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "numel"):
        return tuple(parts(v) for v in value)
    if not hasattr(value, "layout"):
        return value
    layout = str(value.layout).rpartition(".")[2]
    kind = str(value.dtype).rpartition(".")[2]
    if layout == "strided":
        return kind, _array(value)
    if layout == "sparse_coo":
        found = (value._indices(), value._values(), value.is_coalesced())
    elif layout in ("sparse_csr", "sparse_bsr"):
        found = (value.crow_indices(), value.col_indices(), value.values())
    else:
        found = (value.ccol_indices(), value.row_indices(), value.values())
    arrays = tuple(v if isinstance(v, bool) else _array(v) for v in found)
    return layout, kind, tuple(value.shape), arrays


def whole(value: Any) -> Any:
    """A result as arrays and words: sparse tensors as dense ones, with their layout."""
    if isinstance(value, (list, tuple)):
        return tuple(whole(v) for v in value)
    if not hasattr(value, "layout"):
        return value
    layout = str(value.layout).rpartition(".")[2]
    return layout, str(value.dtype).rpartition(".")[2], _array(value.detach().to_dense())


def _array(tensor: Any) -> Any:
    return np.array(tensor.detach().tolist()).reshape(tuple(tensor.shape))


def agree(
    program: Program,
    torch: ModuleType,
    read: Callable[[Any], Any] = parts,
    tolerance: float = 1e-12,
) -> None:
    """Both give the same."""
    theirs = read(quietly(program, torch))
    assert_same(read(program(evergrad)), theirs, tolerance)
