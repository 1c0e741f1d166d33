"""Wrappers for several devices or processes, of which there is one here: they pass calls on."""

from evergrad.nn.parallel.data_parallel import (
    DataParallel,
    data_parallel,
    gather,
    parallel_apply,
    replicate,
    scatter,
)
from evergrad.nn.parallel.distributed import DistributedDataParallel

__all__ = [
    "DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply",
    "replicate", "scatter",
]  # fmt: skip
