"""Algorithms of communication, under PyTorch's names."""

from evergrad.distributed.algorithms import ddp_comm_hooks
from evergrad.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable", "ddp_comm_hooks"]
