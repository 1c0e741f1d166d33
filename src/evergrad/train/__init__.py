"""Training runs that are not lost: configurations, tasks, the loop, checkpoints, metrics.

``evergrad train`` stands on this package; ``docs/design/training.md`` says how it works.
"""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_names

if TYPE_CHECKING:
    from evergrad.train.config import ConfigError, DataConfig, OptimizerConfig, RunConfig
    from evergrad.train.task import TASKS, Sample, Task

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "config": ("ConfigError", "DataConfig", "OptimizerConfig", "RunConfig"),
            "task": ("TASKS", "Sample", "Task"),
        },
    )

__all__ = ["TASKS", "ConfigError", "DataConfig", "OptimizerConfig", "RunConfig", "Sample", "Task"]
