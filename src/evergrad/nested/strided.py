"""Lists of dense tensors as one tensor: examples of any shapes, with all elements in one buffer.

Elementwise rows are applied to the buffer, all others to one example after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from evergrad.core.bind import bind
from evergrad.core.compound import CompoundType, no_form, without_array
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import strided
from evergrad.core.op import TABLE, Op
from evergrad.core.shapes import Shape, normalize_dim
from evergrad.core.tensor import Tensor
from evergrad.nested.in_place import WritableNested
from evergrad.nested.ragged import RaggedSize
from evergrad.ops.composite.padding import pad
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.movement.joining import cat, stack
from evergrad.ops.rows.movement.slices import slice_dim

if TYPE_CHECKING:
    from evergrad.core.types import Attrs, DtypeLike, MemoryFormatLike

_ON_VALUES = frozenset((TABLE["cast"], TABLE["clone"]))
_ON_EXAMPLES = frozenset(
    TABLE[name] for name in ("permute", "matmul", "linear", "softmax", "log_softmax", "sum", "mean")
)


class StridedNestedTensor(WritableNested):
    """Examples of any shapes with the same number of dimensions."""

    __slots__ = ("_elements", "_shapes")

    backend = "NestedTensorCPU"
    layout_name = "NestedTensor"
    layout = strided
    is_nested = True

    _shapes: tuple[Shape, ...]

    # -- pattern ----------------------------------------------------------------------------

    def rebuilt(self, elements: Tensor) -> StridedNestedTensor:
        return raw_strided(elements, self._shapes, self._type.shape)

    def parts(self) -> tuple[Tensor, ...]:
        return (self._elements,)

    def at_pattern(self, cotangent: Tensor) -> Tensor:
        if not isinstance(cotangent, StridedNestedTensor) or cotangent._shapes != self._shapes:
            raise RuntimeError("the gradient of a nested tensor must be one of the same shapes")
        return cotangent.live_elements()

    def has_layout_of(self, other: Tensor) -> bool:
        return isinstance(other, StridedNestedTensor) and other._shapes == self._shapes

    def filled(self, value: object, dtype: dtype) -> Tensor:
        return self.rebuilt(full(self._elements.shape, value, dtype=dtype))

    def bind_row(self, op: Op, args: tuple[object, ...], attrs: Attrs) -> Any:
        if op.family == "elementwise" or op in _ON_VALUES:
            return self._elementwise(op, args, attrs)
        if op not in _ON_EXAMPLES:
            raise no_form(op.name, self)
        if 0 in attrs.get("dims", ()) or attrs.get("dim") == 0 or attrs.get("order", (0,))[0] != 0:
            raise no_form(op.name, self)
        if "dims" in attrs and not (attrs["keepdim"] and attrs["dims"] == (self.ndim - 1,)):
            raise no_form(op.name, self)
        inner = {name: _without_first(value) for name, value in attrs.items()}
        columns = [_examples_of(a, len(self)) for a in args]
        found = [bind(op, *row, **inner) for row in zip(*columns, strict=True)]
        return of_examples(found)

    def _elementwise(self, op: Op, args: tuple[object, ...], attrs: dict[str, object]) -> object:
        width = self._type.shape[-1]
        rows = any(isinstance(a, Tensor) and a._type.shape == (width,) for a in args)
        values = [self._beside(op.name, a, rows) for a in args]
        return self.with_elements(bind(op, *values, **attrs).reshape(-1))

    def _beside(self, name: str, operand: object, as_rows: bool) -> object:
        """An operand as it stands beside the buffer: a number, a nested tensor of the same shapes,
        or a vector along the last dimension, if all examples have the same one."""
        if isinstance(operand, StridedNestedTensor):
            if operand._shapes != self._shapes:
                raise RuntimeError(
                    f"{name}: nested tensors must have examples of the same shapes, got "
                    f"{list(self._shapes)} and {list(operand._shapes)}"
                )
            values = operand.live_elements()
            return values.reshape(-1, self._type.shape[-1]) if as_rows else values
        if isinstance(operand, Tensor) and operand.ndim and not (as_rows and operand.ndim == 1):
            raise RuntimeError(
                "Expected both self and other to be nested, but got a nested self and "
                "non-nested other"
            )
        return operand

    # -- what it is -------------------------------------------------------------------------

    @property
    def shape(self) -> NoReturn:
        """The examples have shapes, the whole has none."""
        raise RuntimeError(
            "a nested tensor of the strided layout has no shape; use size(dim) for dimensions in "
            "which the examples agree, or unbind()"
        )

    def size(self, dim: int | None = None) -> Any:
        """The extent of a dimension in which the examples agree."""
        if dim is None:
            return self.shape
        dim = normalize_dim(dim, self.ndim)
        extent: object = self._type.shape[dim]
        if isinstance(extent, RaggedSize):
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return extent

    def is_contiguous(self, memory_format: MemoryFormatLike = None) -> bool:
        return True

    def values(self) -> Tensor:
        """All elements in one dimension."""
        return self.live_elements()

    # -- examples ---------------------------------------------------------------------------

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The examples, as dense tensors that look at the buffer."""
        if normalize_dim(dim, self.ndim) != 0:
            raise RuntimeError("NestedTensor can only be unbound along dimension 0")
        values = self.live_elements()
        ends = [0, *itertools.accumulate(math.prod(shape) for shape in self._shapes)]
        return tuple(
            slice_dim(values, 0, start, stop).reshape(shape)
            for shape, (start, stop) in zip(self._shapes, itertools.pairwise(ends), strict=True)
        )

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __getitem__(self, index: object) -> Tensor:
        items = index if isinstance(index, tuple) else (index,)
        if not isinstance(items[0], int):
            raise no_form("index", self)
        example = self.unbind()[items[0]]
        return example[items[1:]] if len(items) > 1 else example

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """A dense tensor as large as the largest example, the others filled up."""
        largest = tuple(max(extents) for extents in zip(*self._shapes, strict=True))
        target = largest if output_size is None else tuple(output_size)[1:]
        if any(n < m for n, m in zip(target, largest, strict=True)):
            raise RuntimeError(
                "Value in output_size is less than NestedTensor padded size. Truncation is not "
                "supported."
            )
        return stack([_filled_up(example, target, padding) for example in self.unbind()])

    def to_dense(self, dtype: DtypeLike = None, *, masked_grad: bool | None = None) -> Tensor:
        """A nested tensor has no dense form of its own shape."""
        raise RuntimeError(
            "a nested tensor has no dense form; to_padded_tensor(padding) makes one with its "
            "examples filled up"
        )

    # -- the rest ---------------------------------------------------------------------------

    def _text(self) -> str:
        texts = [repr(example).replace("\n", "\n  ") for example in self.detach().unbind()]
        node = self.grad_fn
        history = f", grad_fn=<{node.name()}>" if node is not None else ""
        if node is None and self.requires_grad:
            history = ", requires_grad=True"
        return "nested_tensor([\n  " + ",\n  ".join(texts) + "\n]" + history + ")"

    def __reduce_ex__(
        self, protocol: object
    ) -> tuple[
        Callable[[Tensor, tuple[tuple[int, ...], ...], bool], Tensor],
        tuple[Tensor, tuple[tuple[int, ...], ...], bool],
    ]:
        return _rebuilt, (self._elements, self._shapes, self.requires_grad)


