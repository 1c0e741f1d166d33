"""Batches of sequences for training: how examples are collated, and where tokens stand in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor, from_array
from evergrad.nested.jagged import NestedTensor, jagged_tensor
from evergrad.ops.rows.creation.constants import arange, full
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.rows.reduce.sums import sum as total
from evergrad.ops.surface.convert import as_tensor


def collate(batch: Sequence[object], *, multiple: int = 1, fill: object = 0) -> Any:
    """Examples of different lengths as a batch: the ``collate_fn`` of a ``DataLoader``.

    Examples are tensors that agree in all but the first dimension, or tuples, lists or dicts of
    such; all parts of one example have one length, so their nested tensors share offsets. Numbers
    become a dense tensor. With ``multiple`` the values are continued with ``fill`` to a multiple of
    that many: these places belong to no example, and a compiled step has one program for all
    batches of the same count. (Give targets of ``-100`` there, which losses leave out, as in
    ``fill={"tokens": 0, "targets": -100}``, or ``fill=(0, -100)`` for tuples.)

    >>> data = [eg.ones(2), eg.ones(3)]
    >>> next(iter(DataLoader(data, batch_size=2, collate_fn=eg.nested.collate))).is_nested
    True
    """
    if multiple < 1:
        raise ValueError(f"collate(): multiple must be at least 1, got {multiple}")
    return _Collation(multiple).collated(list(batch), fill)


class _Collation:
    """One batch: all nested tensors of the same lengths share offsets."""

    def __init__(self, multiple: int) -> None:
        self.multiple = multiple
        self.offsets: dict[tuple[int, ...], Tensor] = {}

    def collated(self, examples: list[Any], fill: object) -> object:
        first = examples[0]
        if isinstance(first, Mapping):
            return {key: self.collated([e[key] for e in examples], _at(fill, key)) for key in first}
        if isinstance(first, tuple | list):
            columns = zip(*examples, strict=True)
            parts = [self.collated(list(c), _at(fill, i)) for i, c in enumerate(columns)]
            named: Callable[..., object] | None = getattr(type(first), "_make", None)
            return type(first)(parts) if named is None else named(parts)
        tensors = [as_tensor(example) for example in examples]
        if not tensors[0].ndim:
            return as_tensor(np.stack([t.numpy() for t in tensors]))
        return self.nested(tensors, fill)

    def nested(self, examples: list[Tensor], fill: object) -> NestedTensor:
        lengths = tuple(int(e.shape[0]) for e in examples)
        offsets = self.offsets.get(lengths)
        if offsets is None:
            ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            offsets = self.offsets[lengths] = from_array(ends)
        rest = -sum(lengths) % self.multiple
        if rest:
            shape = (rest, *examples[0].shape[1:])
            examples = [*examples, full(shape, fill, dtype=examples[0].dtype)]
        return jagged_tensor(cat(examples), offsets)


def _at(fill: Any, key: Any) -> object:
    """What one part of the examples is filled with."""
    return fill[key] if isinstance(fill, Mapping | tuple | list) else fill


def positions(x: NestedTensor) -> NestedTensor:
    """The position of each token in its own example, as a nested tensor of integers; zero for
    values that belong to no example. It is computed from the offsets with ops, so a compiled
    program does it at run time.

    PyTorch has no such function.

    >>> parts = [eg.tensor([1.0, 2.0, 3.0]), eg.tensor([4.0])]
    >>> x = eg.nested.nested_tensor(parts, layout=eg.jagged)
    >>> [p.tolist() for p in eg.nested.positions(x).unbind()]
    [[0, 1, 2], [0]]
    """
    if x._ragged_dim != 1 or x._lengths is not None:
        raise ValueError("positions(): the second dimension must be the ragged one, without gaps")
    tokens, offsets = x._elements._type.shape[0], x._offsets
    token = arange(tokens)
    number = total(reshape(token, (tokens, 1)) >= offsets, 1) - 1
    last = offsets._type.shape[0] - 1
    begin = bind(INDEX, offsets, clamp(number, 0, last), start=0, wrap=False)
    return jagged_tensor(where(number < last, token - begin, 0), offsets)
