"""The table of optimizers with their options, and a training run both libraries can make."""

from __future__ import annotations

from typing import Any

import numpy as np

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.0, "betas": (0.0, 0.99)}),
    ("AdamW", {"lr": 0.1, "amsgrad": True, "maximize": True, "weight_decay": 0.3}),
    ("Adamax", {"lr": 0.1}),
    ("Adamax", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1, "momentum_decay": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "eps": 1e-3}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 2.0, "eps": 1e-2}),
    ("Adadelta", {"lr": 0.5}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "centered": True, "alpha": 0.9, "maximize": True, "eps": 1e-3}),
    ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5, "eps": 1e-3}),
    ("Rprop", {"lr": 0.01}),
    ("Rprop", {"lr": 0.01, "etas": (0.4, 1.5), "step_sizes": (1e-3, 0.1), "maximize": True}),
    ("ASGD", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 5, "weight_decay": 0.1}),
    ("ASGD", {"lr": 0.1, "t0": 0, "maximize": True}),
    ("Adafactor", {"lr": 0.1}),
    ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-5, 1e-2), "d": 2.0}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
]

# These make matrices or norms on the way.
NOT_ELEMENTWISE = ("Adafactor",)

# Options without which an optimizer cannot be made or would not do much.
DEFAULTS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9}, "Adam": {}, "AdamW": {}, "Adamax": {}, "NAdam": {},
    "RAdam": {}, "Adagrad": {}, "Adadelta": {}, "RMSprop": {}, "Rprop": {}, "ASGD": {},
    "Adafactor": {},
}  # fmt: skip

NAMES = tuple(DEFAULTS)


def ids(case: tuple[str, dict[str, Any]]) -> str:
    name, options = case
    return f"{name}({', '.join(f'{k}={v}' for k, v in options.items())})"


def make(ns: Any, name: str, params: Any, **options: Any) -> Any:
    """An optimizer of the name with options that it can be made with."""
    return getattr(ns.optim, name)(params, **{**DEFAULTS[name], **options})


SHAPES = ((3, 4), (5, 2), (2, 3, 2))


def parameters(ns: Any, kind: str = "float64", shapes: Any = SHAPES) -> list[Any]:
    """Parameters with the same numbers in both libraries."""
    random = np.random.default_rng(1)
    return [
        ns.nn.Parameter(ns.tensor(random.standard_normal(s)).to(getattr(ns, kind))) for s in shapes
    ]


class Gradients:
    """Gradients that depend on the parameters and on the step, the same in both libraries."""

    def __init__(self, ns: Any) -> None:
        self.ns = ns
        self.random = np.random.default_rng(2)

    def set_on(self, params: list[Any]) -> None:
        for p in params:
            noise = self.ns.tensor(self.random.standard_normal(tuple(p.shape)))
            p.grad = (p.detach() * 0.3 + 0.5 * noise.to(p.dtype)).to(p.dtype)


def train(ns: Any, optimizer: Any, params: list[Any], gradients: Gradients, steps: int) -> None:
    for _ in range(steps):
        gradients.set_on(params)
        optimizer.step()


def plain_state(state: Any) -> Any:
    """A state dict with tensors as arrays."""
    if isinstance(state, dict):
        return {key: plain_state(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [plain_state(value) for value in state]
    return state.detach().numpy() if hasattr(state, "detach") else state


def as_state_of(ns: Any, state: Any) -> Any:
    """The inverse of :func:`plain_state`, for either library."""
    if isinstance(state, dict):
        return {key: as_state_of(ns, value) for key, value in state.items()}
    if isinstance(state, list):
        return [as_state_of(ns, value) for value in state]
    return ns.tensor(state) if isinstance(state, (np.ndarray, np.generic)) else state
