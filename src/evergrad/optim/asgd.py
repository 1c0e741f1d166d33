"""ASGD: gradient descent that also keeps the average of the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.functionalize import concrete_item, guard
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import at_least, option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_not_negative,
    count_step,
    state_like,
    step_counter,
    symbolic_item,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


def _asgd(
    p: Tensor, average: Tensor, g: Tensor, eta: Scalar, decay: Scalar, keep: Scalar, mu: Scalar, *,
    maximize: bool, averaging: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    g = (-g if maximize else g) + p * decay
    p = p * keep - g * eta
    return p, average + (p - average) * mu if averaging else p


class ASGD(ParameterwiseOptimizer):
    """Averaged gradient descent: from step ``t0`` on ``state["ax"]`` averages the parameters."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        state = self.state[p]
        if not state:
            state["step"] = step_counter()
            state["eta"] = step_counter(float(group["lr"]))
            state["mu"] = step_counter(1.0)
            state["ax"] = state_like(p)
        averaging = guard(lambda: concrete_item(state["mu"]) != 1, "whether ASGD averages yet")
        step = count_step(state)
        lr, lambd = option(group, "lr"), option(group, "lambd")
        eta, mu = symbolic_item(state["eta"]), symbolic_item(state["mu"])
        update_of(group, _asgd, 2, averaging=averaging)(
            (p, state["ax"], grad), eta, option(group, "weight_decay"), 1 - lambd * eta, mu
        )
        with using(grad=False):
            state["eta"].fill_(lr / (1 + lambd * lr * step) ** option(group, "alpha"))
            state["mu"].fill_(1 / at_least(step - option(group, "t0"), 1))
