"""What processes do together. In a world of one each result is the process's own value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributed.process_group import ReduceOp, check_rank, checked_group


class Work:
    """The handle of an operation that runs in the background: it is done already."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True


def _done(async_op: bool) -> Work | None:
    return Work() if async_op else None


def _copy(target: Tensor, source: Tensor) -> None:
    with using(grad=False):
        target.view_as(source).copy_(source)


def _only(values: Sequence[Any], name: str) -> Any:
    if len(values) != 1:
        raise RuntimeError(f"{name} has {len(values)} entries, but the world has one process")
    return values[0]


# -- every process gets the result --------------------------------------------------------------


def all_reduce(
    tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine a tensor over all processes, in place."""
    checked_group(group)
    return _done(async_op)


def all_gather(
    tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Fill a list with the tensors of all processes."""
    checked_group(group)
    _copy(_only(tensor_list, "tensor_list"), tensor)
    return _done(async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Join the tensors of all processes in one."""
    checked_group(group)
    _copy(output_tensor, input_tensor)
    return _done(async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Fill a list with the objects of all processes."""
    checked_group(group)
    _only(object_list, "object_list")
    object_list[0] = obj


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Give each process one of the tensors and get one from each."""
    checked_group(group)
    source = _only(input_tensor_list, "input_tensor_list")
    _copy(_only(output_tensor_list, "output_tensor_list"), source)
    return _done(async_op)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
    group: Any = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Give each process a part of a tensor and get one from each."""
    checked_group(group)
    _copy(output, input)
    return _done(async_op)


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None
) -> Work | None:
    """Wait until all processes are here."""
    checked_group(group)
    return _done(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Wait until all processes are here, and say who is not."""
    checked_group(group)


# -- from or to one process ---------------------------------------------------------------------


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Give all processes the tensor of one."""
    checked_group(group)
    check_rank(src if group_src is None else group_src)
    return _done(async_op)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Give all processes the objects of one."""
    checked_group(group)
    check_rank(src if group_src is None else group_src)


def reduce(
    tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Combine a tensor over all processes, for one of them."""
    checked_group(group)
    check_rank(dst if group_dst is None else group_dst)
    return _done(async_op)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None,
    group: Any = None, async_op: bool = False, group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Collect the tensors of all processes in one."""
    checked_group(group)
    check_rank(dst if group_dst is None else group_dst)
    if not gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    _copy(_only(gather_list, "gather_list"), tensor)
    return _done(async_op)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None,
    group: Any = None, group_dst: int | None = None,
) -> None:  # fmt: skip
    """Collect the objects of all processes in one."""
    checked_group(group)
    check_rank(dst if group_dst is None else group_dst)
    if not object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    _only(object_gather_list, "object_gather_list")
    object_gather_list[0] = obj


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None,
    group: Any = None, async_op: bool = False, group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """Give each process one of the tensors of one."""
    checked_group(group)
    check_rank(src if group_src is None else group_src)
    if not scatter_list:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    _copy(tensor, _only(scatter_list, "scatter_list"))
    return _done(async_op)


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int | None = None, group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Give each process one of the objects of one."""
    checked_group(group)
    check_rank(src if group_src is None else group_src)
    given = _only(scatter_object_input_list or [], "scatter_object_input_list")
    scatter_object_output_list[0] = given


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Combine lists of tensors over all processes; each gets one entry."""
    checked_group(group)
    _copy(output, _only(input_list, "input_list"))
    return _done(async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Combine a tensor over all processes; each gets a part."""
    checked_group(group)
    _copy(output, input)
    return _done(async_op)


# -- from process to process --------------------------------------------------------------------


def send(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Send a tensor to another process: there is none."""
    checked_group(group)
    _nobody("destination")


def recv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
    group_src: int | None = None,
) -> int:  # fmt: skip
    """Receive a tensor from another process: there is none."""
    checked_group(group)
    _nobody("source")


def _nobody(role: str) -> NoReturn:
    raise ValueError(
        f"Invalid {role} rank: {role} rank should not be the same as the rank of the current "
        "process, and the world has no other."
    )
