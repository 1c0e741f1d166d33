"""Communication hooks for ``DistributedDataParallel.register_comm_hook``."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from evergrad.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    powerSGD_hook,
)

if TYPE_CHECKING:
    from evergrad.nn.module import Module


class DDPCommHookType(Enum):
    """The hooks by name; the value is the function."""

    ALLREDUCE = (default_hooks.allreduce_hook,)
    FP16_COMPRESS = (default_hooks.fp16_compress_hook,)
    BF16_COMPRESS = (default_hooks.bf16_compress_hook,)
    POWER_SGD = (powerSGD_hook.powerSGD_hook,)
    BATCHED_POWER_SGD = (powerSGD_hook.batched_powerSGD_hook,)
    NOOP = (debugging_hooks.noop_hook,)


def register_ddp_comm_hook(
    comm_hook_type: DDPCommHookType, model: Module, state: Any = None
) -> None:
    """Register a hook by its name."""
    model.register_comm_hook(state, comm_hook_type.value[0])


__all__ = [
    "DDPCommHookType",
    "debugging_hooks",
    "default_hooks",
    "powerSGD_hook",
    "register_ddp_comm_hook",
]
