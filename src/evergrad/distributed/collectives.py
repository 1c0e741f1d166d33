"""Collectives on tensors, with PyTorch's names, arguments and semantics.

Results are written in place, without a record in the autograd graph; the differentiable forms are
in :mod:`evergrad.distributed.nn`. Inside a compiled function a collective is an instruction of the
program. Before anything is sent the ranks compare kind, dtype, shape and root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.core.tensor import Tensor
from evergrad.distributed import traced
from evergrad.distributed.agreement import Call
from evergrad.distributed.buffers import (
    Array,
    array_of,
    check_count,
    check_equal,
    is_traced,
    stacked,
    store,
)
from evergrad.distributed.evaluate import exchange
from evergrad.distributed.process_group import ProcessGroup, ReduceOp, checked_group, root_rank
from evergrad.distributed.progress import Steps
from evergrad.distributed.work import Work


def op_name(op: object) -> str:
    """The name of a reduction, refused where it has no meaning."""
    found = ReduceOp(op) if not isinstance(op, ReduceOp) else op
    return found.name


def _reduction(group: ProcessGroup, op: object, tensor: object) -> str:
    name = op_name(op)
    if name == "PREMUL_SUM" and group.size() > 1:
        raise NotImplementedError("ReduceOp.PREMUL_SUM: multiply, then use ReduceOp.SUM")
    if name in ("MIN", "MAX") and isinstance(tensor, Tensor) and tensor.is_complex():
        raise ValueError(f"all_reduce does not support ReduceOp.{name} on complex tensors")
    return name


# -- every process gets the result --------------------------------------------------------------


def all_reduce(
    tensor: Tensor, op: object = ReduceOp.SUM, group: object = None, async_op: bool = False,
    label: str = "",
) -> Work | None:  # fmt: skip
    """Reduce a tensor over all processes, in place.

    Args:
        tensor: that of this process; the result is written to it
        op: default the sum
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``
        label: what errors call the tensor; PyTorch has no such argument

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> x = eg.ones(2)
    >>> eg.distributed.all_reduce(x, op=eg.distributed.ReduceOp.AVG, async_op=True).wait()
    True
    >>> x
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    name = _reduction(found, op, tensor)
    if is_traced():
        return traced.all_reduce(tensor, name, found, async_op, label)
    array = array_of(tensor)
    call = Call(f"all_reduce({tensor._type}, op={name})", label)

    def steps() -> Steps:
        yield from found.transport.all_reduce(array, name)
        store(tensor, array)

    found.count("all_reduce", array.nbytes)
    return found.launch(call, steps(), async_op=async_op, value=tensor)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: object = None, async_op: bool = False
) -> Work | None:
    """Fill a list with the tensors of all processes.

    Args:
        tensor_list: a tensor for each process
        tensor: that of this one
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = [eg.zeros(2)]
    >>> eg.distributed.all_gather(found, eg.ones(2))
    >>> found
    [tensor([1., 1.])]
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    check_count(tensor_list, found.size(), "tensor_list")
    check_equal(tensor_list, tensor._type, "tensor_list")
    if is_traced():
        return traced.all_gather(tensor_list, tensor, found, async_op)
    array = array_of(tensor)
    joined = np.empty((found.size(), *array.shape), array.dtype)
    call = Call(f"all_gather({tensor._type})")

    def steps() -> Steps:
        yield from found.transport.all_gather(joined, array)
        for target, part in zip(tensor_list, joined, strict=True):
            store(target, part)

    found.count("all_gather", array.nbytes)
    return found.launch(call, steps(), async_op=async_op, value=tensor_list)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: object = None, async_op: bool = False
) -> Work | None:
    """Join the tensors of all processes along the first dimension (or stack them, if the output
    has one dimension more).

    Args:
        output_tensor: (processes * n, *)
        input_tensor: (n, *)
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = eg.zeros(2)
    >>> eg.distributed.all_gather_into_tensor(found, eg.ones(2))
    >>> found
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    _check_multiple(output_tensor, input_tensor, found, "output_tensor", "input_tensor")
    if is_traced():
        return traced.all_gather_into_tensor(output_tensor, input_tensor, found, async_op)
    array, joined = array_of(input_tensor), array_of(output_tensor)
    call = Call(f"all_gather_into_tensor({input_tensor._type})")

    def steps() -> Steps:
        source = array.copy() if np.may_share_memory(array, joined) else array
        yield from found.transport.all_gather(joined, source)
        store(output_tensor, joined)

    found.count("all_gather", array.nbytes)
    return found.launch(call, steps(), async_op=async_op, value=output_tensor)


