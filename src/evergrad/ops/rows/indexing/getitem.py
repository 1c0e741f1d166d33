"""``x[index]`` and ``x[index] = value``.

An index is read in two parts. Numbers, slices, ``None`` and ``...`` make a view, by at most two
rows. Tensors, lists and masks then pick elements of that view, which makes a copy; the dimensions
they pick from become one group, at the place of the first if they stand side by side, else in
front. Assignment goes the same way: a write through the view, or at index tensors of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.inplace import assign, write_in_place
from evergrad.core.op import Op
from evergrad.core.python_numbers import DeferredNumber, PythonNumber
from evergrad.core.shapes import Shape
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.tracing import is_known
from evergrad.ops.rows.creation.constants import FULL, constant
from evergrad.ops.rows.elementwise.basic import WHERE
from evergrad.ops.rows.indexing import direct
from evergrad.ops.rows.indexing.arguments import number_as
from evergrad.ops.rows.indexing.functions import (
    is_mask,
    places_of,
    require_index_fits,
    require_same_dtype,
    shape_at,
    write_at,
)
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.indexing.masked import masked_values
from evergrad.ops.rows.movement.slices import SLICE, sliced
from evergrad.ops.rows.movement.views import EXPAND, PERMUTE, RESHAPE, expand, reshape
from evergrad.ops.surface.public import NUMBERS

_BASIC = (int, slice, bool, type(None), type(Ellipsis))

# A list that is longer than this is always one index, never several.
_LONGEST_TUPLE = 32


def _too_many(shape: Shape) -> IndexError:
    return IndexError(f"too many indices for tensor of dimension {len(shape)}")


def _place(item: int, extent: int, dim: int) -> int:
    if not -extent <= item < extent:
        raise IndexError(f"index {item} is out of bounds for dimension {dim} with size {extent}")
    return item + extent if item < 0 else item


def _bounds(item: slice, extent: int) -> tuple[int, int, int]:
    bounds = start, stop, step = item.indices(extent)
    if step < 0:
        raise ValueError("step must be greater than zero")
    return bounds if start <= stop else (start, start, step)


# -- reading an index ---------------------------------------------------------------------------


class _Reader:
    """What an index takes of the tensor's dimensions, and what the view gets for it."""

    __slots__ = ("cut", "extents", "picks", "reshaped", "shape", "slices")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        # For the rows: how each dimension is cut, and the shape if dimensions are new.
        self.slices: list[object] = []
        self.extents: list[int] = []
        self.cut = False
        self.reshaped = False
        # Index tensors, with the dimension of the view each picks from.
        self.picks: list[tuple[int, Tensor]] = []

    def read(self, items: Sequence[Any]) -> None:
        items = [item if item.__class__ in _BASIC else _as_index(item) for item in items]
        seen_ellipsis = False
        for item in items:
            kind = item.__class__
            if kind is int:
                self.number(item)
            elif kind is slice:
                self.slice(item)
            elif kind is bool:
                self.truth(item)
            elif item is None:
                self.new_dimension()
            elif item is not Ellipsis:
                self.tensor(item)
            elif not seen_ellipsis:
                self.whole(len(self.shape) - sum(map(_dims_taken, items)))
                seen_ellipsis = True

    def next_extent(self) -> int:
        dim = len(self.slices)
        if dim == len(self.shape):
            raise _too_many(self.shape)
        return self.shape[dim]

    def number(self, item: int) -> None:
        extent = self.next_extent()
        self.slices.append(_place(item, extent, len(self.slices)))
        self.cut = True

    def slice(self, item: slice) -> None:
        extent = self.next_extent()
        bounds = start, stop, step = _bounds(item, extent)
        self.slices.append(bounds)
        self.extents.append(-((start - stop) // step))
        self.cut = self.cut or bounds != (0, extent, 1)

    def whole(self, count: int) -> None:
        for _ in range(count):
            extent = self.next_extent()
            self.slices.append((0, extent, 1))
            self.extents.append(extent)

    def new_dimension(self) -> None:
        self.extents.append(1)
        self.reshaped = True

    def tensor(self, index: Tensor) -> None:
        mask = is_mask(index)
        if mask and not index.ndim:
            self.truth(bool(index.array()))
            return
        require_index_fits(index, self.shape, len(self.slices))
        self.picks.append((len(self.extents), index))
        self.whole(index.ndim if mask else 1)

    def truth(self, value: bool) -> None:
        """A truth value picks all or nothing, from a dimension of its own."""
        self.picks.append((len(self.extents), from_array(np.zeros(int(value), np.int64))))
        self.new_dimension()

    def view(self, x: Tensor, rows: list[Any]) -> Tensor:
        if self.cut or not (self.reshaped or self.picks):
            x = _noted(rows, SLICE, x, slices=tuple(self.slices))
        if self.reshaped:
            rest = self.shape[len(self.slices) :]
            x = _noted(rows, RESHAPE, x, shape=(*self.extents, *rest))
        return x


def _dims_taken(item: object) -> int:
    """How many dimensions of the tensor an item of an index covers."""
    if isinstance(item, Tensor) and is_mask(item):
        return item.ndim
    return 0 if item is None or item is Ellipsis or item.__class__ is bool else 1


def _as_index(item: object) -> Tensor | int:
    """An item of an index as a number, an index tensor or a mask."""
    if isinstance(item, Tensor):
        index = item
    elif isinstance(item, np.ndarray) or (
        isinstance(item, Sequence) and not isinstance(item, (str, bytes))
    ):
        index = _list_as_index(item)
    elif hasattr(item, "__index__"):
        return int(item.__index__())
    else:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
            f"valid indices (got {type(item).__name__})"
        )
    known = is_known(index)
    if not index.ndim and known and index.dtype.category == dtypes.INTEGRAL and not is_mask(index):
        return int(index.array())
    return index


def _list_as_index(item: Any) -> Tensor:
    if not isinstance(item, np.ndarray):
        item = [int(i.array()) if isinstance(i, Tensor) else i for i in item]
    array = np.array(item)
    if not array.size and array.dtype.kind == "f":
        array = array.astype(np.int64)
    return from_array(array)


def _items(index: object) -> Sequence[object]:
    """An index as a sequence of items; a list of more than numbers is one, as in PyTorch."""
    if index.__class__ is tuple:
        return index
    if isinstance(index, list) and len(index) < _LONGEST_TUPLE:
        several = (Tensor, np.ndarray, list, tuple, range, slice)
        if any(i is None or i is Ellipsis or isinstance(i, several) for i in index):
            return index
    return (index,)


def _read(x: Tensor, index: object) -> _Reader:
    shape = x._type.shape
    if not shape and isinstance(index, (int, np.integer)) and not isinstance(index, bool):
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a "
            "number"
        )
    reader = _Reader(shape)
    reader.read(_items(index))
    return reader


