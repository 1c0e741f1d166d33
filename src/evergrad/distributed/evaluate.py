"""The evaluation of rows that communicate: eager, in backward passes and in compiled programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from evergrad.distributed.agreement import Call
from evergrad.distributed.buffers import Array
from evergrad.distributed.process_group import ProcessGroup, group_of_name
from evergrad.distributed.progress import DistributedError, Steps
from evergrad.distributed.work import Work
from evergrad.extension import provides


@provides("communicate")
def communicate(
    kind: str, x: Array, out: Array | None, *, group: str, label: str = "", **attrs: object
) -> Array:
    """The value of a row for this process, in ``out`` if given; the ranks agree on it first."""
    found = group_of_name(group)
    shown = ", ".join([f"{x.dtype}{list(x.shape)}", *(f"{k}={v}" for k, v in attrs.items())])
    # What a rank sends and receives may differ; the sizes are given by all of them.
    is_equal = kind != "all_to_all"
    call = Call(f"op {kind}({shown if is_equal else x.dtype})", label)
    if out is None:
        shape = _SHAPES[kind](found, x, **attrs) if kind in _SHAPES else x.shape
        out = np.empty(shape, x.dtype)
    received = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    found.count(kind, x.nbytes)
    found.result(call, _KINDS[kind](found, np.ascontiguousarray(x), received, **attrs))
    if received is not out:
        np.copyto(out, received)
    return out


# -- in the background --------------------------------------------------------------------------

# Reductions that were started and not waited for, by token, with the memory they write.
_in_flight: dict[int, tuple[Work | None, Array]] = {}
_next_token = itertools.count(1).__next__


@provides("start_communication")
def start(buffer: Array, *, reduction: str, group: str, size: int, label: str = "") -> int:
    """Start a reduction in place, which the background thread completes; gives a token."""
    work = None
    if size > 1:
        found = group_of_name(group)
        shown = f"{buffer.dtype}{list(buffer.shape)}, reduction={reduction}"
        found.count("all_reduce", buffer.nbytes)
        steps = found.transport.all_reduce(buffer, reduction)
        work = found.launch(Call(f"op all_reduce({shown})", label), steps, async_op=True)
    token = _next_token()
    _in_flight[token] = work, buffer
    return token


@provides("finish_communication")
def finish(token: int) -> None:
    """Return when a reduction that was started is complete."""
    work, _ = _in_flight.pop(token)
    if work is not None:
        work.wait()


@provides("drain_communication")
def drain() -> None:
    """Return when no reduction writes to the memory of a program that failed after its start."""
    for token in list(_in_flight):
        with suppress(DistributedError):
            finish(token)


# -- kinds --------------------------------------------------------------------------------------


# The shapes of results that have not that of the argument.
_SHAPES: dict[str, Callable[..., tuple[int, ...]]] = {
    "all_gather": lambda group, x: (group.size(), *x.shape),
    "all_to_all": lambda group, x, received, sent: (sum(received), *x.shape[1:]),
    "reduce_scatter": lambda group, x: x.shape[1:],
}


def _all_reduce(group: ProcessGroup, x: Array, out: Array, reduction: str = "SUM") -> Steps:
    np.copyto(out, x)
    yield from group.transport.all_reduce(out, reduction)


def _broadcast(group: ProcessGroup, x: Array, out: Array, root: int) -> Steps:
    np.copyto(out, x)
    yield from group.transport.broadcast(out, root)


def _reduce(group: ProcessGroup, x: Array, out: Array, root: int) -> Steps:
    np.copyto(out, x)
    yield from group.transport.reduce(out, "SUM", root)
    if group.rank() != root:
        out[...] = 0


def _all_gather(group: ProcessGroup, x: Array, out: Array) -> Steps:
    yield from group.transport.all_gather(out, x)


def _reduce_scatter(group: ProcessGroup, x: Array, out: Array) -> Steps:
    yield from group.transport.reduce_scatter(out, x, "SUM")


def exchange(
    group: ProcessGroup, out: Array, array: Array, received: list[int], sent: list[int]
) -> Steps:
    """Compare what each rank sends with what the others expect, in elements, then exchange."""
    flat = np.array(received + sent, np.int64)
    table = np.empty((group.size(), 2, group.size()), np.int64)
    yield from group.transport.all_gather(table, flat)
    for source in range(group.size()):
        for target in range(group.size()):
            given, expected = table[source, 1, target], table[target, 0, source]
            if given != expected:
                raise RuntimeError(
                    f"rank {group.ranks[source]} sends {given} elements to rank "
                    f"{group.ranks[target]}, which expects {expected}; nothing was sent"
                )
    yield from group.transport.all_to_all(out, array, received, sent)


def _all_to_all(group: ProcessGroup, x: Array, out: Array, received: Any, sent: Any) -> Steps:
    width = int(np.prod(x.shape[1:], dtype=np.int64))
    counts = [n * width for n in received], [n * width for n in sent]
    yield from exchange(group, out, x, *counts)


_KINDS: dict[str, Callable[..., Steps]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
}
