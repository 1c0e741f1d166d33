"""Several processes that train together, on MPI, with PyTorch's names.

``init_process_group`` makes the world: all ranks under ``mpiexec`` or ``evergrad launch``, one
process without a launcher. The design is in docs/design/distributed.md.
"""

from typing import TYPE_CHECKING

from evergrad.distributed.buckets import GradBucket
from evergrad.distributed.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from evergrad.distributed.device_mesh import DeviceMesh, init_device_mesh
from evergrad.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from evergrad.distributed.point_to_point import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    recv,
    send,
)
from evergrad.distributed.process_group import (
    Backend,
    GroupMember,
    ProcessGroup,
    ReduceOp,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    supports_complex,
)
from evergrad.distributed.progress import DistributedError
from evergrad.distributed.work import Work
from evergrad.lazy import lazy_modules

if TYPE_CHECKING:
    from evergrad.distributed import algorithms as algorithms
    from evergrad.distributed import fsdp as fsdp
    from evergrad.distributed import nn as nn
    from evergrad.distributed import optim as optim
    from evergrad.distributed import pipelining as pipelining
    from evergrad.distributed import tensor as tensor
else:
    __getattr__ = lazy_modules(
        "evergrad.distributed", "algorithms", "fsdp", "nn", "optim", "pipelining", "tensor"
    )

__all__ = [
    "Backend", "DeviceMesh", "DistributedError", "GradBucket", "GroupMember", "P2POp",
    "ProcessGroup", "ReduceOp", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "all_reduce", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast",
    "broadcast_object_list", "destroy_process_group", "gather", "gather_object", "get_backend",
    "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank",
    "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_device_mesh", "init_process_group", "irecv", "is_available", "is_backend_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "isend", "monitored_barrier", "new_group", "new_subgroups",
    "new_subgroups_by_enumeration", "recv", "recv_object_list", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
    "supports_complex",
]  # fmt: skip