def _check_multiple(large: Tensor, small: Tensor, group: ProcessGroup, *names: str) -> None:
    for tensor, name in zip((large, small), names, strict=True):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a Tensor, not {type(tensor).__name__}")
    if large.dtype is not small.dtype:
        raise TypeError(f"{names[0]} is {large.dtype} and {names[1]} {small.dtype}")
    if large.numel() != small.numel() * group.size():
        raise ValueError(
            f"{names[0]} is {large._type} and {names[1]} {small._type}: it must have "
            f"{group.size()} times as many elements, one part for each process"
        )


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: object = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Give each process one of the tensors and get one from each; their sizes may differ.

    Args:
        output_tensor_list: a tensor from each process
        input_tensor_list: a tensor for each process
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = [eg.zeros(2)]
    >>> eg.distributed.all_to_all(found, [eg.ones(2)])
    >>> found
    [tensor([1., 1.])]
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    check_count(output_tensor_list, found.size(), "output_tensor_list")
    check_count(input_tensor_list, found.size(), "input_tensor_list")
    sent = [array_of(t).reshape(-1) for t in input_tensor_list]
    sizes = [t.numel() for t in output_tensor_list]
    array = np.concatenate(sent)
    out = np.empty(sum(sizes), array.dtype)

    def finish() -> None:
        ends = np.cumsum(sizes)
        for target, end, n in zip(output_tensor_list, ends, sizes, strict=True):
            store(target, out[end - n : end])

    kinds = {t.dtype.name for t in (*output_tensor_list, *input_tensor_list)}
    if len(kinds) != 1:
        raise TypeError(f"all_to_all takes tensors of one dtype, not of {sorted(kinds)}")
    call = Call(f"all_to_all({kinds.pop()})")
    steps = _then(exchange(found, out, array, sizes, [a.size for a in sent]), finish)
    found.count("all_to_all", array.nbytes)
    return found.launch(call, steps, async_op=async_op, value=output_tensor_list)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: object = None,
    input_split_sizes: object = None, group: object = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Give each process a part of a tensor's first dimension and get one from each.

    Args:
        output, input: tensors
        output_split_sizes, input_split_sizes: extents of the parts; default equal ones
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = eg.zeros(2)
    >>> eg.distributed.all_to_all_single(found, eg.ones(2))
    >>> found
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    if output.dtype is not input.dtype:
        raise TypeError(f"output is {output.dtype} and input {input.dtype}")
    received = splits(output, output_split_sizes, found, "output")
    sent = splits(input, input_split_sizes, found, "input")
    if is_traced():
        return traced.all_to_all_single(output, input, received, sent, found, async_op)
    array, out = array_of(input), array_of(output)
    rows = _elements(output, received), _elements(input, sent)
    source = array.copy() if np.may_share_memory(array, out) else array
    steps = _then(exchange(found, out, source, *rows), lambda: store(output, out))
    found.count("all_to_all", array.nbytes)
    call = Call(f"all_to_all_single({input.dtype})")
    return found.launch(call, steps, async_op=async_op, value=output)


def _then(steps: Steps, finish: Callable[[], None]) -> Steps:
    yield from steps
    finish()


