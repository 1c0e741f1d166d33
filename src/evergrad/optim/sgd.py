"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.compound import Compound
from evergrad.core.functionalize import guard, mark_single_use
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params, StateDict
from evergrad.memory.ledger import OPTIMIZER
from evergrad.ops.composite.row_updates import rows_of, update_rows
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_not_negative,
    state_like,
    update_of,
)

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


def _plain(p: Tensor, g: Tensor, lr: Scalar, weight_decay: Scalar, *, maximize: bool) -> Tensor:
    g = (-g if maximize else g) + p * weight_decay
    return p - g * lr


def _momentum(
    p: Tensor, buffer: Tensor, g: Tensor, lr: Tensor, weight_decay: Tensor, momentum: Tensor,
    taken: Tensor, *, maximize: bool, nesterov: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The first gradient is taken whole: ``taken`` is then 1 and the buffer still zero."""
    g = (-g if maximize else g) + p * weight_decay
    buffer = buffer * momentum + g * taken
    return p - ((g + buffer * momentum) if nesterov else buffer) * lr, buffer


class SGD(ParameterwiseOptimizer):
    """``p -= lr * g``, with momentum, dampening, weight decay and Nesterov's look-ahead."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    takes_sparse = True

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        if isinstance(grad, Compound):
            self._update_sparse(p, grad, group)
            return
        lr, decay = option(group, "lr"), option(group, "weight_decay")
        if group["momentum"] == 0:
            rows = rows_of(p, grad)
            if rows is not None and guard(lambda: not group["weight_decay"], "the weight decay"):
                sign = -1 if group["maximize"] else 1
                update_rows((p,), rows, lambda w, g: (w - sign * g * lr,))
                return
            update_of(group, _plain, 1)((p, grad), lr, decay)
            return
        state = self.state[p]
        buffer = state.get("momentum_buffer")
        if isinstance(buffer, Compound):  # of earlier steps, whose gradients were sparse
            with using(trace=None, grad=False):
                buffer = state["momentum_buffer"] = buffer.to_dense()
            buffer._storage.tag(OPTIMIZER)
        taken = 1 - group["dampening"]
        if buffer is None:
            buffer, taken = state_like(p), 1.0
            state["momentum_buffer"] = buffer
            if group["dampening"]:
                mark_single_use("the first step takes gradients without dampening")
        update = update_of(group, _momentum, 2, nesterov=group["nesterov"])
        update((p, buffer, grad), lr, decay, option(group, "momentum"), taken)

    def _update_sparse(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        """The same on the rows of which a sparse gradient speaks; the momentum is sparse, too."""
        from evergrad.sparse.updates import add_scaled  # start-up: rarely used

        with using(grad=False):
            grad = -grad if group["maximize"] else grad
            if group["weight_decay"] != 0:
                grad = grad + p * group["weight_decay"]  # refuses: the sum would be dense
            if group["momentum"] != 0:
                grad = self._sparse_momentum(self.state[p], grad, group)
            add_scaled(p, grad, -group["lr"])

    def _sparse_momentum(self, state: StateDict, grad: Tensor, group: ParamGroup) -> Tensor:
        """The direction to go, after the gradient has entered the momentum."""
        buffer: Tensor | None = state.get("momentum_buffer")
        momentum = group["momentum"]
        if buffer is None:
            buffer = grad.clone()
        else:
            buffer = buffer * momentum + grad * (1 - group["dampening"])
        state["momentum_buffer"] = buffer
        if not group["nesterov"]:
            return buffer
        ahead = buffer * momentum
        # Sparse, or dense after steps whose gradients were dense.
        direction: Tensor = grad + ahead if isinstance(buffer, Compound) else ahead + grad
        return direction
