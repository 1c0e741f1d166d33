"""Collectives inside traced functions: rows of the op table, whose results are assigned.

A collective with ``async_op`` is complete where it is traced, except inside
:class:`OverlappedWorks`: there a reduction is a start, and its wait is emitted when the program
waits for its handle, so that the kernels traced in between overlap it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from evergrad.core.bind import bind
from evergrad.core.inplace import assign
from evergrad.core.op import Op
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.thread_variable import thread_variable
from evergrad.distributed.process_group import ProcessGroup
from evergrad.distributed.work import Work
from evergrad.errors import TraceError
from evergrad.ops.rows.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    EXTREME,
    REDUCE,
    REDUCE_SCATTER,
    START_ALL_REDUCE,
    WAIT,
)


def apply(op: Op, x: Tensor, group: ProcessGroup, **attrs: object) -> Tensor:
    """A row on this group."""
    name = group.name if group.size() > 1 else ""
    found: Tensor = bind(op, x, group=name, size=group.size(), **attrs)
    return found


def reduction_row(name: str) -> Op:
    """The row of a reduction over all processes."""
    return ALL_REDUCE if name in ("SUM", "AVG") else EXTREME


def _write(targets: Sequence[Tensor], values: Sequence[Tensor], async_op: bool) -> Work | None:
    with using(grad=False):
        for target, value in zip(targets, values, strict=True):
            assign(target, value.reshape(target.shape))
    return Work(value=list(targets)) if async_op else None


class _StartedWork(Work):
    """The handle of a traced reduction that has been started: waiting emits the wait."""

    def __init__(self, tensor: Tensor, started: Any) -> None:
        super().__init__(value=[tensor])
        self._tensor = tensor
        self._started = started

    def wait(self, timeout: object = None) -> bool:
        if self._started is not None:
            started, self._started = self._started, None
            with using(grad=False):
                assign(self._tensor, bind(WAIT, *started))
        return True


class OverlappedWorks:
    """Within it, traced reductions with ``async_op`` overlap what is traced before their waits."""

    def __init__(self) -> None:
        self._works: list[_StartedWork] = []
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = _overlapped.set(self)

    def __exit__(self, *details: object) -> None:
        _overlapped.reset(self._token)

    def start(self, tensor: Tensor, op: str, group: ProcessGroup, label: str) -> Work:
        """Emit the start of a reduction."""
        started = apply(START_ALL_REDUCE, tensor, group, reduction=op, label=label)
        self._works.append(_StartedWork(tensor, started))
        return self._works[-1]

    def wait(self) -> None:
        """Emit the waits that are missing: each start has one."""
        for work in self._works:
            work.wait()
        self._works = []


_overlapped: ContextVar[OverlappedWorks | None] = thread_variable("overlapped_works", None)


def all_reduce(
    tensor: Tensor, op: str, group: ProcessGroup, async_op: bool, label: str = ""
) -> Work | None:
    with using(grad=False):
        works = _overlapped.get()
        if async_op and works is not None and op in ("SUM", "AVG"):
            return works.start(tensor, op, group, label)
        value = apply(reduction_row(op), tensor, group, reduction=op)
    return _write([tensor], [value], async_op)


def all_gather(
    targets: Sequence[Tensor], tensor: Tensor, group: ProcessGroup, async_op: bool
) -> Work | None:
    with using(grad=False):
        joined = apply(ALL_GATHER, tensor, group)
        parts = [joined[i] for i in range(group.size())]
    return _write(targets, parts, async_op)


def all_gather_into_tensor(
    output: Tensor, input: Tensor, group: ProcessGroup, async_op: bool
) -> Work | None:
    with using(grad=False):
        value = apply(ALL_GATHER, input, group)
    return _write([output], [value], async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: str, group: ProcessGroup, async_op: bool
) -> Work | None:
    _check_sum(op, "reduce_scatter_tensor")
    with using(grad=False):
        value = apply(REDUCE_SCATTER, input.reshape(group.size(), *output.shape), group)
        value = value / group.size() if op == "AVG" else value
    return _write([output], [value], async_op)


def broadcast(tensor: Tensor, root: int, group: ProcessGroup, async_op: bool) -> Work | None:
    with using(grad=False):
        value = apply(BROADCAST, tensor, group, root=root)
    return _write([tensor], [value], async_op)


def reduce(tensor: Tensor, root: int, op: str, group: ProcessGroup, async_op: bool) -> Work | None:
    _check_sum(op, "reduce")
    with using(grad=False):
        value = apply(REDUCE, tensor, group, root=root)
        value = value / group.size() if op == "AVG" else value
    if group.rank() != root:
        return Work(value=[tensor]) if async_op else None
    return _write([tensor], [value], async_op)


def _check_sum(op: str, name: str) -> None:
    if op not in ("SUM", "AVG"):
        raise TraceError(f"{name} with ReduceOp.{op} has no form for compiled functions")


def all_to_all_single(
    output: Tensor, input: Tensor, received: list[int], sent: list[int], group: ProcessGroup,
    async_op: bool,
) -> Work | None:  # fmt: skip
    with using(grad=False):
        value = apply(ALL_TO_ALL, input, group, received=tuple(received), sent=tuple(sent))
    return _write([output], [value], async_op)
