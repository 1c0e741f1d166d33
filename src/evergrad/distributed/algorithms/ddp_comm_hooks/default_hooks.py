"""Hooks that average gradients as they are, or in 16-bit floats: half of the bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributed.buckets import GradBucket
from evergrad.distributed.collectives import all_reduce
from evergrad.distributed.process_group import ReduceOp, checked_group
from evergrad.distributed.work import Future

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype


def _average(tensor: Tensor, group: object) -> Future:
    work = all_reduce(tensor, ReduceOp.AVG, checked_group(group), True, "a bucket, by its hook")
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def allreduce_hook(process_group: object, bucket: GradBucket) -> Future:
    """Average the bucket: what happens without a hook."""
    return _average(bucket.buffer(), process_group)


def _compressed(process_group: object, bucket: GradBucket, dtype: dtype) -> Future:
    flat = bucket.buffer()
    mean = _average(flat.to(dtype), process_group)
    return mean.then(lambda future: future.value().to(flat.dtype))


def fp16_compress_hook(process_group: object, bucket: GradBucket) -> Future:
    """Average in float16."""
    return _compressed(process_group, bucket, evergrad.float16)


def bf16_compress_hook(process_group: object, bucket: GradBucket) -> Future:
    """Average in bfloat16; the sum itself is computed in float32 and rounded once."""
    return _compressed(process_group, bucket, evergrad.bfloat16)


def _wrapped(dtype: dtype, hook: Callable[[object, GradBucket], Future]) -> object:
    @functools.wraps(hook)
    def compressed(state: object, bucket: GradBucket) -> Future:
        flat = bucket.buffer()
        bucket.set_buffer(flat.to(dtype))
        return hook(state, bucket).then(lambda future: future.value().to(flat.dtype))

    return compressed


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Any:
    """A hook that gets its bucket in float16."""
    return _wrapped(evergrad.float16, hook)


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Any:
    """A hook that gets its bucket in bfloat16."""
    return _wrapped(evergrad.bfloat16, hook)
