"""Ready-made parametrizations: orthogonal matrices, weight norm and spectral norm."""

from __future__ import annotations

from evergrad import linalg
from evergrad.core.dtypes import finfo
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.nn.functional import normalize
from evergrad.nn.module import Module
from evergrad.nn.utils.parametrize import register_parametrization
from evergrad.nn.utils.spectral_norm import as_matrix, output_dim, power_method, start_vectors
from evergrad.nn.utils.weight_norm import norm_except_dim, scaled_to_norm
from evergrad.ops.rows.creation.constants import eye, zeros_like
from evergrad.ops.rows.linalg.factor import geqrf, householder_product
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import expand


def _weight_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# -- orthogonal ---------------------------------------------------------------------------------


def _is_orthogonal(q: Tensor) -> bool:
    rows, columns = q.shape[-2:]
    identity = eye(columns, dtype=q.dtype)
    return bool((q.mH @ q).allclose(identity, atol=10.0 * rows * finfo(q.dtype).eps))


def _make_orthogonal(tall: Tensor) -> Tensor:
    """The Q of a QR decomposition whose R has a positive diagonal."""
    reflectors, tau = geqrf(tall)
    q = householder_product(reflectors, tau)
    return q * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)  # type: ignore[no-any-return]


class _Orthogonal(Module):
    """A matrix whose columns (or rows, if it is wide) are orthonormal."""

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if wide else X
        q = self._reflected(tall) if self.orthogonal_map == "householder" else self._rotated(tall)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _rotated(self, tall: Tensor) -> Tensor:
        """The exponential or Cayley map of a skew matrix made of the lower triangle."""
        rows, columns = tall.shape[-2:]
        lower = tall.tril()
        if rows != columns:
            blank = tall.new_zeros(rows, rows - columns)
            lower = cat([lower, expand(blank, (*tall.shape[:-2], rows, rows - columns))], -1)
        skew = lower - lower.mH
        if self.orthogonal_map == "matrix_exp":
            q = linalg.matrix_exp(skew)
        else:
            identity = eye(rows, dtype=skew.dtype)
            q = linalg.solve(identity - skew * 0.5, identity + skew * 0.5)
        return q if rows == columns else q[..., :columns]

    def _reflected(self, tall: Tensor) -> Tensor:
        """A product of reflections; the diagonal only holds signs and is not learned."""
        lower = tall.tril(-1)
        tau = 2.0 / (1.0 + (lower * lower).sum(-2))
        signs = tall.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        return linalg.householder_product(lower, tau) * signs

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        with using(grad=False):
            wide = Q.shape[-2] < Q.shape[-1]
            tall = Q.mT if wide else Q
            if not hasattr(self, "base"):
                found = self._reflectors(tall)
                return found.mT if wide else found
            self.base = self._completed(tall)
            start = zeros_like(Q)
            start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return start

    def _reflectors(self, tall: Tensor) -> Tensor:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        reflectors, tau = geqrf(tall)
        diagonal = reflectors.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        diagonal[tau == 0.0] *= -1  # where no reflection took place
        return reflectors  # type: ignore[no-any-return]

    def _completed(self, tall: Tensor) -> Tensor:
        """A square orthogonal matrix whose first columns are the given ones."""
        rows, columns = tall.shape[-2:]
        if rows == columns:
            return tall.clone() if _is_orthogonal(tall) else _make_orthogonal(tall)
        more = tall.new_empty((*tall.shape[:-2], rows, rows - columns)).normal_()
        return _make_orthogonal(cat([tall, more], -1))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *,
    use_trivialization: bool = True,
) -> Module:  # fmt: skip
    """Keep a matrix of a module orthogonal.

    Args:
        module: the module
        name: of the matrix; default ``"weight"``
        orthogonal_map: ``"matrix_exp"``, ``"cayley"`` or ``"householder"``; by the shape
            if not given
        use_trivialization: start from the matrix as it is; default ``True``

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    >>> eg.allclose(layer.weight @ layer.weight.T, eg.eye(3), atol=1e-5)
    True
    """
    weight = _weight_of(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


# -- weight norm --------------------------------------------------------------------------------


class _WeightNorm(Module):
    """A length and a direction in place of a weight."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled_to_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the length and the direction of a weight apart; takes states of the former kind too.

    Args:
        module: the module that has the weight
        name: of the weight; default ``"weight"``
        dim: the dimension along which lengths differ; default 0, ``None`` for one length

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> layer.parametrizations.weight.original0.shape
    evergrad.Size([3, 1])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: dict[str, object], prefix: str, *rest: object) -> None:
        former = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in former):
            for i, key in enumerate(former):
                place = f"{prefix}parametrizations.{name}.original{i}"
                state_dict[place] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


# -- spectral norm ------------------------------------------------------------------------------


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, which power iterations estimate."""

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, "
                f"{weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            with using(grad=False):
                matrix = as_matrix(weight, self.dim)
                u, v = start_vectors(matrix, eps)
                self.register_buffer("_u", u)
                self.register_buffer("_v", v)
                self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with using(grad=False):
            power_method(matrix, self._u, self._v, count, self.eps, first="u")

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.vdot(matrix.mv(v))  # type: ignore[no-any-return]

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


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

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    >>> bool(eg.linalg.matrix_norm(layer.weight, 2) < 1.1)
    True
    """
    weight = _weight_of(module, name)
    dim = output_dim(module) if dim is None else dim
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, made)


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
