"""Adamax: Adam with a running maximum in place of the mean of squares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.elementwise.basic import maximum
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_betas,
    check_not_negative,
    count_step,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.core.types import Params
    from evergrad.optim.optimizer import Scalar


def _adamax(
    p: Tensor, m: Tensor, u: Tensor, g: Tensor, step_size: Scalar, decay: Scalar, take1: Scalar,
    beta2: Scalar, eps: Scalar, *, maximize: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    g = (-g if maximize else g) + p * decay
    m = m + (g - m) * take1
    u = maximum(u * beta2, g.abs() + eps)
    return p - m / u * step_size, m, u


class Adamax(ParameterwiseOptimizer):
    """Steps scaled by the running mean of the gradient and its running maximum."""

    def __init__(
        self, params: Params, lr: Scalar = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, object]) -> None:
        state = self.state_of(p, "exp_avg", "exp_inf")
        step = count_step(state)
        beta1, beta2 = option(group, "betas")
        update_of(group, _adamax, 3)(
            (p, state["exp_avg"], state["exp_inf"], grad),
            option(group, "lr") / (1 - beta1**step), option(group, "weight_decay"),
            1 - beta1, beta2, option(group, "eps"),
        )  # fmt: skip
