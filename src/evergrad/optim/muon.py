"""Muon: momentum made orthogonal, for the matrices of hidden layers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import option
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, Params
from evergrad.ops.composite.products import addmm
from evergrad.optim.optimizer import ParameterwiseOptimizer, check_not_negative, state_like

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Scalar


def _orthogonalized(
    update: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Near the closest orthogonal matrix, by Newton-Schulz steps in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = update.shape[0] > update.shape[1]
    x = update.to(dtypes.bfloat16)
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x


def _rate_for_shape(lr: Scalar, rule: str | None, shape: tuple[int, ...]) -> Any:
    rows, columns = shape
    if rule == "match_rms_adamw":
        return lr * 0.2 * math.sqrt(max(rows, columns))
    return lr * math.sqrt(max(1, rows / columns))


class Muon(ParameterwiseOptimizer):
    """Momentum whose singular values are all brought near 1 before each step."""

    def __init__(
        self, params: Params, lr: Scalar = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_not_negative(learning_rate=lr, momentum=momentum, weight_decay=weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{p.shape}"
                    )

    def _update_one(self, p: Tensor, grad: Tensor, group: ParamGroup) -> None:
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        state = self.state[p]
        if not state:
            state["momentum_buffer"] = state_like(p)
        lr, momentum = option(group, "lr"), option(group, "momentum")
        with using(grad=False):
            buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
            update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            update = _orthogonalized(
                update, group["ns_coefficients"], group["ns_steps"], group["eps"]
            )
            p.mul_(1 - lr * option(group, "weight_decay"))
            p.add_(update, alpha=-_rate_for_shape(lr, group["adjust_lr_fn"], p.shape))
