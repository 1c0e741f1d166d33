"""Tools beside the engine: data loading, checkpointing, trees, logs."""

from evergrad.lazy import lazy_modules

__getattr__ = lazy_modules(
    "evergrad.utils", "_pytree", "checkpoint", "data", "dlpack", "hooks", "tensorboard"
)
