"""Lion, of "Symbolic Discovery of Optimization Algorithms" (2023); PyTorch has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_betas,
    check_not_negative,
    fused,
    state_like,
)

if TYPE_CHECKING:
    from evergrad.core.types import Params
    from evergrad.optim.optimizer import Scalar


def _lion(
    p: Tensor,
    m: Tensor,
    g: Tensor,
    lr: Scalar,
    keep: Scalar,
    take1: Scalar,
    take2: Scalar,
    *,
    maximize: bool,
) -> tuple[Tensor, Tensor]:
    g = -g if maximize else g
    direction = (m + (g - m) * take1).sign()
    return p * keep - direction * lr, m + (g - m) * take2


class Lion(ParameterwiseOptimizer):
    """Steps of one size along the signs of a mix of the gradient and its running mean.

    Args:
        params: tensors, or dictionaries with options of their own
        lr: learning rate; default 1e-4
        betas: weights of the mean in the step, and in the mean; default (0.9, 0.99)
        weight_decay: share of the parameter that is taken off, times ``lr``; default 0
        maximize: whether to climb; default ``False``
        foreach: accepted, has no effect

    PyTorch has no such optimizer.

    >>> w = nn.Parameter(eg.ones(2))
    >>> (w * w).sum().backward()
    >>> optim.Lion([w], lr=0.1).step()
    >>> w.detach()
    tensor([0.9000, 0.9000])
    """

    def __init__(
        self, params: Params, lr: Scalar = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0, *, maximize: bool = False, foreach: bool | None = None,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, weight_decay=weight_decay)
        check_betas(betas)
        super().__init__(params, {
            "lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach,
        })  # fmt: skip

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, object]) -> None:
        state = self.state[p]
        if not state:
            state["exp_avg"] = state_like(p)
        lr, decay = option(group, "lr"), option(group, "weight_decay")
        beta1, beta2 = option(group, "betas")
        fused(_lion, 2, maximize=group["maximize"])(
            (p, state["exp_avg"], grad), lr, 1 - lr * decay, 1 - beta1, 1 - beta2
        )
