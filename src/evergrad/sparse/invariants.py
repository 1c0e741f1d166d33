"""What must hold of the parts of a sparse tensor, checked where it is asked for.

Without the checks a wrong place is noticed when it is used, by an ``IndexError``.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

import numpy as np

from evergrad.core.memory_format import layout as Layout
from evergrad.core.memory_format import sparse_csr
from evergrad.core.shapes import Shape
from evergrad.sparse.compressed import NAMES
from evergrad.sparse.places import expanded_pointers, is_increasing, keys_of

Array = np.ndarray[Any, Any]


class check_sparse_tensor_invariants(ContextDecorator):  # noqa: N801 - PyTorch's spelling
    """Whether sparse tensors are checked when they are made: as a ``with`` block, a decorator, or
    for good by ``enable()`` and ``disable()``."""

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether the checks are on."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        """Check from now on."""
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        """Check no more."""
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        self.saved.append(self.is_enabled())
        check_sparse_tensor_invariants._enabled = self.state

    def __exit__(self, *exc: object) -> None:
        check_sparse_tensor_invariants._enabled = self.saved.pop()


def checks_wanted(asked: bool | None) -> bool:
    """Whether to check: as asked, else as set."""
    return check_sparse_tensor_invariants.is_enabled() if asked is None else asked


def check_not_negative(places: Array) -> None:
    """Refuse negative indices."""
    for dim, row in enumerate(places):
        if row.size and row.min() < 0:
            raise RuntimeError(f"found negative index {row.min()} for dim {dim}")


def check_coo(places: Array, shape: Shape, coalesced: bool) -> None:
    """Places lie in the shape; those said to be coalesced are."""
    check_not_negative(places)
    for dim, row in enumerate(places):
        if row.size and row.max() >= shape[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {shape[dim]} but "
                f"found index {row.max()}"
            )
    if coalesced and not is_increasing(keys_of(places, shape[: len(places)])):
        raise RuntimeError(
            "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
        )


def check_compressed(pointers: Array, plain: Array, shape: Shape, layout: Layout) -> None:
    """Pointers lead through all elements; within each row these are sorted and in the shape."""
    by_row = layout is sparse_csr
    compressed, flat = NAMES[layout]
    major, minor = shape if by_row else shape[::-1]
    rows, columns = ("rows", "ncols") if by_row else ("columns", "nrows")
    if len(pointers) != major + 1:
        raise RuntimeError(
            f"{compressed}.shape[-1] must be equal to the number of {rows} + 1 (={major + 1}), "
            f"but got {len(pointers)}"
        )
    _demand(pointers[0] == 0, f"{compressed}[..., 0] == 0")
    _demand(pointers[-1] == len(plain), f"{compressed}[..., -1] == nnz")
    steps = np.diff(pointers)
    _demand(
        ((steps >= 0) & (steps <= minor)).all(),
        f"0 <= {compressed}[..., 1:] - {compressed}[..., :-1] <= {columns}",
    )
    _demand(((plain >= 0) & (plain < minor)).all(), f"0 <= {flat} < {columns}")
    _demand(
        is_increasing(expanded_pointers(pointers) * minor + plain),
        f"{flat}[..., {compressed}[..., i - 1]:{compressed}[..., i]] for all i = 1, ..., n{rows} "
        "are sorted and distinct along the last dimension values",
    )


def _demand(holds: Any, what: str) -> None:
    if not holds:
        raise RuntimeError(f"`{what}` is not satisfied.")
