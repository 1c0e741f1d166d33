"""An optimizer whose state several processes share out; one process keeps all of it."""

from __future__ import annotations

from typing import Any

from evergrad.distributed.process_group import checked_group
from evergrad.optim.optimizer import Optimizer


class ZeroRedundancyOptimizer(Optimizer):
    """Wraps an optimizer class. In a world of one it is that optimizer."""

    def __init__(
        self, params: Any, optimizer_class: type[Optimizer], process_group: Any = None,
        parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any,
    ) -> None:  # fmt: skip
        checked_group(process_group)
        self.optim = optimizer_class(params, **defaults)
        super().__init__(self.optim.param_groups, self.optim.defaults)
        self.param_groups = self.optim.param_groups
        self.state = self.optim.state
        self._consolidated: dict[str, Any] | None = None

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """The wrapped optimizer's step."""
        return self.optim.step(**kwargs) if closure is None else self.optim.step(closure, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Give the wrapped optimizer further parameters."""
        if any(param_group is group for group in self.optim.param_groups):
            super().add_param_group(param_group)
        else:
            self.optim.add_param_group(param_group)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect the state of all processes in one, for ``state_dict`` to give."""
        self._consolidated = self.optim.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """The state that was last consolidated."""
        if self._consolidated is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                "`consolidate_state_dict(to=0)` on all ranks beforehand if you meant to save the "
                "global state"
            )
        return self._consolidated

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give the wrapped optimizer a saved state."""
        self.optim.load_state_dict(state_dict)
        self.param_groups = self.optim.param_groups
        self.state = self.optim.state


__all__ = ["ZeroRedundancyOptimizer"]
