"""Adadelta: steps as large as the recent ones, relative to the gradient's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_not_negative,
    count_step,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.core.types import Params
    from evergrad.optim.optimizer import Scalar


def _adadelta(
    p: Tensor, squares: Tensor, deltas: Tensor, g: Tensor, lr: Scalar, decay: Scalar, rho: Scalar,
    take: Scalar,
    eps: Scalar, *, maximize: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    g = (-g if maximize else g) + p * decay
    squares = squares * rho + g * g * take
    delta = (deltas + eps).sqrt() / (squares + eps).sqrt() * g
    deltas = deltas * rho + delta * delta * take
    return p - delta * lr, squares, deltas


class Adadelta(ParameterwiseOptimizer):
    """Steps scaled by the ratio of recent steps to recent gradients."""

    def __init__(
        self, params: Params, lr: Scalar = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, object]) -> None:
        state = self.state_of(p, "square_avg", "acc_delta")
        count_step(state)
        rho = option(group, "rho")
        update_of(group, _adadelta, 3)(
            (p, state["square_avg"], state["acc_delta"], grad),
            option(group, "lr"), option(group, "weight_decay"), rho, 1 - rho, option(group, "eps"),
        )  # fmt: skip
