"""Rprop: step sizes that grow while the gradient keeps its sign and shrink when it turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params
from evergrad.ops.rows.elementwise.basic import maximum, minimum, where
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_not_negative,
    count_step,
    on_both_parts,
    state_like,
    step_counter,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


def _rprop(
    p: Tensor, former: Tensor, size: Tensor, g: Tensor, shrink: Scalar, grow: Scalar,
    smallest: object,
    largest: object, *, maximize: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Where the gradient has turned the parameter waits for one step."""
    g = -g if maximize else g
    agreement = g * former
    size = where(agreement > 0, size * grow, where(agreement < 0, size * shrink, size))
    size = minimum(maximum(size, smallest), largest)
    g = where(agreement < 0, 0.0, g)
    return p - g.sign() * size, g, size


class Rprop(ParameterwiseOptimizer):
    """Steps that depend on the signs of the gradient only; meant for whole batches."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        state = self.state[p]
        if not state:
            state["step"] = step_counter()
            state["prev"] = state_like(p)
            state["step_size"] = state_like(p, on_both_parts(p, float(group["lr"])))
        count_step(state)
        update_of(group, _rprop, 3)(
            (p, state["prev"], state["step_size"], grad),
            *option(group, "etas"),
            *option(group, "step_sizes"),
        )