def splits(tensor: Tensor, sizes: Any, group: ProcessGroup, name: str) -> list[int]:
    """How many rows go to each process: those given, or equal parts."""
    rows = tensor.shape[0] if tensor.ndim else 0
    if not sizes:
        if rows % group.size():
            raise RuntimeError(
                f"the first dimension of {name} ({rows}) does not divide into {group.size()} equal "
                f"parts; give {name}_split_sizes="
            )
        return [rows // group.size()] * group.size()
    check_count(sizes, group.size(), f"{name}_split_sizes")
    if sum(sizes) != rows:
        raise RuntimeError(f"{name}_split_sizes add up to {sum(sizes)}, not to {rows}")
    return list(sizes)


def _elements(tensor: Tensor, rows: Sequence[int]) -> list[int]:
    width = int(np.prod(tensor.shape[1:], dtype=np.int64))
    return [n * width for n in rows]


def barrier(
    group: object = None, async_op: bool = False, device_ids: object = None, timeout: object = None
) -> Work | None:
    """Return when all processes have called it.

    Args:
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``
        device_ids: accepted
        timeout: of the wait

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.barrier()
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    return found.launch(Call("barrier()"), found.transport.barrier(), async_op=async_op)


def monitored_barrier(
    group: object = None, timeout: object = None, wait_all_ranks: bool = False
) -> None:
    """Return when all processes have called it; the error names those that did not in time.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.monitored_barrier()
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    call = Call("monitored_barrier()")
    found.launch(call, found.transport.barrier(), timeout=timeout)


# -- from or to one process ---------------------------------------------------------------------


def broadcast(
    tensor: Tensor, src: int | None = None, group: object = None, async_op: bool = False,
    group_src: int | None = None, label: str = "",
) -> Work | None:  # fmt: skip
    """Give all processes the tensor of one.

    Args:
        tensor: what is given in the source, what is written elsewhere
        src: the number of the source in the world, or
        group_src: its number in the group
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> x = eg.ones(2)
    >>> eg.distributed.broadcast(x, src=0)
    >>> x
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    root = root_rank(found, src, group_src)
    if is_traced():
        return traced.broadcast(tensor, root, found, async_op)
    array = array_of(tensor)
    call = Call(f"broadcast({tensor._type}, src={found.ranks[root]})", label)

    def steps() -> Steps:
        yield from found.transport.broadcast(array, root)
        store(tensor, array)

    found.count("broadcast", array.nbytes)
    return found.launch(call, steps(), async_op=async_op, value=tensor)


def reduce(
    tensor: Tensor, dst: int | None = None, op: object = ReduceOp.SUM, group: object = None,
    async_op: bool = False, group_dst: int | None = None, label: str = "",
) -> Work | None:  # fmt: skip
    """Reduce a tensor over all processes, in place in one of them.

    Args:
        tensor: that of this process; the result in the destination
        dst: the number of the destination in the world, or
        group_dst: its number in the group
        op: default the sum
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> x = eg.ones(2)
    >>> eg.distributed.reduce(x, dst=0)
    >>> x
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    root, name = root_rank(found, dst, group_dst), _reduction(found, op, tensor)
    if is_traced():
        return traced.reduce(tensor, root, name, found, async_op)
    array = array_of(tensor)
    call = Call(f"reduce({tensor._type}, dst={found.ranks[root]}, op={name})", label)

    def steps() -> Steps:
        yield from found.transport.reduce(array, name, root)
        if found.rank() == root:
            store(tensor, array)

    found.count("reduce", array.nbytes)
    return found.launch(call, steps(), async_op=async_op, value=tensor)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None,
    group: object = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Collect the tensors of all processes in one.

    Args:
        tensor: that of this process
        gather_list: a tensor for each process, in the one that collects
        dst: its number in the world, or
        group_dst: its number in the group
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = [eg.zeros(2)]
    >>> eg.distributed.gather(eg.ones(2), found, dst=0)
    >>> found
    [tensor([1., 1.])]
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    root = root_rank(found, dst, group_dst)
    is_root = found.rank() == root
    _check_list(gather_list, is_root, "gather_list", "destination")
    array = array_of(tensor)
    joined = None
    if is_root:
        assert gather_list is not None
        check_count(gather_list, found.size(), "gather_list")
        check_equal(gather_list, tensor._type, "gather_list")
        joined = np.empty((found.size(), *array.shape), array.dtype)
    call = Call(f"gather({tensor._type}, dst={found.ranks[root]})")

    def steps() -> Steps:
        yield from found.transport.gather(joined, array, root)
        if joined is not None:
            for target, part in zip(gather_list or (), joined, strict=True):
                store(target, part)

    found.count("gather", array.nbytes)
    return found.launch(call, steps(), async_op=async_op, value=gather_list)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None,
    group: object = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Give each process one of the tensors of one.

    Args:
        tensor: that of this process
        scatter_list: a tensor for each process, in the source
        src: the number of the source in the world, or
        group_src: its number in the group
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> x = eg.zeros(2)
    >>> eg.distributed.scatter(x, [eg.ones(2)], src=0)
    >>> x
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    root = root_rank(found, src, group_src)
    is_root = found.rank() == root
    _check_list(scatter_list, is_root, "scatter_list", "source")
    source = None
    if is_root:
        assert scatter_list is not None
        check_count(scatter_list, found.size(), "scatter_list")
        check_equal(scatter_list, tensor._type, "scatter_list")
        source = stacked(scatter_list, "scatter_list")
    array = array_of(tensor)
    call = Call(f"scatter({tensor._type}, src={found.ranks[root]})")

    def steps() -> Steps:
        yield from found.transport.scatter(array, source, root)
        store(tensor, array)

    found.count("scatter", array.nbytes)
    return found.launch(call, steps(), async_op=async_op, value=tensor)


def _check_list(values: object, is_root: bool, name: str, role: str) -> None:
    if is_root and not values:
        raise ValueError(f"Argument ``{name}`` must be specified on {role} rank.")
    if not is_root and values:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{role} ranks.")


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: object = ReduceOp.SUM, group: object = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Reduce lists of tensors over all processes; each gets one entry.

    Args:
        output: the entry of this process
        input_list: a tensor for each process
        op: default the sum
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = eg.zeros(2)
    >>> eg.distributed.reduce_scatter(found, [eg.ones(2)])
    >>> found
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    name = _reduction(found, op, output)
    check_count(input_list, found.size(), "input_list")
    check_equal(input_list, output._type, "input_list")
    source, array = stacked(input_list, "input_list"), array_of(output)
    call = Call(f"reduce_scatter({output._type}, op={name})")
    return _reduce_scatter(found, call, output, array, source, name, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: object = ReduceOp.SUM, group: object = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Reduce a tensor over all processes; each gets a part of its first dimension.

    Args:
        output: (n, *)
        input: (processes * n, *)
        op: default the sum
        group: the processes; default all
        async_op: give a handle to wait for; default ``False``

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> found = eg.zeros(2)
    >>> eg.distributed.reduce_scatter_tensor(found, eg.ones(2))
    >>> found
    tensor([1., 1.])
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    name = _reduction(found, op, output)
    _check_multiple(input, output, found, "input", "output")
    if is_traced():
        return traced.reduce_scatter_tensor(output, input, name, found, async_op)
    array = array_of(output)
    call = Call(f"reduce_scatter_tensor({output._type}, op={name})")
    return _reduce_scatter(found, call, output, array, array_of(input), name, async_op)


def _reduce_scatter(
    group: ProcessGroup, call: Call, output: Tensor, array: Array, source: Array, op: str,
    async_op: bool,
) -> Work | None:  # fmt: skip
    given = source.copy() if np.may_share_memory(array, source) else source

    def steps() -> Steps:
        yield from group.transport.reduce_scatter(array, given, op)
        store(output, array)

    group.count("reduce_scatter", source.nbytes)
    return group.launch(call, steps(), async_op=async_op, value=output)
