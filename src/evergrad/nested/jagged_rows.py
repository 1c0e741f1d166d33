"""What the rows of the op table mean for ragged tensors.

Elementwise rows are applied to the values of tensors with common offsets; dense tensors beside them
are first spread over the values. Rows along other dimensions than the ragged one are applied to the
values as well; sums over it go from the values to one place for each example, other reductions and
softmax over it are those of the examples. Nothing is padded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.bind import bind
from evergrad.core.compound import no_form
from evergrad.core.dtypes import finfo, iinfo
from evergrad.core.op import TABLE, Op
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor, from_array
from evergrad.extension import provides
from evergrad.nested.jagged import NestedTensor, jagged_tensor
from evergrad.ops.rows.indexing.index import INDEX, INDEX_SUM
from evergrad.ops.rows.movement.joining import cat, stack
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import movedim
from evergrad.ops.rows.reduce.lanes import check_nonempty
from evergrad.ops.rows.reduce.sums import MEAN, SUM
from evergrad.ops.surface.convert import adopt

AMAX, AMIN = TABLE["amax"], TABLE["amin"]
if TYPE_CHECKING:
    from evergrad.core.types import Args, Attrs

Row = Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]

_ON_VALUES = frozenset(
    TABLE[name] for name in ("cast", "clone", "where", "conj", "real", "imag", "complex")
)


@provides("jagged_row")
def apply_row(op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> Any:
    """Apply a row to arguments of which at least one is ragged."""
    if op.family == "elementwise" or op in _ON_VALUES:
        return _elementwise(op, args, attrs)
    row = _ROWS.get(op)
    if row is None and attrs.keys() == {"dims", "keepdim"}:
        row = _fold
    if row is None:
        raise no_form(op.name, _first_ragged(args))
    return row(op, args, attrs)


def _first_ragged(args: Sequence[object]) -> NestedTensor:
    return next(a for a in args if isinstance(a, NestedTensor))


# -- element by element -------------------------------------------------------------------------


def _elementwise(op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
    like = _first_ragged(args)
    rank = max(a.ndim for a in args if isinstance(a, NestedTensor))
    for other in args:
        if isinstance(other, NestedTensor):
            _check_common(op.name, like, other)
    values = [_beside_values(op.name, a, like, rank) for a in args]
    return like.with_elements(bind(op, *values, **attrs))


def _check_common(name: str, a: NestedTensor, b: NestedTensor) -> None:
    if a.ragged is not b.ragged or a._ragged_dim != b._ragged_dim or a.ndim != b.ndim:
        raise RuntimeError(
            f"cannot call binary pointwise function {name} with inputs of shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}: the ragged dimensions must have the same "
            "offsets (make one of them with nested_tensor_from_jagged(values, other.offsets()))"
        )


def _beside_values(name: str, operand: object, like: NestedTensor, rank: int) -> object:
    """An operand as it stands beside the values."""
    if isinstance(operand, NestedTensor):
        return operand.live_elements()
    if not isinstance(operand, Tensor) or not operand.ndim:
        return operand
    if operand.ndim > rank:
        raise RuntimeError(
            f"{name}: a dense tensor of {list(operand.shape)} has more dimensions than the nested "
            f"one of {tuple(like.shape)}"
        )
    dense = operand.reshape((1,) * (rank - operand.ndim) + tuple(operand.shape))
    return _spread(name, dense, like)


def _spread(name: str, dense: Tensor, like: NestedTensor) -> Tensor:
    """A dense tensor of equal rank over the values: a row for each example, or the padded form."""
    dim = like._ragged_dim
    batch, extent = dense._type.shape[0], dense._type.shape[dim]
    if extent == 1 and batch == 1:
        return dense.squeeze(0)
    cells = like.cells()
    if batch == len(like) and extent == 1 and like._lengths is None:
        rows = bind(INDEX, dense.squeeze(dim), adopt(cells.example), start=0, wrap=False)
        return movedim(rows, 0, dim - 1)
    if batch == len(like) and extent == cells.longest and like._lengths is None:
        places = adopt(cells.example), adopt(cells.place)
        rows = bind(INDEX, movedim(dense, dim, 1), *places, start=0, wrap=False)
        return movedim(rows, 0, dim - 1)
    raise RuntimeError(
        f"{name}: a dense tensor of {list(dense.shape)} does not broadcast with a nested one of "
        f"{tuple(like.shape)}"
    )


# -- products -----------------------------------------------------------------------------------


def _linear(op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
    x, weight = args
    if not isinstance(x, NestedTensor) or x._ragged_dim == x.ndim - 1:
        raise no_form(op.name, _first_ragged(args))
    return x.with_elements(bind(op, x.live_elements(), weight))


def _product(op: Op, args: Args, attrs: Attrs) -> Any:
    a, b = args
    if _contracts_ragged(a, b):
        return stack([x @ y for x, y in zip(a.unbind(), b.unbind(), strict=True)])
    if not isinstance(a, NestedTensor) and a.ndim == 2 and b.ndim == 3 and b._ragged_dim == 2:
        return b.with_elements(a @ b.live_elements())
    inner_is_ragged = isinstance(a, NestedTensor) and a._ragged_dim == a.ndim - 1
    if not isinstance(a, NestedTensor) or isinstance(b, NestedTensor) or inner_is_ragged:
        raise RuntimeError(
            f"matmul(): not supported between inputs of shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}"
        )
    if b.ndim == 2:
        return a.with_elements(a.live_elements() @ b)
    if b.ndim != a.ndim or b.shape[0] != len(a) or a._lengths is not None or a.ndim != 3:
        raise RuntimeError(
            f"matmul(): not supported between inputs of shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}"
        )
    return a.with_elements(cat([x @ y for x, y in zip(a.unbind(), b.unbind(), strict=True)]))


def _contracts_ragged(a: object, b: object) -> bool:
    """Whether a product sums over the ragged dimension of both, so that its result is dense."""
    if not isinstance(a, NestedTensor) or not isinstance(b, NestedTensor):
        return False
    is_inner = a._ragged_dim == a.ndim - 1 and b._ragged_dim == b.ndim - 2
    return is_inner and a.ragged is b.ragged and a.ndim == b.ndim


def _looked_up(op: Op, args: Args, attrs: Attrs) -> object:
    """Rows of a dense table at ragged numbers."""
    table, *numbers = args
    if isinstance(table, NestedTensor) or len(numbers) != 1 or attrs["start"] != 0:
        raise no_form(op.name, _first_ragged(args))
    return numbers[0].with_elements(bind(op, table, numbers[0].live_elements(), **attrs))


# -- folds --------------------------------------------------------------------------------------


def _fold(op: Op, args: Args, attrs: Attrs) -> object:
    x: NestedTensor = args[0]
    dims, keepdim = attrs["dims"], attrs["keepdim"]
    dim = x._ragged_dim
    if len(dims) == x.ndim:
        return _fold_all(op, x, args[1:], keepdim)
    if dim not in dims:
        if 0 in dims:
            raise RuntimeError(
                f"{op.name}(): reducing along the batch dimension but not the ragged dimension is "
                "not supported for nested tensors"
            )
        return _fold_values(op, x, args[1:], dims, keepdim)
    if set(dims) == {0, dim}:
        if op in (AMAX, AMIN):
            check_nonempty(op.name, covered_values(x)._type.shape, (dim - 1,))
        folded = bind(op, covered_values(x), *args[1:], dims=(dim - 1,), keepdim=keepdim)
        return folded.unsqueeze(0) if keepdim else folded
    if dims != (dim,):
        raise RuntimeError(
            f"{op.name}(): reducing along a ragged and non-batch dimension is not supported for "
            "nested tensors"
        )
    return _fold_examples(op, x, args[1:], keepdim)


def covered_values(x: NestedTensor) -> Tensor:
    """The values that belong to an example."""
    if x._lengths is None:
        return x.live_elements()
    return x.live_elements().index_select(x._ragged_dim - 1, adopt(x.cells().number))


def _fold_all(op: Op, x: NestedTensor, options: tuple[object, ...], keepdim: bool) -> Tensor:
    values = covered_values(x)
    if op in (AMAX, AMIN):
        check_nonempty(op.name, values._type.shape, range(values.ndim))
    folded: Tensor = bind(op, values, *options, dims=tuple(range(values.ndim)), keepdim=False)
    return folded.reshape((1,) * x.ndim) if keepdim else folded


def _fold_values(
    op: Op, x: NestedTensor, options: tuple[object, ...], dims: Shape, keepdim: bool
) -> NestedTensor:
    inner = tuple(d - 1 for d in dims)
    folded = bind(op, x.live_elements(), *options, dims=inner, keepdim=keepdim)
    before = 0 if keepdim else sum(d < x._ragged_dim for d in dims)
    return jagged_tensor(folded, x._offsets, x._lengths, x._ragged_dim - before)


def _fold_examples(op: Op, x: NestedTensor, options: tuple[object, ...], keepdim: bool) -> Tensor:
    """One place for each example: sums by the example's number, others example by example."""
    dim = x._ragged_dim
    if op is not SUM and op is not MEAN:
        if op in (AMAX, AMIN):
            return stack(_extremes(op, x, keepdim))
        at = {"dims": (dim - 1,), "keepdim": keepdim}
        return stack([bind(op, example, *options, **at) for example in x.unbind()])
    cells = x.cells()
    values = movedim(covered_values(x), dim - 1, 0)
    example = adopt(cells.example)
    total = bind(INDEX_SUM, values, example, start=0, extents=(cells.count,))
    if op is MEAN:
        ones = adopt(cells.example * 0).to(x.dtype) + 1
        counts = bind(INDEX_SUM, ones, example, start=0, extents=(cells.count,))
        total = total / counts.reshape(-1, *(1,) * (total.ndim - 1))
    return total.unsqueeze(dim) if keepdim else total  # type: ignore[no-any-return]


