"""Collectives that can be differentiated through, as in ``torch.distributed.nn``."""

from evergrad.distributed.nn import functional
from evergrad.distributed.nn.functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "functional",
    "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip
