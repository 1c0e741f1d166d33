"""The functions of ``evergrad.nested``: ragged tensors from examples, parts and masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import as_dtype
from evergrad.core.memory_format import jagged, strided
from evergrad.core.memory_format import layout as Layout
from evergrad.core.shapes import normalize_dim
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.tracing import is_known
from evergrad.nested.jagged import NestedTensor, jagged_tensor
from evergrad.nested.strided import StridedNestedTensor, of_examples
from evergrad.ops.rows.creation.constants import check_place
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.surface.convert import as_tensor
from evergrad.ops.surface.public import write_out
from evergrad.sparse.pattern import Patterned

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Ints


def nested_tensor(
    tensor_list: object, *, dtype: DtypeLike = None, layout: Layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Examples of different lengths as one tensor, which is a copy of them and a leaf.

    Args:
        tensor_list: the examples
        dtype: element type; default theirs
        layout: ``eg.jagged`` or ``eg.strided`` (default)
        device: only the CPU
        requires_grad: whether ``backward`` accumulates a gradient for it; default ``False``
        pin_memory: accepted

    >>> parts = [eg.tensor([1.0, 2.0, 3.0]), eg.tensor([4.0])]
    >>> x = eg.nested.nested_tensor(parts, layout=eg.jagged)
    >>> x.is_nested, [part.tolist() for part in (x * 2).unbind()]
    (True, [[2.0, 4.0, 6.0], [8.0]])
    """
    if isinstance(tensor_list, Tensor) or not isinstance(tensor_list, Sequence):
        raise TypeError(
            "Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor"
        )
    examples = [as_tensor(example).detach() for example in tensor_list]
    made: Any = as_nested_tensor(examples, dtype, device, layout)
    copied = made.rebuilt(made._elements.detach().clone())
    return copied.requires_grad_(requires_grad)  # type: ignore[no-any-return]


def as_nested_tensor(
    ts: object, dtype: DtypeLike = None, device: DeviceLike = None, layout: Layout | None = None
) -> Tensor:
    """Examples of different lengths, or a dense tensor of equal ones, as one ragged tensor with
    their history.

    Args:
        ts: the examples, or a dense tensor
        dtype: element type; default theirs
        device: only the CPU
        layout: ``eg.jagged`` or ``eg.strided`` (default)

    >>> parts = [eg.ones(2, requires_grad=True), eg.ones(1)]
    >>> eg.nested.as_nested_tensor(parts).requires_grad
    True
    """
    check_place(device)
    if isinstance(ts, Patterned) and ts.is_nested:
        return _converted(ts, dtype)
    if not isinstance(ts, Tensor | list | tuple):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / "
                        "tuple of tensors ")  # fmt: skip
    if not isinstance(ts, Tensor) and not all(isinstance(t, Tensor) for t in ts):
        raise TypeError("as_nested_tensor(): Expected list / tuple elements to be tensors")
    examples = [_converted(t, dtype) for t in (ts.unbind() if isinstance(ts, Tensor) else ts)]
    if layout is jagged:
        return _jagged_of(examples)
    if layout not in (None, strided):
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}")
    if len({example.ndim for example in examples}) > 1:
        raise RuntimeError("All Tensors given to nested_tensor must have the same dimension.")
    return of_examples(_common(examples))


def _converted(tensor: Tensor, dtype: DtypeLike) -> Tensor:
    return tensor if dtype is None else cast(tensor, as_dtype(dtype))


def _common(examples: list[Tensor]) -> list[Tensor]:
    if not examples:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    return examples


def _jagged_of(examples: list[Tensor]) -> NestedTensor:
    """Examples that differ in one dimension at most; the first if they do not differ."""
    shapes = [example._type.shape for example in _common(examples)]
    ranks = {len(shape) for shape in shapes}
    extents = list(zip(*shapes, strict=False))
    ragged = [d for d, found in enumerate(extents) if len(set(found)) > 1]
    if len(ranks) > 1 or 0 in ranks or len(ragged) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note "
            "that the jagged layout only allows for a single ragged dimension. For example: "
            "(B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    dim = ragged[0] if ragged else 0
    return jagged_tensor(cat(examples, dim), _offsets_of(extents[dim]), ragged_dim=dim + 1)


