"""Adagrad: steps shrink with the sum of all squared gradients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from evergrad.core.compound import Compound
from evergrad.core.functionalize import guard
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params
from evergrad.ops.composite.row_updates import rows_of, update_rows
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


def _adagrad(
    p: Tensor, total: Tensor, g: Tensor, rate: Scalar, decay: Scalar, eps: Scalar, *, maximize: bool
) -> tuple[Tensor, Tensor]:
    g = (-g if maximize else g) + p * decay
    total = total + g * g
    return p - g / (total.sqrt() + eps) * rate, total


def _adagrad_sparse(
    p: Tensor, total: Tensor, grad: Tensor, rate: Scalar, group: ParamGroup
) -> None:
    """The same at the places of which a sparse gradient speaks."""
    from evergrad.sparse.updates import add_at, read_at, write_at  # start-up: rarely used

    with using(grad=False):
        grad = (-grad if group["maximize"] else grad).coalesce()
        values = grad.values()
        squares = read_at(total, grad) + values * values
        write_at(total, grad, squares)
        add_at(p, grad, values / (squares.sqrt() + group["eps"]), -rate)


class Adagrad(ParameterwiseOptimizer):
    """``p -= lr * g / sqrt(sum of g * g)``"""

    def __init__(
        self, params: Params, lr: Scalar = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_not_negative(
            learning_rate=lr, lr_decay=lr_decay, weight_decay=weight_decay, epsilon=eps,
            initial_accumulator_value=initial_accumulator_value,
        )  # fmt: skip
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    def add_param_group(self, param_group: dict[str, object]) -> None:
        """Add parameters with options of their own; their sums begin at once."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            self.state[p] = {
                "step": step_counter(),
                "sum": state_like(p, on_both_parts(p, group["initial_accumulator_value"])),
            }

    def share_memory(self) -> None:
        """Memory is shared between threads as it is."""

    takes_sparse = True

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        state = self.state[p]
        if isinstance(grad, Compound) and group["weight_decay"] != 0:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        step = count_step(state)
        rate = option(group, "lr") / (1 + (step - 1) * option(group, "lr_decay"))
        if isinstance(grad, Compound):
            _adagrad_sparse(p, state["sum"], grad, rate, group)
            return
        rows = rows_of(p, grad)
        if rows is not None and guard(lambda: not group["weight_decay"], "the weight decay"):
            formula = partial(_adagrad, rate=rate, decay=0, eps=option(group, "eps"))
            maximize = group["maximize"]
            update_rows(
                (p, state["sum"]), rows, lambda w, total, g: formula(w, total, g, maximize=maximize)
            )
            return
        update_of(group, _adagrad, 2)(
            (p, state["sum"], grad),
            rate,
            option(group, "weight_decay"),
            option(group, "eps"),
        )
