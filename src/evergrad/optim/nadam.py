"""NAdam: Adam with Nesterov's look-ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.state import using
from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_betas,
    check_not_negative,
    count_step,
    state_like,
    step_counter,
    symbolic_item,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.core.types import Params
    from evergrad.optim.optimizer import Scalar


def _nadam(
    p: Tensor, m: Tensor, v: Tensor, g: Tensor, keep: Scalar, decay: Scalar, take1: Scalar,
    beta2: Scalar,
    take2: Scalar, correction2: Scalar, eps: Scalar, of_gradient: Scalar, of_mean: Scalar, *,
    maximize: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    g = (-g if maximize else g) + p * decay
    m = m + (g - m) * take1
    v = v * beta2 + g * g * take2
    scale = (v / correction2).sqrt() + eps
    return p * keep - g / scale * of_gradient - m / scale * of_mean, m, v


class NAdam(ParameterwiseOptimizer):
    """Steps along the gradient and its running mean, scaled by the running mean of its square."""

    def __init__(
        self, params: Params, lr: Scalar = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(
            learning_rate=lr, epsilon=eps, weight_decay=weight_decay, momentum_decay=momentum_decay
        )
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, object]) -> None:
        state = self.state[p]
        if not state:
            state["step"] = step_counter()
            state["mu_product"] = step_counter(1.0)
            state["exp_avg"] = state_like(p)
            state["exp_avg_sq"] = state_like(p)
        step = count_step(state)
        lr, decay = option(group, "lr"), option(group, "weight_decay")
        decoupled, momentum_decay = group["decoupled_weight_decay"], option(group, "momentum_decay")
        beta1, beta2 = option(group, "betas")
        mu, next_mu = (beta1 * (1.0 - 0.5 * 0.96 ** (t * momentum_decay)) for t in (step, step + 1))
        with using(grad=False):
            state["mu_product"] *= mu
        product = symbolic_item(state["mu_product"])
        update_of(group, _nadam, 3)(
            (p, state["exp_avg"], state["exp_avg_sq"], grad),
            1 - lr * decay if decoupled else 1.0,
            0.0 if decoupled else decay,
            1 - beta1, beta2, 1 - beta2, 1 - beta2**step, option(group, "eps"),
            lr * (1.0 - mu) / (1.0 - product),
            lr * next_mu / (1.0 - product * next_mu),
        )  # fmt: skip
