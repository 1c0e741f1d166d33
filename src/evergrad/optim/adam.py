"""Adam and AdamW."""

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


def _adam(
    p: Tensor, m: Tensor, v: Tensor, g: Tensor, step_size: Scalar, keep: Scalar, decay: Scalar,
    take1: Scalar, beta2: Scalar, take2: Scalar, root: Scalar, eps: Scalar, *, maximize: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``keep`` is what decoupled decay leaves of p, ``decay`` what coupled decay adds to g."""
    g = (-g if maximize else g) + p * decay
    m = m + (g - m) * take1
    v = v * beta2 + g * g * take2
    return p * keep - m / (v.sqrt() / root + eps) * step_size, m, v


def _amsgrad(
    p: Tensor, m: Tensor, v: Tensor, top: Tensor, g: Tensor, step_size: Scalar, keep: Scalar,
    decay: Scalar,
    take1: Scalar, beta2: Scalar, take2: Scalar, root: Scalar, eps: Scalar, *, maximize: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    g = (-g if maximize else g) + p * decay
    m = m + (g - m) * take1
    v = v * beta2 + g * g * take2
    top = maximum(top, v)
    return p * keep - m / (top.sqrt() / root + eps) * step_size, m, v, top


class Adam(ParameterwiseOptimizer):
    """Steps scaled by running means of the gradient and of its square."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        })  # fmt: skip

    def _sparse_refusal(self) -> str:
        return "Adam does not support sparse gradients, please consider SparseAdam instead"

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, object]) -> None:
        amsgrad = group["amsgrad"]
        names = ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if amsgrad else [])
        state = self.state_of(p, *names)
        step = count_step(state)
        lr, eps = option(group, "lr"), option(group, "eps")
        decay = option(group, "weight_decay")
        beta1, beta2 = option(group, "betas")
        decoupled = group["decoupled_weight_decay"]
        tensors = [p, *[state[name] for name in names]]
        update = update_of(group, _amsgrad if amsgrad else _adam, len(tensors))
        update(
            [*tensors, grad],
            lr / (1 - beta1**step),
            1 - lr * decay if decoupled else 1.0,
            0.0 if decoupled else decay,
            1 - beta1, beta2, 1 - beta2, (1 - beta2**step) ** 0.5, eps,
        )  # fmt: skip


class AdamW(Adam):
    """Adam whose weight decay does not pass through the running means."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
        maximize: bool = False, foreach: bool | None = None, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=True,
        )  # fmt: skip
