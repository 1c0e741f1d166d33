"""Tools beside the engine: data loading, checkpointing, trees, logs."""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_modules

if TYPE_CHECKING:
    from evergrad.utils import _pytree as _pytree
    from evergrad.utils import checkpoint as checkpoint
    from evergrad.utils import data as data
    from evergrad.utils import dlpack as dlpack
    from evergrad.utils import hooks as hooks
    from evergrad.utils import tensorboard as tensorboard
else:
    __getattr__ = lazy_modules(
        "evergrad.utils", "_pytree", "checkpoint", "data", "dlpack", "hooks", "tensorboard"
    )
