"""Memory that a write shares with what it reads.

As in PyTorch the same elements in the same order are no hazard, and strided arrays with gaps are
not analysed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Var

if TYPE_CHECKING:
    from evergrad.core.types import Array


def refuse_partial_overlap(
    target: Tensor, sources: Iterable[object], same_too: bool = False
) -> None:
    """Raise if a tensor that is written to shares some of its memory with one that is read, or
    (``same_too``) all of it."""
    storage = target._storage
    for source in sources:
        if not isinstance(source, Tensor) or source._storage is not storage:
            continue
        if storage.value is NO_ARRAY or not (is_partial := _overlap(target, source)):
            continue
        if is_partial is _PARTIAL or same_too:
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location. Please clone() the tensor before "
                "performing the operation."
            )


_PARTIAL, _FULL = "partial", "full"


def _overlap(a: Tensor, b: Tensor) -> str:
    """Whether two tensors on one storage share ``_PARTIAL`` or ``_FULL`` memory, as far as that is
    known."""
    if a is b:
        return _FULL
    x, y = a._value, b._value
    if isinstance(x, Var) or isinstance(y, Var) or isinstance(a._storage.value, Var):
        x, y = _layout_in_storage(a), _layout_in_storage(b)
    if not (x.size and y.size and _is_dense(x) and _is_dense(y)):
        return ""
    starts = [v.__array_interface__["data"][0] for v in (x, y)]
    ends = [start + v.nbytes for start, v in zip(starts, (x, y), strict=True)]
    if starts[0] == starts[1] and ends[0] == ends[1]:
        return _FULL if x.strides == y.strides else _PARTIAL
    return _PARTIAL if starts[0] < ends[1] and starts[1] < ends[0] else ""


def _layout_in_storage(tensor: Tensor) -> Array:
    """The array of a tensor by its view ops: symbolic values of a storage have layouts of their
    own, whose addresses do not compare."""
    array = tensor._storage.value
    array = array.layout if isinstance(array, Var) else array
    if tensor._view is not None:
        for op, attrs in tensor._view.chain:
            array = op.eval(array, **attrs)
    return array


def copied_if_overlapping(target: Array, source: Array) -> Array:
    """What to copy to an array: NumPy copies between vectors with different strides in an order
    that overwrites elements before they are read."""
    is_safe = target.ndim != 1 or target.strides == source.strides
    return source if is_safe or not np.may_share_memory(target, source) else source.copy()


def _is_dense(array: Array) -> bool:
    """Whether the elements fill their memory without gaps, in any order of the dimensions."""
    if array.flags.c_contiguous:
        return True
    expected = array.itemsize
    for stride, extent in sorted(zip(array.strides, array.shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            return False
        expected *= extent
    return True
