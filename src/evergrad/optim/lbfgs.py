"""L-BFGS: a quasi-Newton method that remembers a few steps and gradient changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import zeros_like
from evergrad.ops.rows.movement.complex_parts import view_as_real
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import reshape
from evergrad.optim.line_search import strong_wolfe
from evergrad.optim.optimizer import Closure, Optimizer, check_not_negative, evaluate

if TYPE_CHECKING:
    from evergrad.core.types import ParamGroup, Params, StateDict
    from evergrad.optim.optimizer import Scalar


def _as_real(tensor: Tensor) -> Tensor:
    return view_as_real(tensor) if tensor.is_complex() else tensor


class LBFGS(Optimizer):
    """Minimises with the curvature seen in the last ``history_size`` steps.

    ``step`` needs a closure that computes the loss and its gradients, and calls it several times.
    """

    def __init__(
        self, params: Params, lr: Scalar = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    # -- parameters as one vector -----------------------------------------------------------

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]  # type: ignore[no-any-return]

    def _flat_grad(self) -> Tensor:
        grads = [
            zeros_like(p.detach()) if p._grad is None else p._grad.to_dense() for p in self._params
        ]
        return cat([reshape(_as_real(g), -1) for g in grads])

    def _move(self, distance: float, direction: Tensor) -> None:
        start = 0
        for p in map(_as_real, self._params):
            part = direction[start : start + p.numel()]
            p.add_(part.view_as(p), alpha=distance)
            start += p.numel()

    # -- the step ---------------------------------------------------------------------------

    def step(self, closure: Closure) -> Any:  # type: ignore[override]
        """Go on until a limit or a tolerance is reached; gives the loss at the beginning."""
        group = self.param_groups[0]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with using(grad=False):
            first_loss = evaluate(closure)
            state["func_evals"] += 1
            gradient = self._flat_grad()
            if gradient.abs().max() > group["tolerance_grad"]:
                self._iterate(closure, float(first_loss), gradient, state, group)
        return first_loss

    def _iterate(
        self, closure: Closure, loss: float, gradient: Tensor, state: StateDict, group: ParamGroup
    ) -> None:
        evaluations = 1
        tolerance = group["tolerance_change"]
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = state["d"] = self._direction(gradient, state, group["history_size"])
            state["prev_flat_grad"] = gradient
            state["prev_loss"] = former_loss = loss
            state["t"] = float(group["lr"])
            if state["n_iter"] == 1:
                state["t"] *= min(1.0, 1.0 / gradient.abs().sum().item())
            slope = gradient.dot(direction).item()
            if slope > -tolerance:
                return
            last = iteration == group["max_iter"]
            loss, gradient, used = self._advance(
                closure, loss, gradient, slope, state, last, group["max_eval"] - evaluations
            )
            evaluations += used
            state["func_evals"] += used
            if (
                last
                or evaluations >= group["max_eval"]
                or gradient.abs().max() <= group["tolerance_grad"]
                or (direction * state["t"]).abs().max() <= tolerance
                or abs(loss - former_loss) < tolerance
            ):
                return

    def _advance(
        self, closure: Closure, loss: float, gradient: Tensor, slope: float, state: StateDict,
        last: bool,
        limit: int,
    ) -> tuple[float, Tensor, int]:  # fmt: skip
        """Move along the direction; gives the new loss, gradient and number of evaluations."""
        direction = state["d"]
        if self.param_groups[0]["line_search_fn"] is None:
            self._move(state["t"], direction)
            if last:  # the new values would not be read
                return loss, gradient, 0
            return float(evaluate(closure)), self._flat_grad(), 1
        origin = [p.detach().clone() for p in self._params]

        def objective(distance: float) -> tuple[float, Tensor]:
            self._move(distance, direction)
            value, slopes = float(evaluate(closure)), self._flat_grad()
            for p, values in zip(self._params, origin, strict=True):
                p.copy_(values)
            return value, slopes

        state["t"], loss, gradient, used = strong_wolfe(
            objective, direction, state["t"], loss, gradient, slope, 1e-9, limit
        )
        self._move(state["t"], direction)
        return loss, gradient, used

    def _direction(self, gradient: Tensor, state: StateDict, history_size: int) -> Tensor:
        """Minus the gradient times the remembered inverse of the curvature."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -gradient
        self._remember(gradient - state["prev_flat_grad"], state, history_size)
        changes, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        weights = state.setdefault("al", [None] * history_size)
        found = -gradient
        for i in reversed(range(len(changes))):
            weights[i] = steps[i].dot(found) * ro[i]
            found = found - changes[i] * weights[i]
        found = found * state["H_diag"]
        for change, step, scale, weight in zip(changes, steps, ro, weights, strict=False):
            found = found + step * (weight - change.dot(found) * scale)
        return found  # type: ignore[no-any-return]

    def _remember(self, change: Tensor, state: StateDict, history_size: int) -> None:
        """Keep a step and what it did to the gradient, if the curvature along it is positive."""
        step = state["d"] * state["t"]
        curvature = change.dot(step)
        if not curvature > 1e-10:
            return
        for name, value in (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / curvature)):
            if len(state[name]) == history_size:
                state[name].pop(0)
            state[name].append(value)
        state["H_diag"] = curvature / change.dot(change)
