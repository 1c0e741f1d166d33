"""A hook that does not communicate, to see how fast a step would be."""

from __future__ import annotations

from evergrad.distributed.buckets import GradBucket
from evergrad.distributed.work import Future


def noop_hook(_: object, bucket: GradBucket) -> Future:
    """Leave the gradients of each process as they are: processes will diverge."""
    future = Future()
    future.set_result(bucket.buffer())
    return future
