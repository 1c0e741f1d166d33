"""Functions that make arrays."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import evergrad as eg
from evergrad.array_api.adapt import enter, standard
from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import as_number, check_place, chosen_dtype
from evergrad.ops.surface.public import FUNCTIONS

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Ints


def _filled(name: str) -> None:
    function, like = FUNCTIONS[name], FUNCTIONS[f"{name}_like"]

    def adapted(shape: object, *, dtype: DtypeLike = None, device: DeviceLike = None) -> Tensor:
        return function(shape, dtype=dtype, device=device)

    def adapted_like(x: Tensor, /, *, dtype: DtypeLike = None, device: DeviceLike = None) -> Tensor:
        return like(x, dtype=dtype, device=device)

    enter(name, adapted, function)
    enter(f"{name}_like", adapted_like, like)


for _name in ("empty", "ones", "zeros"):
    _filled(_name)


def _triangle(name: str) -> None:
    function = FUNCTIONS[name]

    def adapted(x: Tensor, /, *, k: int = 0) -> Tensor:
        return function(x, k)

    enter(name, adapted, function)


for _name in ("tril", "triu"):
    _triangle(_name)


@standard()
def full(
    shape: Ints, fill_value: Any, *, dtype: DtypeLike = None, device: DeviceLike = None
) -> Tensor:
    """One number everywhere."""
    return eg.full(shape, fill_value, dtype=dtype, device=device)


@standard()
def full_like(
    x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: DeviceLike = None
) -> Tensor:
    """One number everywhere, in the shape and type of ``x``."""
    return eg.full_like(x, fill_value, dtype=dtype, device=device)


@standard()
def arange(
    start: Any,
    /,
    stop: Any = None,
    step: complex | Tensor = 1,
    *,
    dtype: DtypeLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Numbers from ``start`` up to, but not including, ``stop``: none if ``step`` leads away."""
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = dtypes.of_scalar(as_number(start + stop + step))
    leads_away = (stop - start) * step < 0
    return eg.arange(start, start if leads_away else stop, step, dtype=dtype, device=device)


@standard()
def linspace(
    start: complex | Tensor, stop: complex | Tensor, /, num: int, *, dtype: DtypeLike = None,
    device: DeviceLike = None, endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """Evenly spaced numbers from ``start`` to ``stop``, with or without the last."""
    points = num if endpoint else num + 1
    return eg.linspace(start, stop, points, dtype=dtype, device=device)[:num]


@standard()
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DtypeLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """A matrix with ones on the ``k``-th diagonal and zeros elsewhere."""
    rows = eg.arange(n_rows, device=device)[:, None]
    columns = eg.arange(n_rows if n_cols is None else n_cols)
    return cast(columns - rows == k, chosen_dtype(dtype))


@standard()
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid: each vector spread along an axis of its own."""
    return eg.meshgrid(*arrays, indexing=indexing)


@standard()
def asarray(
    obj: Any, /, *, dtype: DtypeLike = None, device: DeviceLike = None, copy: bool | None = None
) -> Tensor:
    """The object as an array; ``copy`` says whether its memory must, may or must not be copied."""
    return eg.asarray(obj, dtype=dtype, device=device, copy=copy)


@standard()
def from_dlpack(x: object, /, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """An array on the memory of any DLPack object on the CPU, or on a copy of it."""
    check_place(device)
    shared = eg.from_dlpack(x)
    return eg.clone(shared) if copy else shared
