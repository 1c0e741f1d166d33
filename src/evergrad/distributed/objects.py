"""Collectives on Python objects, pickled. Unpickling runs code: only for ranks of one job."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.tensor import from_array
from evergrad.distributed.agreement import Call
from evergrad.distributed.buffers import check_count
from evergrad.distributed.point_to_point import recv, send
from evergrad.distributed.process_group import ProcessGroup, checked_group, root_rank
from evergrad.distributed.progress import Steps

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike


def all_gather_object(object_list: list[object], obj: object, group: object = None) -> None:
    """Fill a list with the objects of all processes.

    Args:
        object_list: an entry for each process
        obj: that of this one; anything that can be pickled
        group: the processes; default all

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = [None]
    >>> eg.distributed.all_gather_object(found, {"rank": 0})
    >>> found
    [{'rank': 0}]
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    check_count(object_list, found.size(), "object_list")
    object_list[:] = _gathered(found, obj, Call("all_gather_object()"))


def gather_object(
    obj: object, object_gather_list: list[object] | None = None, dst: int | None = None,
    group: object = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """Collect the objects of all processes in one.

    Args:
        obj: that of this process
        object_gather_list: an entry for each process, in the one that collects
        dst: its number in the world, or
        group_dst: its number in the group
        group: the processes; default all

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = [None]
    >>> eg.distributed.gather_object("a", found, dst=0)
    >>> found
    ['a']
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    root = root_rank(found, dst, group_dst)
    is_root = found.rank() == root
    if is_root and not object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    if is_root:
        assert object_gather_list is not None
        check_count(object_gather_list, found.size(), "object_gather_list")
    objects = _gathered(found, obj, Call(f"gather_object(dst={found.ranks[root]})"))
    if is_root and object_gather_list is not None:
        object_gather_list[:] = objects


def broadcast_object_list(
    object_list: list[object], src: int | None = None, group: object = None,
    device: DeviceLike = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Give all processes the objects of one.

    Args:
        object_list: equally long everywhere
        src: the number of the source in the world, or
        group_src: its number in the group
        group: the processes; default all
        device: accepted

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> objects = ["a", 1]
    >>> eg.distributed.broadcast_object_list(objects, src=0)
    >>> objects
    ['a', 1]
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    root = root_rank(found, src, group_src)
    call = Call(f"broadcast_object_list({len(object_list)} objects, src={found.ranks[root]})")
    object_list[:] = _broadcast(found, list(object_list), root, call)


def scatter_object_list(
    scatter_object_output_list: list[object], scatter_object_input_list: list[object] | None = None,
    src: int | None = None, group: object = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Give each process one of the objects of one.

    Args:
        scatter_object_output_list: its first entry is written
        scatter_object_input_list: an entry for each process, in the source
        src: the number of the source in the world, or
        group_src: its number in the group
        group: the processes; default all

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = [None]
    >>> eg.distributed.scatter_object_list(found, ["a"], src=0)
    >>> found
    ['a']
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    root = root_rank(found, src, group_src)
    if not scatter_object_output_list:
        raise ValueError("scatter_object_output_list must have at least one entry")
    if found.rank() == root:
        check_count(scatter_object_input_list or [], found.size(), "scatter_object_input_list")
    call = Call(f"scatter_object_list(src={found.ranks[root]})")
    everything = _broadcast(found, scatter_object_input_list, root, call)
    scatter_object_output_list[0] = everything[found.rank()]


def send_object_list(
    object_list: list[object], dst: int | None = None, group: object = None,
    device: DeviceLike = None, group_dst: int | None = None, use_batch: bool = False,
) -> None:  # fmt: skip
    """Send objects to another process.

    With two processes::

        objects = ["a", 1] if dist.get_rank() == 0 else [None, None]
        if dist.get_rank() == 0:
            dist.send_object_list(objects, dst=1)
        else:
            dist.recv_object_list(objects, src=0)
    """
    data = np.frombuffer(pickle.dumps(list(object_list)), np.uint8)
    for array in (np.array([data.size], np.int64), data.copy()):
        send(from_array(array), dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: list[object], src: int | None = None, group: object = None,
    device: DeviceLike = None, group_src: int | None = None, use_batch: bool = False,
) -> int:  # fmt: skip
    """Receive objects from another process (any, if no source is given); gives its rank.

    With two processes::

        objects = ["a", 1] if dist.get_rank() == 0 else [None, None]
        if dist.get_rank() == 0:
            dist.send_object_list(objects, dst=1)
        else:
            dist.recv_object_list(objects, src=0)
    """
    length = from_array(np.zeros(1, np.int64))
    source = recv(length, src, group, group_src=group_src)
    data = from_array(np.zeros(int(length.item()), np.uint8))
    recv(data, source, group)
    received = pickle.loads(data._value.tobytes())
    check_count(received, len(object_list), "object_list of the sender")
    object_list[:] = received
    return source


def _gathered(group: ProcessGroup, obj: object, call: Call) -> list[object]:
    if group.size() == 1:
        return [obj]
    parts = group.result(call, group.transport.all_gather_bytes(pickle.dumps(obj)))
    return [pickle.loads(part) for part in parts]


def _broadcast(group: ProcessGroup, obj: object, root: int, call: Call) -> Any:
    if group.size() == 1:
        return obj
    data = pickle.dumps(obj) if group.rank() == root else b""
    received = group.result(call, _broadcast_bytes(group, data, root))
    return obj if group.rank() == root else pickle.loads(received)


def _broadcast_bytes(group: ProcessGroup, data: bytes, root: int) -> Steps:
    length = np.array([len(data)], np.int64)
    yield from group.transport.broadcast(length, root)
    array = np.zeros(int(length[0]), np.uint8)
    if group.rank() == root:
        array[:] = np.frombuffer(data, np.uint8)
    yield from group.transport.broadcast(array, root)
    return array.tobytes()
