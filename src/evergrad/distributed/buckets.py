"""Buckets: gradients of several parameters in one flat tensor, reduced together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.memory.ledger import GRADIENT

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype

# The capacity of the first bucket, so that communication begins early, and of the others, as in
# PyTorch.
FIRST_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


def assign_buckets(
    parameters: Sequence[Tensor], order: Sequence[int], capacity: float, first: float
) -> list[list[int]]:
    """Parameter numbers in buckets, in the given order. A bucket has one dtype, and is closed by
    the parameter with which it reaches its capacity in bytes, as in PyTorch; the first of each
    dtype has a capacity of its own."""
    buckets: list[list[int]] = []
    open_buckets: dict[object, tuple[list[int], int]] = {}
    limits: dict[dtype, float] = {}
    for number in order:
        parameter = parameters[number]
        dtype = parameter.dtype
        if dtype not in open_buckets:
            open_buckets[dtype] = [], 0
            buckets.append(open_buckets[dtype][0])
        numbers, nbytes = open_buckets[dtype]
        numbers.append(number)
        open_buckets[dtype] = numbers, nbytes + parameter.nbytes
        if open_buckets[dtype][1] >= limits.get(dtype, first):
            del open_buckets[dtype]
            limits[dtype] = capacity
    return buckets


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one dtype in one flat tensor."""
    flat: Tensor = evergrad.cat([t.detach().reshape(-1) for t in tensors])
    return flat


def split(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat tensor with the shapes of some tensors, one after the other."""
    ends = list(accumulate(t.numel() for t in tensors))
    with evergrad.no_grad():
        return [
            flat[end - t.numel() : end].view(t.shape) for t, end in zip(tensors, ends, strict=True)
        ]


def listed(names: Sequence[str]) -> str:
    """The names of parameters for errors, at most four of them."""
    more = f", ... {len(names)} parameters" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


class Bucket:
    """One flat tensor with a part for each of its parameters."""

    def __init__(self, index: int, numbers: list[int], parameters: Sequence[Tensor]) -> None:
        self.index = index
        self.numbers = numbers
        self.parameters: list[Tensor] = [parameters[n] for n in numbers]
        self.missing: int = len(numbers)
        self.future: Any = None

    @cached_property
    def flat(self) -> Tensor:
        """The memory of the gradients; a traced reduction has no use for it."""
        made: Tensor = evergrad.zeros(
            sum(p.numel() for p in self.parameters), dtype=self.parameters[0].dtype
        )
        made._storage.tag(GRADIENT)
        return made

    @cached_property
    def parts(self) -> list[Tensor]:
        """The part of each parameter."""
        return split(self.flat, self.parameters)

    def label(self, names: Sequence[str]) -> str:
        """What errors call it."""
        return f"bucket {self.index} ({listed([names[n] for n in self.numbers])})"


class GradBucket:
    """The argument of a communication hook: the bucket's flat gradient and what is in it. In a
    trace the gradient is a traced tensor, given by ``buffer``.

    A hook that sends half as many bytes::

        def halved(state, bucket):
            small = bucket.buffer().to(eg.bfloat16)
            work = dist.all_reduce(small, async_op=True)
            world = dist.get_world_size()
            return work.get_future().then(lambda done: done.value()[0].float() / world)

        model.register_comm_hook(None, halved)
    """

    def __init__(self, bucket: Bucket, is_last: bool, buffer: Tensor | None = None) -> None:
        self._bucket = bucket
        self._buffer = bucket.flat if buffer is None else buffer
        self._is_last = is_last

    def buffer(self) -> Tensor:
        """The flat gradient of this process."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Replace the flat gradients."""
        self._buffer = tensor

    def index(self) -> int:
        """The number of the bucket."""
        return self._bucket.index

    def is_last(self) -> bool:
        """Whether it is the last bucket of the backward pass."""
        return self._is_last

    def gradients(self) -> list[Tensor]:
        """The gradients, views of the buffer."""
        return split(self._buffer, self._bucket.parameters)

    def parameters(self) -> list[Tensor]:
        """The parameters of the bucket."""
        return list(self._bucket.parameters)