# -- picking by index tensors -------------------------------------------------------------------


def _grouped(
    view: Tensor, picks: Sequence[tuple[int, Tensor]], rows: list[object]
) -> tuple[Tensor, list[Tensor], int]:
    """The view with the picked dimensions side by side, the index tensors, and where they start."""
    dims: list[int] = []
    places: list[Tensor] = []
    for dim, index in picks:
        found = places_of(index)
        dims += range(dim, dim + len(found))
        places += found
    start = dims[0]
    if dims[-1] - start != len(dims) - 1:
        rest = [d for d in range(view.ndim) if d not in dims]
        view = _noted(rows, PERMUTE, view, order=(*dims, *rest))
        start = 0
    return view, places, start


def _plain_slices(index: object, shape: Shape) -> tuple[tuple[int, int, int] | int, ...] | None:
    """The slices of an index of numbers and slices alone, the common case; else ``None``."""
    items = index if index.__class__ is tuple else (index,)
    if len(items) > len(shape):
        return None
    slices: list[int | tuple[int, int, int]] = []
    for item, extent in zip(items, shape, strict=False):
        if item.__class__ is slice:
            slices.append(_bounds(item, extent))
        elif item.__class__ is int and -extent <= item < extent:
            slices.append(item + extent if item < 0 else item)
        else:
            return None
    return tuple(slices)


def _noted(rows: list[object], op: Op, x: Tensor, *others: Tensor, **attrs: object) -> Any:
    """Bind a row, and note its specialization."""
    found = bind(op, x, *others, **attrs)
    types = tuple([t._type for t in (x, *others)])
    rows.append(op.specializations.get((types, tuple(attrs.items()))))
    return found


def getitem(self: Tensor, index: object) -> Tensor:
    """The part of a tensor that an index names: a view for slices, a copy for index tensors."""
    slices = _plain_slices(index, self._type.shape)
    if slices is not None:
        return sliced(self, slices)
    if index.__class__ is not tuple and isinstance(index, Tensor):
        found = direct.masked(self, index)
        if found is not None:
            return found
    kinds: list[Any] = [self._type]
    tensors: list[Tensor] = []
    if STATE.get().intercepted or not direct.describe(index, kinds, tensors):
        return _read_and_bind(self, index, [])
    key = tuple(kinds)
    reading = direct.PREPARED.get(key)
    if reading is not None:
        return direct.read(self, reading, tensors)
    rows: list[Any] = []
    made = _read_and_bind(self, index, rows)
    if rows and all(row is not None and row.is_direct for row in rows):
        pick = rows.pop() if tensors else None
        direct.PREPARED[key] = tuple(rows), pick
    return made


def _read_and_bind(self: Tensor, index: object, rows: list[object]) -> Tensor:
    """Read an index and bind what it names; note the rows."""
    if isinstance(index, Tensor) and index._type.dtype is dtypes.int64 and index._type.shape:
        require_index_fits(index, self._type.shape, 0)
        return _noted(rows, INDEX, self, index, start=0, wrap=True)  # type: ignore[no-any-return]
    reader = _read(self, index)
    view = reader.view(self, rows)
    if not reader.picks:
        return view
    view, places, start = _grouped(view, reader.picks, rows)
    if len(places) > 1:
        shape_at(view, places, start)
    return _noted(rows, INDEX, view, *places, start=start, wrap=True)  # type: ignore[no-any-return]