def _offsets_of(lengths: Any) -> Tensor:
    return from_array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None,
    jagged_dim: int | None = None, min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> NestedTensor:  # fmt: skip
    """A ragged tensor that looks at ``values``: examples begin at ``offsets``, and reach to the
    next one or are ``lengths`` long.

    Args:
        values: the rows of all examples (total, *)
        offsets: (examples + 1), where each begins; or
        lengths: (examples) their lengths
        jagged_dim: default 1
        min_seqlen, max_seqlen: the least and the greatest length, if known

    >>> x = eg.nested.nested_tensor_from_jagged(eg.arange(4), eg.tensor([0, 3, 4]))
    >>> [part.tolist() for part in x.unbind()]
    [[0, 1, 2], [3]]
    """
    if offsets is None and lengths is None:
        raise RuntimeError(
            "nested_tensor_from_jagged(): At least one of offsets or lengths is required."
        )
    if offsets is None:
        assert lengths is not None
        offsets, lengths = _offsets_of(lengths.array()), None
    dim = 1 if jagged_dim is None else normalize_dim(jagged_dim, values.ndim + 1)
    if dim == 0:
        raise ValueError("Expected jagged_dim >=1, but got 0.")
    check_offsets(offsets, lengths, values._type.shape[dim - 1])
    return jagged_tensor(values, offsets, lengths, dim)


def _is_traced(tensor: Tensor | None) -> bool:
    return tensor is not None and not is_known(tensor)


def check_offsets(offsets: Tensor, lengths: Tensor | None, extent: int) -> None:
    """Raise unless offsets, and lengths if there are any, name parts of so many values."""
    if offsets.ndim != 1 or offsets.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(
            "offsets must be integers in one dimension: where each example begins, and the end"
        )
    if _is_traced(offsets) or _is_traced(lengths):
        return  # known at run time, when the rows that read them check them
    starts = offsets.array()
    ends = starts[1:] if lengths is None else starts[:-1] + lengths.array()
    outside = starts.size and (starts.min() < 0 or (ends.size and ends.max() > extent))
    if lengths is not None and (lengths.array() < 0).any():
        raise RuntimeError(f"lengths must be from 0 on, got {lengths.tolist()}")
    if outside or (np.diff(starts) < 0).any():
        raise RuntimeError(
            f"offsets must grow from 0 to at most {extent}, the number of values; got "
            f"{starts.tolist()}"
        )


def to_padded_tensor(
    input: object,
    padding: float,
    output_size: Ints | Sequence[int | None] | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """A dense tensor as large as the largest example, the others filled up with ``padding``.

    Args:
        input: a nested tensor
        padding: the number to fill up with
        output_size: pad to this shape; default that of the largest example

    >>> x = eg.nested.nested_tensor([eg.tensor([1.0, 2.0]), eg.tensor([3.0])])
    >>> eg.nested.to_padded_tensor(x, 0.0)
    tensor([[1., 2.],
            [3., 0.]])
    """
    if not isinstance(input, NestedTensor | StridedNestedTensor):
        raise NotImplementedError("to_padded_tensor(): input must be a nested tensor")
    padded = input.to_padded_tensor(padding, output_size)
    return padded if out is None else write_out("to_padded_tensor", out, padded)


def narrow(
    tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor, layout: Layout = strided
) -> Tensor:
    """A part of each example of a dense tensor, beginning at its own ``start``; a ragged tensor
    that looks at the same elements.

    Args:
        tensor: (n, m, *)
        dim: 1
        start: where each part begins, a number or (n)
        length: how long it is, a number or (n)
        layout: ``eg.jagged`` or ``eg.strided`` (default)

    >>> x = eg.arange(6).view(2, 3)
    >>> parts = eg.nested.narrow(x, 1, eg.tensor([0, 1]), eg.tensor([3, 1]), layout=eg.jagged)
    >>> [part.tolist() for part in parts.unbind()]
    [[0, 1, 2], [4]]
    """
    if layout is not jagged:
        raise RuntimeError("Dense tensors can be narrowed to nested tensors of layout=jagged only")
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    count, extent = tensor._type.shape[:2]
    starts, lengths = (
        np.broadcast_to(n.array() if isinstance(n, Tensor) else n, count) for n in (start, length)
    )
    values = tensor.reshape(count * extent, *tensor.shape[2:])
    offsets = np.append(np.arange(count) * extent + starts, count * extent)
    return nested_tensor_from_jagged(
        values, from_array(offsets.astype(np.int64)), from_array(lengths.astype(np.int64))
    )


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """For each row of a matrix the elements under a mask, as a ragged tensor.

    Args:
        tensor: (n, m)
        mask: booleans that can be broadcast with it

    >>> x = eg.tensor([[1, 2], [3, 4]])
    >>> [row.tolist() for row in eg.nested.masked_select(x, x > 1).unbind()]
    [[2], [3, 4]]
    """
    if tensor.layout is not strided or mask.dtype is not dtypes.bool_:
        raise RuntimeError("masked_select requires a strided tensor and a mask of booleans")
    there = mask.expand(tensor.shape)
    rows = tensor.masked_select(there)
    return jagged_tensor(rows, _offsets_of(there.sum(-1).array()))
