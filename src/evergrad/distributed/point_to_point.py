"""Messages from one process to another. A header with dtype and size precedes each, so that the
receiver refuses what it does not expect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core.tensor import Tensor
from evergrad.distributed.agreement import Call
from evergrad.distributed.buffers import array_of, store
from evergrad.distributed.mpi import MpiTransport, library
from evergrad.distributed.process_group import ProcessGroup, checked_group, root_rank
from evergrad.distributed.progress import DistributedError, Steps
from evergrad.distributed.work import Work

_HEADER_BYTES = 128


def send(
    tensor: Tensor, dst: int | None = None, group: object = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send a tensor to another process; returns when its memory may be written again.

    Args:
        tensor: what is sent
        dst: its number in the world, or
        group_dst: its number in the group
        group: the processes; default all
        tag: of the message, which must agree; default 0

    With two processes::

        x = eg.zeros(2)
        if dist.get_rank() == 0:
            dist.send(eg.ones(2), dst=1)
        else:
            dist.recv(x, src=0)
    """
    isend(tensor, dst, group, tag, group_dst).wait()


def recv(
    tensor: Tensor, src: int | None = None, group: object = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receive a tensor from another process (any, if no source is given); gives its rank.

    Args:
        tensor: what is written
        src: its number in the world, or
        group_src: its number in the group
        group: the processes; default all
        tag: of the message, which must agree; default 0

    With two processes::

        x = eg.zeros(2)
        if dist.get_rank() == 0:
            dist.send(eg.ones(2), dst=1)
        else:
            dist.recv(x, src=0)
    """
    return irecv(tensor, src, group, tag, group_src).source_rank()


def isend(
    tensor: Tensor, dst: int | None = None, group: object = None, tag: int = 0,
    group_dst: int | None = None,
) -> Work:  # fmt: skip
    """Send in the background; the tensor must not be written before the handle is waited for.

    Args:
        tensor: what is sent
        dst: its number in the world, or
        group_dst: its number in the group
        group: the processes; default all
        tag: of the message, which must agree; default 0

    With two processes::

        x = eg.zeros(2)
        if dist.get_rank() == 0:
            dist.isend(eg.ones(2), dst=1).wait()
        else:
            dist.irecv(x, src=0).wait()
    """
    found = checked_group(group)
    peer = _other(found, dst, group_dst, "destination")
    array = array_of(tensor)
    call = Call(f"send({tensor._type}, dst={found.ranks[peer]}, tag={tag})")
    header = f"{tensor.dtype} {tensor.numel()} {tensor._type}".encode()[:_HEADER_BYTES]
    words = np.frombuffer(header.ljust(_HEADER_BYTES, b"\0"), np.uint8)
    communicator = _transport(found).communicator

    def steps() -> Steps:
        first = communicator.Isend(words, peer, 2 * tag)
        second = communicator.Isend(array.reshape(-1).view(np.uint8), peer, 2 * tag + 1)
        yield first
        yield second

    found.count("send", array.nbytes)
    return _launch(found, call, steps(), tensor)


def irecv(
    tensor: Tensor, src: int | None = None, group: object = None, tag: int = 0,
    group_src: int | None = None,
) -> Work:  # fmt: skip
    """Receive in the background.

    Args:
        tensor: what is written
        src: its number in the world, or
        group_src: its number in the group
        group: the processes; default all
        tag: of the message, which must agree; default 0

    With two processes::

        x = eg.zeros(2)
        if dist.get_rank() == 0:
            dist.isend(eg.ones(2), dst=1).wait()
        else:
            dist.irecv(x, src=0).wait()
    """
    found = checked_group(group)
    is_any = src is None and group_src is None and found.size() > 1
    peer = -1 if is_any else _other(found, src, group_src, "source")
    array = array_of(tensor)
    origin = "any rank" if is_any else found.ranks[peer]
    call = Call(f"recv({tensor._type}, src={origin}, tag={tag})")
    communicator = _transport(found).communicator

    def steps() -> Steps:
        mpi, words = library(), np.zeros(_HEADER_BYTES, np.uint8)
        status = mpi.Status()
        chosen = mpi.ANY_SOURCE if is_any else peer
        yield _Polled(communicator.Irecv(words, chosen, 2 * tag), status)
        source = status.Get_source()
        kind, count, text = words.tobytes().rstrip(b"\0").decode().split(" ", 2)
        fits = (kind, int(count)) == (str(tensor.dtype), tensor.numel())
        target = array if fits else np.empty(_nbytes(kind, int(count)), np.uint8)
        yield communicator.Irecv(target.reshape(-1).view(np.uint8), source, 2 * tag + 1)
        if not fits:
            raise DistributedError(
                f"{call} got {text} from rank {found.ranks[source]}: receive into a tensor of its "
                "dtype and number of elements"
            )
        store(tensor, array)
        return found.ranks[source]

    return _launch(found, call, steps(), tensor)


class _Polled:
    """A request that fills in a status."""

    def __init__(self, request: Any, status: object) -> None:
        self.request = request
        self.status = status

    def Test(self) -> bool:
        return bool(self.request.Test(self.status))


def _nbytes(kind: str, count: int) -> int:
    """The size of a message of another dtype, to take it off the wire."""
    import evergrad  # start-up: only for a message that is refused

    width = getattr(evergrad, kind.partition(".")[2]).itemsize
    return int(width) * count


def _launch(group: ProcessGroup, call: Call, steps: Steps, tensor: Tensor) -> Work:
    assert group.engine is not None
    # Messages do not wait for each other: each is a queue of its own.
    task = group.engine.submit((group.name, call), steps, call, group.timeout)
    return Work(group.engine, task, tensor)


def _transport(group: ProcessGroup) -> MpiTransport:
    assert isinstance(group.transport, MpiTransport)
    return group.transport


def _other(group: ProcessGroup, rank: int | None, group_rank: int | None, role: str) -> int:
    if group.size() == 1:
        raise ValueError(
            f"Invalid {role} rank: {role} rank should not be the same as the rank of the current "
            "process, and the world has no other."
        )
    if rank is None and group_rank is None:
        raise ValueError(f"give the {role} rank")
    found = root_rank(group, rank, group_rank)
    if found == group.rank():
        raise ValueError(
            f"Invalid {role} rank: {role} rank should not be the same as the rank of the current "
            "process."
        )
    return found


class P2POp:
    """One message of :func:`batch_isend_irecv`: ``op`` is ``isend`` or ``irecv``.

    Each process of two sends to the other::

        other, x = 1 - dist.get_rank(), eg.zeros(2)
        ops = [dist.P2POp(dist.isend, eg.ones(2), other), dist.P2POp(dist.irecv, x, other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    """

    def __init__(
        self, op: Callable[..., Work], tensor: Tensor, peer: int | None = None,
        group: object = None, tag: int = 0, group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op not in (isend, irecv):
            raise ValueError("op must be evergrad.distributed.isend or irecv")
        self.op = op
        self.tensor = tensor
        self.peer = peer
        self.group = group
        self.tag = tag
        self.group_peer = group_peer


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start several messages at once; gives their handles.

    Each process of two sends to the other::

        other, x = 1 - dist.get_rank(), eg.zeros(2)
        ops = [dist.P2POp(dist.isend, eg.ones(2), other), dist.P2POp(dist.irecv, x, other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    """
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("batch_isend_irecv takes a non-empty list of P2POp")
    return [op.op(op.tensor, op.peer, op.group, op.tag, op.group_peer) for op in p2p_op_list]