# -- assignment ---------------------------------------------------------------------------------


def setitem(self: Tensor, index: object, value: object) -> None:
    """Write to the part of a tensor that an index names."""
    if not isinstance(value, Tensor):
        value = _as_number(self, value)
    slices = _plain_slices(index, self._type.shape)
    if slices is not None:
        if not direct.write(self, index, slices, value):
            _write_view(sliced(self, slices), value)
        return
    if direct.write_picked(self, index, value):
        return
    reader = _read(self, index)
    view = reader.view(self, [])
    picks = reader.picks
    if not picks:
        _write_view(view, value)
    elif len(picks) == 1 and picks[0][1].dtype is dtypes.bool_ and _is_one(value):
        _write_mask(view, picks[0], value)
    elif len(picks) == 1 and is_mask(picks[0][1]) and not is_known(picks[0][1]):
        _write_traced_mask(view, picks[0], value)
    else:
        view, places, start = _grouped(view, picks, [])
        op, operands, attrs = write_at(view, places, value, start)
        write_in_place(op, *operands, **attrs)


def _as_number(target: Tensor, value: object) -> object:
    if type(value) is PythonNumber and target.dtype.is_floating_point:
        number = value.symbolic()
        return cast(number.tensor, target.dtype) if type(number) is SymbolicNumber else number
    if type(value) in NUMBERS or isinstance(value, (np.generic, *NUMBERS)):
        return number_as(value, target.dtype)
    raise TypeError(
        f"can't assign a {type(value).__name__} to a tensor of {target.dtype.name}; make it a "
        "tensor first"
    )


def _is_one(value: object) -> bool:
    return not isinstance(value, Tensor) or value._type.numel == 1


def _write_view(view: Tensor, value: object) -> None:
    shape = view._type.shape
    if not isinstance(value, Tensor):
        value = constant((), value, view.dtype) if type(value) is DeferredNumber else bind(
            FULL, value, size=(), dtype=view.dtype
        )  # fmt: skip
        value = bind(EXPAND, value, shape=shape) if shape else value
    elif _same_elements(view, value):
        return
    elif value._type.shape != shape:
        value = expand(_without_leading_ones(value, len(shape)), shape)
    assign(view, cast(value, view.dtype))


def _without_leading_ones(value: Tensor, rank: int) -> Tensor:
    own = value._type.shape
    extra = len(own) - rank
    if extra > 0 and all(n == 1 for n in own[:extra]):
        return reshape(value, own[extra:])
    return value


def _same_elements(view: Tensor, value: Tensor) -> bool:
    """Whether a value already is what it shall be written to: the end of ``x[i] += y``."""
    if value._storage is not view._storage or not value._type.same(view._type):
        return False
    mine, other = view._view, value._view
    if STATE.get().grad and not (mine and other and mine.base is other.base is not None):
        return False
    a, b = view.layout_array(), value.layout_array()
    places = [array.__array_interface__["data"] for array in (a, b)]
    return a.strides == b.strides and places[0] == places[1]


def _write_mask(view: Tensor, pick: tuple[int, Tensor], value: object) -> None:
    """One number under a mask: no need to know how often it holds."""
    dim, mask = pick
    behind = view.ndim - dim - mask.ndim
    mask = reshape(mask, (*mask._type.shape, *(1,) * behind))
    if isinstance(value, Tensor):
        value = cast(reshape(value, ()), view.dtype)
    assign(view, bind(WHERE, mask, value, view))


def _write_traced_mask(view: Tensor, pick: tuple[int, Tensor], value: object) -> None:
    """Values under a mask that cannot be read: each element looks up its own."""
    dim, mask = pick[0], cast(pick[1], dtypes.bool_)
    if isinstance(value, Tensor):
        require_same_dtype(view, value)
        value = masked_values(view, dim, mask, value)
    behind = view.ndim - dim - mask.ndim
    there = reshape(mask, (*mask._type.shape, *(1,) * behind))
    assign(view, bind(WHERE, there, value, view))


# -- iteration ----------------------------------------------------------------------------------


def _iterate(self: Tensor) -> Iterator[Tensor]:
    if not self._type.shape:
        raise TypeError("iteration over a 0-d tensor")
    parts = [getitem(self, i) for i in range(self._type.shape[0])]
    for part in parts:
        if part._view is not None:
            part._view.function = "unbind"
    return iter(parts)


def _contains(self: Tensor, element: object) -> bool:
    if not isinstance(element, (Tensor, np.generic, *NUMBERS)):
        raise RuntimeError(
            "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element)}."
        )
    return bool((self == element).any())


getitem.__name__, setitem.__name__ = "__getitem__", "__setitem__"
setattr(Tensor, "__getitem__", getitem)  # noqa: B010 - declared in a stub
setattr(Tensor, "__setitem__", setitem)  # noqa: B010 - declared in a stub
setattr(Tensor, "__iter__", _iterate)  # noqa: B010 - unknown to the type checker
setattr(Tensor, "__contains__", _contains)  # noqa: B010
