"""SparseAdam: Adam for sparse gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.compound import Compound
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params, StateDict
from evergrad.ops.composite.row_updates import Rows, rows_of, update_rows
from evergrad.optim.optimizer import (
    ParameterwiseOptimizer,
    check_betas,
    count_step,
    state_like,
    step_counter,
)

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


class SparseAdam(ParameterwiseOptimizer):
    """Adam that updates only the rows of which a sparse gradient speaks, and their means.

    Args:
        params: tensors with sparse gradients, as of ``nn.Embedding(..., sparse=True)``
        lr: learning rate; default 1e-3
        betas: decay of the means of gradients and squares; default (0.9, 0.999)
        eps: added to the denominator; default 1e-8
        maximize: whether to climb; default ``False``

    >>> table = nn.Embedding(3, 2, sparse=True)
    >>> _ = nn.init.ones_(table.weight)
    >>> table(eg.tensor([1])).sum().backward()
    >>> optim.SparseAdam(table.parameters(), lr=0.1).step()
    >>> table.weight.detach()
    tensor([[1.0000, 1.0000],
            [0.9000, 0.9000],
            [1.0000, 1.0000]])
    """

    takes_sparse = True

    def __init__(
        self, params: Params, lr: Scalar = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, maximize: bool = False,
    ) -> None:  # fmt: skip
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0.0:
                raise ValueError(f"Invalid {name}: {value}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        sparse = [
            [number, place]
            for number, group in enumerate(self.param_groups)
            for place, parameter in enumerate(group["params"])
            if isinstance(parameter, Compound)
        ]
        if sparse:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, object]) -> None:
        rows = rows_of(p, grad, few=False)
        if rows is not None:
            self._update_traced(p, rows, group)
            return
        if not isinstance(grad, Compound):
            raise RuntimeError(
                "SparseAdam does not support dense gradients, please consider Adam instead"
            )
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=state_like(p), exp_avg_sq=state_like(p))
        if isinstance(state["step"], Tensor):
            state["step"] = int(state["step"].item())
        state["step"] += 1
        with using(grad=False):
            grad = (-grad if group["maximize"] else grad).coalesce()
            if grad._nnz():  # type: ignore[attr-defined]
                _update_rows(p, grad, state, group)

    def _update_traced(self, p: Tensor, rows: Rows, group: dict[str, object]) -> None:
        """The same inside a trace, where the counter of steps is a tensor."""
        state = self.state[p]
        if not state:
            state.update(step=step_counter(), exp_avg=state_like(p), exp_avg_sq=state_like(p))
        if not isinstance(state["step"], Tensor):
            state["step"] = step_counter(state["step"])
        step = count_step(state)
        beta1, beta2 = option(group, "betas")
        size = option(group, "lr") * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        sign = -1 if group["maximize"] else 1

        def formula(w: Tensor, mean: Tensor, square: Tensor, g: Tensor) -> tuple[Tensor, ...]:
            g = g * sign
            mean = mean + (g - mean) * (1 - beta1)
            square = square + (g * g - square) * (1 - beta2)
            return w - mean / (square.sqrt() + option(group, "eps")) * size, mean, square

        update_rows((p, state["exp_avg"], state["exp_avg_sq"]), rows, formula)


def _update_rows(p: Tensor, grad: Tensor, state: StateDict, group: ParamGroup) -> None:
    """Move the means towards the gradient, and the parameter along them, where there is one."""
    from evergrad.sparse.updates import add_at, read_at, write_at  # start-up: rarely used

    beta1, beta2 = group["betas"]
    step, values = state["step"], grad.values()
    mean = read_at(state["exp_avg"], grad)
    mean = mean + (values - mean) * (1 - beta1)
    write_at(state["exp_avg"], grad, mean)
    square = read_at(state["exp_avg_sq"], grad)
    square = square + (values * values - square) * (1 - beta2)
    write_at(state["exp_avg_sq"], grad, square)
    size = group["lr"] * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    add_at(p, grad, mean / (square.sqrt() + group["eps"]), -size)
