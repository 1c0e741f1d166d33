"""Weight norm by hooks, the way before parametrizations."""

from __future__ import annotations

import warnings
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter, is_lazy


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """The norms of the slices along a dimension, or with -1 the norm of all."""
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.ndim) if d != dim]
    return v.norm(pow, others, True)


def scaled_to_norm(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """The direction ``v`` with the lengths ``g``."""
    return v * (g / norm_except_dim(v, 2, dim))


class WeightNorm:
    """A forward pre-hook that computes a weight from its length and direction."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim: int = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        g, v = (getattr(module, f"{self.name}_{part}") for part in "gv")
        return scaled_to_norm(v, g, self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        if find_hook(module, WeightNorm, name) is not None:
            raise RuntimeError(
                f"Cannot register two weight_norm hooks on the same parameter {name}"
            )
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure "
                "to run the dummy forward before applying weight normalization"
            )
        made = WeightNorm(name, dim)
        del module._parameters[name]
        module.register_parameter(
            name + "_g", Parameter(norm_except_dim(weight.detach(), 2, made.dim))
        )
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, made.compute_weight(module))
        module.register_forward_pre_hook(made)
        return made

    def remove(self, module: Module) -> None:
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self.name, self.compute_weight(module))


def find_hook(module: Module, kind: type, name: str) -> tuple[int, Any] | None:
    """The forward pre-hook of a kind for a tensor, with its number."""
    for key, (hook, _) in module._tables().forward_pre.items():
        if isinstance(hook, kind) and hook.name == name:  # type: ignore[attr-defined]
            return key, hook
    return None


def remove_hook(module: Module, kind: type, name: str, what: str) -> None:
    """Take a hook that computes a tensor away, leaving the tensor's present value."""
    found = find_hook(module, kind, name)
    if found is None:
        raise ValueError(f"{what} of '{name}' not found in {module}")
    key, hook = found
    hook.remove(module)
    del module._tables().forward_pre[key]


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the length and the direction of a weight apart; parametrizations do it better.

    Args:
        module: the module that has the weight
        name: of the weight; default ``"weight"``
        dim: the dimension along which lengths differ; default 0, ``None`` for one length

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> sorted(layer.state_dict())
    ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    warnings.warn(
        "`evergrad.nn.utils.weight_norm` is deprecated in favor of "
        "`evergrad.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again.

    Args:
        module: a module that :func:`weight_norm` has changed
        name: of the weight; default ``"weight"``

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    >>> _ = nn.utils.parametrize.remove_parametrizations(layer, "weight")
    >>> sorted(layer.state_dict())
    ['bias', 'weight']
    """
    remove_hook(module, WeightNorm, name, "weight_norm")
    return module
