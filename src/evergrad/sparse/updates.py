"""Reading and writing dense tensors at the places of a sparse one, in place and without history:
what optimizers do with sparse gradients."""

from __future__ import annotations

from typing import Any

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.convert import adopt
from evergrad.sparse.coo import SparseTensor, elements_at


def read_at(dense: Tensor, pattern: Any) -> Tensor:
    """The elements of a dense tensor at the places of a sparse one."""
    with using(grad=False):
        return elements_at(dense, pattern._places)


def add_at(dense: Tensor, pattern: Any, elements: Tensor, alpha: Any = 1) -> None:
    """Add ``alpha * elements`` to a dense tensor at the places of a sparse one; elements of one
    place are added one after the other."""
    with using(grad=False):
        added = elements if alpha == 1 else elements * alpha
        if pattern._coalesced:
            write_at(dense, pattern, read_at(dense, pattern) + added)
        else:
            dense.index_put_(_rows(pattern), added, accumulate=True)


def write_at(dense: Tensor, pattern: object, elements: Tensor) -> None:
    """Replace the elements of a dense tensor at the places of a coalesced sparse one."""
    with using(grad=False):
        dense.index_put_(_rows(pattern), elements)


def _rows(pattern: Any) -> tuple[Tensor, ...]:
    return tuple(adopt(row.copy()) for row in pattern._places)


def add_scaled(dense: Tensor, addend: Tensor, alpha: complex | Tensor) -> None:
    """``dense += alpha * addend``, where the addend may be sparse."""
    if isinstance(addend, SparseTensor):
        add_at(dense, addend, addend._elements, alpha)
        return
    with using(grad=False):
        dense.add_(addend, alpha=alpha)