def _extremes(op: Op, x: NestedTensor, keepdim: bool) -> list[Tensor]:
    """Of each example; of an empty one the least (greatest) finite number, as in PyTorch."""
    dim = x._ragged_dim - 1
    examples = x.unbind()
    if not any(example._type.shape[dim] for example in examples):
        raise IndexError(f"{op.name}(): Expected reduction dim {dim + 1} to have non-zero size.")
    limits = finfo(x.dtype) if x.dtype.is_floating_point else iinfo(x.dtype)
    neutral = limits.min if op is AMAX else limits.max
    found = []
    for example in examples:
        if not example._type.shape[dim]:
            shape = [1 if d == dim else n for d, n in enumerate(example._type.shape)]
            example = example.new_full(shape, neutral)
        found.append(bind(op, example, dims=(dim,), keepdim=keepdim))
    return found


def _softmax(op: Op, args: Args, attrs: Attrs) -> object:
    x: NestedTensor = args[0]
    dim = attrs["dim"]
    if dim == 0:
        raise RuntimeError(
            f"{op.name}(): not supported when operating along the batch dimension for NestedTensor"
        )
    if dim != x._ragged_dim:
        return x.with_elements(bind(op, x.live_elements(), **{**attrs, "dim": dim - 1}))
    if x._lengths is not None:
        raise no_form(op.name, x)
    at = {**attrs, "dim": dim - 1}
    parts = [bind(op, example, **at) for example in x.unbind()]
    return x.with_elements(cat(parts, dim - 1) if parts else x.live_elements())


