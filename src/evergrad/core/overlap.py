"""Memory that a write shares with what it reads.

As in PyTorch the same elements in the same order are no hazard, and strided arrays with gaps are
not analysed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor


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
    """Whether two tensors share ``_PARTIAL`` or ``_FULL`` memory, as far as that is known."""
    x, y = a.layout_array(), b.layout_array()
    if a is b:
        return _FULL
    if not (x.size and y.size and _is_dense(x) and _is_dense(y)):
        return ""
    starts = [v.__array_interface__["data"][0] for v in (x, y)]
    ends = [start + v.nbytes for start, v in zip(starts, (x, y), strict=True)]
    if starts[0] == starts[1] and ends[0] == ends[1]:
        return _FULL if x.strides == y.strides else _PARTIAL
    return _PARTIAL if starts[0] < ends[1] and starts[1] < ends[0] else ""


def _is_dense(array: Any) -> bool:
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
