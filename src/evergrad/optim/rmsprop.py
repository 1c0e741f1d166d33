"""RMSprop: steps scaled by the running mean of the squared gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_not_negative,
    count_step,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


def _rmsprop(
    p: Tensor, squares: Tensor, *rest: Any, maximize: bool, centered: bool, momentum: bool
) -> tuple[Tensor, ...]:
    """Behind the squares stand the buffer of a momentum and the mean of a centered variance."""
    given = list(rest)
    buffer = given.pop(0) if momentum else None
    mean = given.pop(0) if centered else None
    g, lr, decay, alpha, take, eps, beta = given
    g = (-g if maximize else g) + p * decay
    squares = squares * alpha + g * g * take
    variance = squares
    if mean is not None:
        mean = mean + (g - mean) * take
        variance = squares - mean * mean
    change = g / (variance.sqrt() + eps)
    if buffer is not None:
        change = buffer = buffer * beta + change
    written = (p - change * lr, squares, buffer, mean)
    return tuple(tensor for tensor in written if tensor is not None)


class RMSprop(ParameterwiseOptimizer):
    """``p -= lr * g / sqrt(mean of g * g)``, with momentum or a centered variance."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        capturable: bool = False, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(
            learning_rate=lr, epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha
        )
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        momentum, centered = group["momentum"] > 0, group["centered"]
        alpha = option(group, "alpha")
        names = ["square_avg"]
        names += ["momentum_buffer"] if momentum else []
        names += ["grad_avg"] if centered else []
        state = self.state_of(p, *names)
        count_step(state)
        tensors = [p, *[state[name] for name in names]]
        update_of(group, _rmsprop, len(tensors), centered=centered, momentum=momentum)(
            [*tensors, grad],
            option(group, "lr"), option(group, "weight_decay"), alpha, 1 - alpha,
            option(group, "eps"), option(group, "momentum"),
        )  # fmt: skip
