"""``make_tensor``: random tensors for tests, the same as PyTorch's for the same seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype, finfo, iinfo
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, MemoryFormatLike


def _interval(
    low: float | None, high: float | None, kind: dtype, limits: tuple[float, float],
    defaults: tuple[float, float],
) -> tuple[float, float] | tuple[int, int]:  # fmt: skip
    """The bounds, as far as the type can represent them; high is exclusive."""
    start = defaults[0] if low is None else low
    end = defaults[1] if high is None else high
    if math.isnan(start) or math.isnan(end):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    is_float = kind.is_floating_point or kind.is_complex
    if start > end or (start == end and not is_float):
        raise ValueError(f"`low` must be less than `high`, but got {start} >= {end}")
    if end < limits[0] or start >= limits[1]:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{start}, {end}), but {kind} "
            f"only supports [{limits[0]}, {limits[1]})"
        )
    start, end = (min(max(bound, limits[0]), limits[1]) for bound in (start, end))
    return (start, end) if is_float else (math.ceil(start), math.ceil(end))


def _uniform(shape: tuple[int, ...], kind: dtype, low: float | None, high: float | None) -> Tensor:
    limits = finfo(kind)
    start, end = _interval(low, high, kind, (limits.min, limits.max), (-9, 9))
    made: Tensor = FUNCTIONS["empty"](shape, dtype=dtypes.float32 if kind.itemsize == 1 else kind)
    parts = FUNCTIONS["view_as_real"](made) if kind.is_complex else made
    if end - start >= finfo(parts.dtype).max:  # the width itself is not a number of the type
        parts.uniform_(start / 2, end / 2).mul_(2)
    else:
        parts.uniform_(start, end)
    return made.to(kind)


def _integers(shape: tuple[int, ...], kind: dtype, low: float | None, high: float | None) -> Tensor:
    if kind is dtypes.bool_:
        start, end = _interval(low, high, kind, (0, 2), (0, 2))
    else:
        limits = iinfo(kind)
        above = limits.max + (kind is not dtypes.int64)
        start, end = _interval(low, high, kind, (limits.min, above), (-9, 10))
    return FUNCTIONS["randint"](start, end, shape, dtype=kind)  # type: ignore[no-any-return]


def make_tensor(
    *shape: int | Sequence[int], dtype: dtype, device: DeviceLike, low: float | None = None,
    high: float | None = None, requires_grad: bool = False, noncontiguous: bool = False,
    exclude_zero: bool = False, memory_format: MemoryFormatLike = None,
) -> Tensor:  # fmt: skip
    """A tensor of random numbers between ``low`` and ``high`` (-9 and 9 if not given)."""
    first = shape[0] if shape else ()
    extents: Any = tuple(first) if len(shape) == 1 and isinstance(first, Sequence) else shape
    is_float = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"{noncontiguous=} and {memory_format=}"
        )
    if requires_grad and not is_float:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"{dtype=}"
        )
    noncontiguous = noncontiguous and math.prod(extents) > 1
    if noncontiguous:
        extents = (*extents[:-1], 2 * extents[-1])
    made = (_uniform if is_float else _integers)(extents, dtype, low, high)
    if noncontiguous:
        made = made[..., 1::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = finfo(dtype).tiny if is_float else 1
    if is_float:
        made.requires_grad_(requires_grad)
    return made