def _along(op: Op, args: Args, attrs: Attrs) -> Any:
    """Places along a dimension, and what stands there."""
    x, dim = _first_ragged(args), attrs["dim"]
    if dim == 0:
        raise no_form(op.name, x)
    at = {**attrs, "dim": dim - 1}
    if dim == x._ragged_dim:
        if not all(example._type.shape[dim - 1] for example in x.unbind()):
            raise IndexError(f"{op.name}(): Expected reduction dim {dim} to have non-zero size.")
        rows = zip(*[a.unbind() for a in args], strict=True)
        return stack([bind(op, *row, **at) for row in rows])
    for other in args:
        if not isinstance(other, NestedTensor):
            raise no_form(op.name, x)
        _check_common(op.name, x, other)
    return x.with_elements(bind(op, *[a.live_elements() for a in args], **at))


# -- other shapes -------------------------------------------------------------------------------


def _reshaped(op: Op, args: Args, attrs: Attrs) -> NestedTensor:
    """Singleton dimensions more or less, and others behind the ragged one in another division."""
    x: NestedTensor = args[0]
    target = list(attrs["shape"])
    at = next((d for d, extent in enumerate(target) if extent is x.ragged), 0)
    values = x.live_elements()
    before = values._type.shape[: x._ragged_dim - 1]
    if not at or target[0] != len(x) or math.prod(target[1:at]) != math.prod(before):
        raise no_form("reshape", x)
    target[at] = values._type.shape[x._ragged_dim - 1]
    return jagged_tensor(bind(op, values, shape=tuple(target[1:])), x._offsets, x._lengths, at)


def _permuted(op: Op, args: Args, attrs: Attrs) -> NestedTensor:
    x: NestedTensor = args[0]
    order = attrs["order"]
    if order[0] != 0:
        raise RuntimeError("the first dimension of a nested tensor, its examples, stays the first")
    values = x.live_elements().permute(tuple(d - 1 for d in order[1:]))
    return jagged_tensor(values, x._offsets, x._lengths, order.index(x._ragged_dim))


def _sliced(op: Op, args: Args, attrs: Attrs) -> Tensor:
    """An example, some of them, or parts of dimensions behind the ragged one."""
    x: NestedTensor = args[0]
    slices = list(attrs["slices"])
    whole = [(0, extent, 1) for extent in x._type.shape]
    if slices[1:] == whole[1:] and isinstance(slices[0], int):
        return x.unbind()[slices[0]]
    if slices[1:] == whole[1:] and not isinstance(slices[0], int) and slices[0][2] == 1:
        return _examples_between(x, *slices[0][:2])
    if slices[0] != whole[0] or slices[x._ragged_dim] != whole[x._ragged_dim]:
        raise no_form("slice", x)
    values = x.live_elements()
    slices[x._ragged_dim] = (0, values._type.shape[x._ragged_dim - 1], 1)
    dropped = sum(isinstance(part, int) for part in slices[: x._ragged_dim])
    cut = bind(op, values, slices=tuple(slices[1:]))
    return jagged_tensor(cut, x._offsets, x._lengths, x._ragged_dim - dropped)


def _examples_between(x: NestedTensor, start: int, stop: int) -> NestedTensor:
    """Some of the examples, as they lie one after the other."""
    if x._lengths is not None:
        lengths = x._lengths[start:stop]
        return jagged_tensor(
            x.live_elements(), x._offsets[start : stop + 1], lengths, x._ragged_dim
        )
    offsets = x._offsets.array()[start : stop + 1]
    values = slice_dim(x.live_elements(), x._ragged_dim - 1, int(offsets[0]), int(offsets[-1]))
    return jagged_tensor(values, from_array(offsets - offsets[0]), None, x._ragged_dim)


def _joined(op: Op, args: Args, attrs: Attrs) -> object:
    first, dim = _first_ragged(args), attrs["dim"]
    if dim in (0, first._ragged_dim) or not all(isinstance(a, NestedTensor) for a in args):
        raise no_form("cat", first)
    for other in args:
        _check_common("cat", first, other)
    return first.with_elements(bind(op, *[a.live_elements() for a in args], dim=dim - 1))


_MEANINGS: dict[str, Row] = {
    "linear": _linear,
    "matmul": _product,
    "index": _looked_up,
    "embedding": _looked_up,
    **dict.fromkeys(("sum", "mean", "amax", "amin"), _fold),
    "softmax": _softmax,
    "log_softmax": _softmax,
    **dict.fromkeys(("argmax", "argmin", "gather"), _along),
    "reshape": _reshaped,
    "permute": _permuted,
    "slice": _sliced,
    "cat": _joined,
}
_ROWS: dict[Op, Row] = {TABLE[name]: meaning for name, meaning in _MEANINGS.items()}
