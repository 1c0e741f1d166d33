"""Spectral norm by hooks, the way before parametrizations."""

from __future__ import annotations

from typing import Any

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.nn.conv import _ConvTranspose
from evergrad.nn.functional import normalize
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter, is_lazy
from evergrad.nn.utils.weight_norm import find_hook, remove_hook


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix with one row for each place along a dimension."""
    if dim:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    return weight.flatten(1)


def output_dim(module: Module) -> int:
    """The dimension of a layer's weight that counts its outputs."""
    return 1 if isinstance(module, _ConvTranspose) else 0


def start_vectors(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Random unit vectors for the left and the right side of a matrix."""
    u, v = (matrix.detach().new_empty(n).normal_(0, 1) for n in matrix.shape)
    return normalize(u, dim=0, eps=eps), normalize(v, dim=0, eps=eps)


def power_method(
    matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float, *, first: str
) -> None:
    """Turn ``u`` and ``v``, in place, towards the singular vectors of the largest value."""
    for _ in range(count):
        if first == "v":
            v.copy_(normalize(matrix.mH.mv(u), dim=0, eps=eps))
        u.copy_(normalize(matrix.mv(v), dim=0, eps=eps))
        if first == "u":
            v.copy_(normalize(matrix.mH.mv(u), dim=0, eps=eps))


class SpectralNorm:
    """A forward pre-hook that divides a weight by an estimate of its largest singular value."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with using(grad=False):
                power_method(matrix, u, v, self.n_power_iterations, self.eps, first="v")
                u, v = u.clone(), v.clone()  # another forward pass may come before backward
        return weight / u.dot(matrix.mv(v))  # type: ignore[no-any-return]

    @staticmethod
    def apply(
        module: Module, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        if find_hook(module, SpectralNorm, name) is not None:
            raise RuntimeError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}"
            )
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make "
                "sure to run the dummy forward before applying spectral normalization"
            )
        with using(grad=False):
            u, v = start_vectors(as_matrix(weight, dim), eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(made._note_version)
        return made

    def _note_version(self, module: Module, state: object, prefix: str, metadata: Any) -> None:
        metadata.setdefault("spectral_norm", {})[self.name + ".version"] = self._version

    def remove(self, module: Module) -> None:
        with using(grad=False):
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))
        tables = module._tables()
        tables.state = {k: h for k, h in tables.state.items() if h != self._note_version}

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:  # fmt: skip
    """Keep the largest singular value of a weight at 1.

    Args:
        module: the module that has the weight
        name: of the weight; default ``"weight"``
        n_power_iterations: steps of the power method at each call while training; default 1
        eps: keeps divisions finite; default 1e-12
        dim: the dimension of the outputs; 0, or 1 for transposed convolutions

    >>> layer = nn.utils.spectral_norm(nn.Linear(4, 4), n_power_iterations=30)
    >>> _ = layer(eg.ones(1, 4))
    >>> eg.allclose(eg.linalg.matrix_norm(layer.weight, 2), eg.tensor(1.0), atol=1e-2)
    True
    """
    SpectralNorm.apply(
        module, name, n_power_iterations, output_dim(module) if dim is None else dim, eps
    )
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again.

    Args:
        module: a module that :func:`spectral_norm` has changed
        name: of the weight; default ``"weight"``

    >>> layer = nn.utils.spectral_norm(nn.Linear(2, 2))
    >>> sorted(nn.utils.remove_spectral_norm(layer).state_dict())
    ['bias', 'weight']
    """
    remove_hook(module, SpectralNorm, name, "spectral_norm")
    return module