def _rebuilt(elements: Tensor, shapes: tuple[Shape, ...], requires_grad: bool) -> Tensor:
    return raw_strided(elements, shapes).requires_grad_(requires_grad)


def _examples_of(operand: object, count: int) -> tuple[object, ...]:
    if isinstance(operand, StridedNestedTensor):
        return operand.unbind()
    if isinstance(operand, Tensor) and operand.ndim > 2:
        return operand.unbind()
    return (operand,) * count


def _without_first(attr: object) -> object:
    """An attribute of a row on the whole as it is for one example: dimensions count one less."""
    if isinstance(attr, bool) or not isinstance(attr, int | tuple):
        return attr
    if isinstance(attr, int):
        return attr - 1
    return tuple(d - 1 for d in attr if d != 0)


def _filled_up(example: Tensor, shape: Shape, padding: float) -> Tensor:
    amounts: list[int] = []
    for own, wanted in zip(reversed(example._type.shape), reversed(shape), strict=True):
        amounts += [0, wanted - own]
    return pad(example, amounts, value=padding)


def raw_strided(
    elements: Tensor, shapes: tuple[Shape, ...], common: tuple[object, ...] | None = None
) -> StridedNestedTensor:
    """A nested tensor of these parts, without history. Nothing is checked. ``common`` is the shape
    of the whole, if there is one already."""
    if common is None:
        inner = (
            extents[0] if len(set(extents)) == 1 else RaggedSize()
            for extents in zip(*shapes, strict=True)
        )
        common = (len(shapes), *inner)
    type = CompoundType(common, elements.dtype, elements.numel())
    made: StridedNestedTensor = without_array(StridedNestedTensor, type)
    made._elements = elements
    made._shapes = shapes
    return made


def of_examples(examples: list[Tensor]) -> StridedNestedTensor:
    """A nested tensor of these examples, with their history."""
    elements = cat([example.reshape(-1) for example in examples])
    made = raw_strided(elements.detach(), tuple(tuple(e._type.shape) for e in examples))
    return made.with_elements(elements)  # type: ignore[no-any-return]
