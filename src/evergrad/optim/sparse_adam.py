"""SparseAdam: Adam for sparse gradients."""

from __future__ import annotations

from typing import Any

from evergrad.core.compound import Compound
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.optim.optimizer import ParameterwiseOptimizer, check_betas, state_like


class SparseAdam(ParameterwiseOptimizer):
    """Adam that updates only the rows of which a sparse gradient speaks, and their means."""

    takes_sparse = True

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:  # fmt: skip
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0.0:
                raise ValueError(f"Invalid {name}: {value}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [
            [number, place]
            for number, group in enumerate(self.param_groups)
            for place, parameter in enumerate(group["params"])
            if isinstance(parameter, Compound)
        ]
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if not isinstance(grad, Compound):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=state_like(p), exp_avg_sq=state_like(p))
        state["step"] += 1
        with using(grad=False):
            grad = (-grad if group["maximize"] else grad).coalesce()
            if grad._nnz():
                _update_rows(p, grad, state, group)


def _update_rows(p: Tensor, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Move the means towards the gradient, and the parameter along them, where there is one."""
    from evergrad.sparse.updates import add_at, read_at  # start-up: rarely used

    beta1, beta2 = group["betas"]
    step, values = state["step"], grad.values()
    mean = read_at(state["exp_avg"], grad)
    to_mean = (values - mean) * (1 - beta1)
    add_at(state["exp_avg"], grad, to_mean)
    square = read_at(state["exp_avg_sq"], grad)
    to_square = (values * values - square) * (1 - beta2)
    add_at(state["exp_avg_sq"], grad, to_square)
    size = group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    direction = (to_mean + mean) / ((to_square + square).sqrt() + group["eps"])
    add_at(p, grad, direction, -size)
