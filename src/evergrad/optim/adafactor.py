"""Adafactor: Adam whose mean of squares is kept as the product of a row and a column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.dtypes import finfo
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import at_least, at_most, option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params, StateDict
from evergrad.memory.ledger import OPTIMIZER
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_not_negative,
    count_step,
    state_like,
    step_counter,
    symbolic_item,
)

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


class Adafactor(ParameterwiseOptimizer):
    """Adam for large matrices: its state has one number for each row and column."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0,
        *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        check_not_negative(
            learning_rate=lr, epsilon1=eps[0] or 0.0, epsilon2=eps[1], weight_decay=weight_decay
        )
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize,
        })  # fmt: skip

    def _make_state(self, grad: Tensor, state: StateDict) -> None:
        state["step"] = step_counter()
        if grad.ndim < 2:
            state["variance"] = state_like(grad)
            return
        shape = tuple(grad.shape)
        with using(trace=None):  # it outlives a trace that is running
            state["row_var"] = grad.new_zeros((*shape[:-1], 1))
            state["col_var"] = grad.new_zeros((*shape[:-2], 1, shape[-1]))
        for name in ("row_var", "col_var"):
            state[name]._storage.tag(OPTIMIZER)

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        state = self.state[p]
        if not state:
            self._make_state(grad, state)
        step = count_step(state)
        lr = option(group, "lr")
        eps1, eps2 = group["eps"]
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        with using(grad=False):
            grad = -grad if group["maximize"] else grad
            size = at_least(symbolic_item(p.norm(2)) / p.numel() ** 0.5, eps2)
            size = size * at_most(1 / step**0.5, lr)
            if group["weight_decay"] != 0:
                p.mul_(1 - lr * option(group, "weight_decay"))
            variance = _estimated_variance(grad, state, step ** option(group, "beta2_decay"), eps1)
            update = variance.clamp(min=eps1 * eps1).rsqrt() * grad
            excess = symbolic_item(update.norm(2)) / (update.numel() ** 0.5 * option(group, "d"))
            p.add_(update, alpha=-size / at_least(excess, 1.0))


def _estimated_variance(grad: Tensor, state: StateDict, take: object, eps: float) -> Tensor:
    """Bring the means of squares up to date; gives what they say of each element."""
    if grad.ndim < 2:
        return state["variance"].lerp_(grad * grad, take)  # type: ignore[no-any-return]
    squares = grad * grad
    rows = state["row_var"].lerp_(squares.mean(-1, True), take)
    columns = state["col_var"].lerp_(squares.mean(-2, True), take)
    return rows @ columns / rows.mean(-2, True).clamp(min=eps)  # type: ignore[no-any-return]
