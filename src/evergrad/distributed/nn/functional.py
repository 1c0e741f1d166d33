"""Collectives that return their results and can be differentiated through.

What is differentiated is the sum of the losses of all processes: after ``loss.backward()`` on every
process, a tensor has the gradient of that sum. The rows and their transposes are in
:mod:`evergrad.ops.rows.collective`. They work in forward mode, under ``vmap`` and inside compiled
functions; every process must call them (and their derivatives) in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributed.buffers import check_count
from evergrad.distributed.collectives import op_name, splits
from evergrad.distributed.process_group import ReduceOp, checked_group, root_rank
from evergrad.distributed.traced import apply
from evergrad.ops.rows.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    EXTREME,
    REDUCE,
    REDUCE_SCATTER,
)


def all_reduce(tensor: Tensor, op: object = ReduceOp.SUM, group: object = None) -> Tensor:
    """The reduction over all processes.

    The gradient of a least or greatest value goes to the processes that have it, in equal parts.
    Differs from PyTorch, which gives such gradients to all processes.
    """
    found, name = checked_group(group), op_name(op)
    if name in ("SUM", "AVG"):
        return apply(ALL_REDUCE, tensor, found, reduction=name)
    if name not in ("MIN", "MAX"):
        if tensor.requires_grad:
            raise NotImplementedError(f"ReduceOp.{name} has no derivative here: detach the tensor")
        return apply(EXTREME, tensor, found, reduction=name)
    extreme = apply(EXTREME, tensor.detach(), found, reduction=name)
    if not tensor.dtype.is_floating_point:
        return extreme
    chosen = (tensor.detach() == extreme).to(tensor.dtype)
    share = chosen / apply(ALL_REDUCE, chosen, found, reduction="SUM")
    moved = apply(ALL_REDUCE, (tensor - tensor.detach()) * share, found, reduction="SUM")
    result: Tensor = extreme + moved
    return result


def broadcast(tensor: Tensor, src: int, group: object = None) -> Tensor:
    """The tensor of one process, on all."""
    found = checked_group(group)
    return apply(BROADCAST, tensor, found, root=root_rank(found, src, None))


def reduce(tensor: Tensor, dst: int, op: object = ReduceOp.SUM, group: object = None) -> Tensor:
    """The sum over all processes on ``dst``, zeros on the others."""
    found = checked_group(group)
    if op_name(op) not in ("SUM", "AVG"):
        raise NotImplementedError("reduce adds (ReduceOp.SUM, ReduceOp.AVG)")
    result = apply(REDUCE, tensor, found, root=root_rank(found, dst, None))
    return result if op_name(op) == "SUM" else result / found.size()


def all_gather(tensor: Tensor, group: object = None) -> tuple[Tensor, ...]:
    """The tensors of all processes."""
    found = checked_group(group)
    joined = apply(ALL_GATHER, tensor, found)
    return tuple([joined[i] for i in range(found.size())])


def gather(tensor: Tensor, dst: int = 0, group: object = None) -> tuple[Tensor, ...]:
    """The tensors of all processes on ``dst``, zeros on the others."""
    found = checked_group(group)
    is_root = found.rank() == root_rank(found, dst, None)
    parts = all_gather(tensor, found)
    return parts if is_root else tuple([part * 0 for part in parts])


def scatter(tensors: Sequence[Tensor], src: int = 0, group: object = None) -> Tensor:
    """The tensor that ``src`` has for this process; the others give tensors of the same types."""
    found = checked_group(group)
    check_count(tensors, found.size(), "tensors")
    is_root = found.rank() == root_rank(found, src, None)
    stacked: Tensor = evergrad.stack(list(tensors))
    return apply(REDUCE_SCATTER, stacked if is_root else stacked * 0, found)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: object = ReduceOp.SUM, group: object = None
) -> Tensor:
    """The sum over all processes of the tensor with this process's number. ``output`` only gives
    the type, as in PyTorch."""
    found = checked_group(group)
    check_count(input_list, found.size(), "input_list")
    if op_name(op) not in ("SUM", "AVG"):
        raise NotImplementedError("reduce_scatter adds (ReduceOp.SUM, ReduceOp.AVG)")
    result = apply(REDUCE_SCATTER, evergrad.stack(list(input_list)), found)
    return result if op_name(op) == "SUM" else result / found.size()


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: object = None
) -> tuple[Tensor, ...]:
    """The tensors that all processes have for this one; ``output_tensor_list`` gives the types."""
    found = checked_group(group)
    check_count(output_tensor_list, found.size(), "output_tensor_list")
    check_count(input_tensor_list, found.size(), "input_tensor_list")
    flat: Tensor = evergrad.cat([t.reshape(-1) for t in input_tensor_list])
    received = tuple([t.numel() for t in output_tensor_list])
    sent = tuple([t.numel() for t in input_tensor_list])
    joined = apply(ALL_TO_ALL, flat, found, received=received, sent=sent)
    parts: tuple[Tensor, ...] = evergrad.split(joined, list(received))
    pairs = zip(parts, output_tensor_list, strict=True)
    return tuple([part.reshape(like.shape) for part, like in pairs])


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: object = None,
    input_split_sizes: object = None, group: object = None,
) -> Tensor:  # fmt: skip
    """The rows that all processes have for this one; ``output`` gives the type."""
    found = checked_group(group)
    received = tuple(splits(output, output_split_sizes, found, "output"))
    sent = tuple(splits(input, input_split_sizes, found, "input"))
    return apply(ALL_TO_ALL, input, found, received=received, sent=sent)
