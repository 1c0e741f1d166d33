"""Reductions over consecutive segments of a dimension."""

from __future__ import annotations

import math

from evergrad.core.shapes import normalize_dim
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import arange, full
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.indexing.scatter import scatter_reduce
from evergrad.ops.rows.reduce.counting import searchsorted
from evergrad.ops.surface.public import expose

# How the reduction is called where it scatters, and its identity.
_REDUCTIONS: dict[str, tuple[str, float]] = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
    "prod": ("prod", 1.0),
}


def _bounds(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, unsafe: bool
) -> tuple[Tensor, Tensor]:
    """Where each segment begins and ends."""
    if offsets is not None:
        count = offsets.shape[axis] - 1
        return offsets.narrow(axis, 0, count), offsets.narrow(axis, 1, count)
    if lengths is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined")
    if not unsafe:
        if bool((lengths < 0).any()):
            raise RuntimeError("lengths contains negative value!")
        if bool((lengths.sum(axis) != data.shape[axis]).any()):
            raise RuntimeError(
                "segment_reduce(): Expected all rows of lengths along axis to sum to "
                "data.size(lengths.dim()-1) when !unsafe."
            )
    ends = lengths.cumsum(axis)
    return ends - lengths, ends


def _segment_numbers(data: Tensor, starts: Tensor, ends: Tensor, axis: int) -> Tensor:
    """The segment of each element; elements outside of all get the number behind the last."""
    extent, count = data.shape[axis], ends.shape[axis]
    places = arange(extent).expand(*data.shape[:axis], extent).contiguous()
    numbers = searchsorted(ends.contiguous(), places, right=True)
    first = starts.narrow(axis, 0, 1) if count else ends.new_zeros(*data.shape[:axis], 1)
    numbers = where(places < first, count, numbers)
    behind = (1,) * (data.ndim - axis - 1)
    return numbers.reshape(*numbers.shape, *behind).expand(*data.shape)


@expose(method=False, out=False)
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: object = None,
) -> Tensor:  # fmt: skip
    """The sum, mean, maximum, minimum or product of consecutive segments of dimension ``axis``.

    ``lengths`` says how long they are, or ``offsets`` where they begin and the last one ends.
    ``initial`` is reduced with each segment; a segment without elements has it as its result.

    Args:
        data: the tensor
        reduce: ``"sum"``, ``"mean"``, ``"max"``, ``"min"`` or ``"prod"``
        lengths: of the segments, or
        offsets: where they begin, and the end
        indices: not taken, as in PyTorch
        axis: the dimension; default 0
        unsafe: leave out the check of lengths; default ``False``
        initial: the value of empty segments

    >>> eg.segment_reduce(eg.arange(4.0), "sum", lengths=eg.tensor([1, 3]))
    tensor([0., 6.])
    """
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be one of {sorted(_REDUCTIONS)}, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    axis = normalize_dim(axis, data.ndim)
    starts, ends = _bounds(data, lengths, offsets, axis, unsafe)
    name, identity = _REDUCTIONS[reduce]
    count = ends.shape[axis]
    shape = (*data.shape[:axis], count + 1, *data.shape[axis + 1 :])
    target = full(shape, identity if initial is None else initial, dtype=data.dtype)
    numbers = _segment_numbers(data, starts, ends, axis)
    found = scatter_reduce(target, axis, numbers, data, name).narrow(axis, 0, count)
    if reduce == "mean":
        found = _divided(found, ends - starts, axis, math.nan if initial is None else initial)
    return found


def _divided(found: Tensor, sizes: Tensor, axis: int, empty: object) -> Tensor:
    sizes = sizes.reshape(*sizes.shape, *(1,) * (found.ndim - axis - 1))
    divided = found / sizes.clamp(min=1).to(found.dtype)
    other = full((), empty, dtype=found.dtype)
    return where(sizes > 0, divided, other)
