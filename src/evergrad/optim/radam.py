"""RAdam: Adam that waits until its estimate of the variance can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.functionalize import concrete_item, guard
from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_betas,
    check_not_negative,
    count_step,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


def _radam(
    p: Tensor, m: Tensor, v: Tensor, g: Tensor, step_size: Scalar, keep: Scalar, decay: Scalar,
    take1: Scalar,
    beta2: Scalar, take2: Scalar, eps: Scalar, *, maximize: bool, rectified: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    g = (-g if maximize else g) + p * decay
    m = m + (g - m) * take1
    v = v * beta2 + g * g * take2
    return p * keep - (m / (v.sqrt() + eps) if rectified else m) * step_size, m, v


def _length(step: Any, beta2: Scalar) -> Any:
    """Effective number of steps in the mean of squares so far; above 5 its variance is known."""
    return 2 / (1 - beta2) - 1 - 2 * step * beta2**step / (1 - beta2**step)


def _rectification(length: float, beta2: Scalar) -> object:
    """How far the variance can be trusted."""
    longest = 2 / (1 - beta2) - 1
    trust = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return trust**0.5


class RAdam(ParameterwiseOptimizer):
    """Adam whose first steps are plain momentum, until the variance is known well enough."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        state = self.state_of(p, "exp_avg", "exp_avg_sq")
        rectified = guard(
            lambda: _length(concrete_item(state["step"]) + 1, group["betas"][1]) > 5.0,
            "whether RAdam knows its variance",
        )
        step = count_step(state)
        lr, decay = option(group, "lr"), option(group, "weight_decay")
        beta1, beta2 = option(group, "betas")
        decoupled = group["decoupled_weight_decay"]
        step_size = lr / (1 - beta1**step)
        if rectified:
            trust = _rectification(_length(step, beta2), beta2)
            step_size = step_size * trust * (1 - beta2**step) ** 0.5
        update_of(group, _radam, 3, rectified=rectified)(
            (p, state["exp_avg"], state["exp_avg_sq"], grad),
            step_size,
            1 - lr * decay if decoupled else 1.0,
            0.0 if decoupled else decay,
            1 - beta1, beta2, 1 - beta2, option(group, "eps"),
        )  # fmt: skip
