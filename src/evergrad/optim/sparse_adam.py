"""SparseAdam: Adam for sparse gradients, which do not exist here yet."""

from __future__ import annotations

from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.optim.optimizer import ParameterwiseOptimizer, check_betas


class SparseAdam(ParameterwiseOptimizer):
    """Adam that updates only the rows of which a sparse gradient speaks."""

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:  # fmt: skip
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0.0:
                raise ValueError(f"Invalid {name}: {value}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )
