"""What must hold of the parts of a sparse tensor.

Ranges of indices are checked unless that is declined (``check_invariants=False``): a negative one
would count from the end. Their order is checked on request.
"""

from __future__ import annotations

from contextlib import ContextDecorator

import numpy as np

from evergrad.core.memory_format import layout as Layout
from evergrad.core.shapes import Shape
from evergrad.core.types import Array
from evergrad.sparse.compressed import NAMES, is_blocked, is_by_row
from evergrad.sparse.places import block_places, is_increasing, keys_of


class check_sparse_tensor_invariants(ContextDecorator):  # noqa: N801 - PyTorch's spelling
    """Whether sparse tensors are checked when they are made: as a ``with`` block, a decorator, or
    for good by ``enable()`` and ``disable()``.

    Args:
        enable: default ``True``

    >>> with eg.sparse.check_sparse_tensor_invariants():
    ...     eg.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

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


def check_range(places: Array, shape: Shape) -> None:
    """Indices are within the shape."""
    check_not_negative(places)
    for dim, row in enumerate(places):
        if row.size and row.max() >= shape[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {shape[dim]} but "
                f"found index {row.max()}"
            )


def check_coalesced(places: Array, shape: Shape) -> None:
    """Indices of a tensor that is marked as coalesced increase."""
    if not is_increasing(keys_of(places, shape[: len(places)])):
        raise RuntimeError(
            "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
        )


def _extents(pointers: Array, shape: Shape, layout: Layout) -> tuple[int, int, str, str]:
    """The compressed extent and the other one, and their names in messages."""
    batch = pointers.ndim - 1
    first, second = shape[batch : batch + 2]
    if is_by_row(layout):
        return first, second, "rows", "ncols"
    return second, first, "columns", "nrows"


def check_compressed_range(pointers: Array, plain: Array, shape: Shape, layout: Layout) -> None:
    """Pointers lead through all elements, whose indices are in the shape, which is that of the
    blocks where the layout has some."""
    compressed, flat = NAMES[layout]
    major, minor, rows, columns = _extents(pointers, shape, layout)
    if pointers.shape[-1] != major + 1:
        raise RuntimeError(
            f"{compressed}.shape[-1] must be equal to the number of {rows} + 1 (={major + 1}), "
            f"but got {pointers.shape[-1]}"
        )
    _demand((pointers[..., 0] == 0).all(), f"{compressed}[..., 0] == 0")
    _demand((pointers[..., -1] == plain.shape[-1]).all(), f"{compressed}[..., -1] == nnz")
    steps = np.diff(pointers, axis=-1)
    _demand(
        ((steps >= 0) & (steps <= minor)).all(),
        f"0 <= {compressed}[..., 1:] - {compressed}[..., :-1] <= {columns}",
    )
    _demand(((plain >= 0) & (plain < minor)).all(), f"0 <= {flat} < {columns}")


def check_compressed_order(pointers: Array, plain: Array, shape: Shape, layout: Layout) -> None:
    """The indices of each row, or column, increase."""
    compressed, flat = NAMES[layout]
    major, minor, rows, _ = _extents(pointers, shape, layout)
    number, row, column = block_places(pointers, plain, True)
    _demand(
        is_increasing((number * major + row) * minor + column),
        f"{flat}[..., {compressed}[..., i - 1]:{compressed}[..., i]] for all i = 1, ..., n{rows} "
        "are sorted and distinct along the last dimension values",
    )


def check_parts_of_compressed(
    pointers: Shape, plain: Shape, elements: Shape, shape: Shape, layout: Layout
) -> None:
    """The shapes of the parts go together: batches, elements, blocks that divide the matrix."""
    compressed, flat = NAMES[layout]
    batch, blocks = len(pointers) - 1, 2 if is_blocked(layout) else 0
    batches = [list(part[:batch]) for part in (pointers, plain, elements, shape)]
    if any(b != batches[-1] for b in batches):
        raise RuntimeError(
            f"all batch dimensions of {compressed} (={batches[0]}), {flat} (={batches[1]}), and "
            f"values (={batches[2]}) must be equal to tensor batch dimensions (={batches[3]})"
        )
    if plain[-1] != elements[batch]:
        raise RuntimeError(
            f"{flat}.shape[-1] must be equal to nnz (={elements[batch]}) as defined by "
            f"values.shape[{batch}], but got {plain[-1]}"
        )
    for i, extent in enumerate(elements[batch + 1 : batch + 1 + blocks]):
        if not extent or shape[batch + i] % extent:
            raise RuntimeError(
                f"tensor shape[{batch + i}] (={shape[batch + i]}) must be divisible with "
                f"blocksize[{i}] (={extent}) as defined by values shape"
            )
    if elements[batch + 1 + blocks :] != shape[batch + 2 :]:
        raise RuntimeError(
            f"values dense dimensions (={list(elements[batch + 1 + blocks :])}) must be equal to "
            f"tensor dense dimensions (={list(shape[batch + 2 :])})"
        )


def _demand(holds: object, what: str) -> None:
    if not holds:
        raise RuntimeError(f"`{what}` is not satisfied.")
