"""Gamma and Dirichlet draws that can be differentiated by their concentrations.

A draw moves with its concentration so that its probability stays what it was (implicit
reparameterisation); :mod:`evergrad.ops.rows.special.quantile_derivatives` knows by how much. These
slopes have derivatives by the draw, but, as in PyTorch, none by the concentration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import elementwise, meet_as_float, not_complex, opaque
from evergrad.core.namespace import late_bound
from evergrad.core.op import Op
from evergrad.core.rng.default_generator import Generator, default_generator
from evergrad.core.row_facts import ITERATED, AutocastPolicy
from evergrad.core.shapes import TensorType
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.elementwise.basic import log
from evergrad.ops.rows.random.draws import SAMPLED, check_floating, check_generator
from evergrad.ops.rows.special.functions import digamma
from evergrad.ops.rows.special.quantile_derivatives import dirichlet_slope, gamma_slope


def _slope_row(
    name: str,
    function: Callable[[Array, Array], Array] | Callable[[Array, Array, Array], Array],
    d: Any,
    doc: str,
) -> Op:
    return elementwise(
        name, function, d, promote=meet_as_float, accepts=not_complex, takes_out=False,
        emit=ITERATED, doc=doc,
    )  # fmt: skip


# -- gamma --------------------------------------------------------------------------------------


def _gamma_slope_by_draw(t: Tensor, y: Tensor, alpha: Tensor, x: Tensor) -> object:
    return t * (digamma(alpha) - log(x) - y * ((alpha - 1) / x - 1))


GAMMA_SLOPE = _slope_row(
    "standard_gamma_grad", gamma_slope, (None, _gamma_slope_by_draw),
    "The slope of a gamma number by its shape.",
)  # fmt: skip


@late_bound
def standard_gamma_grad(alpha: Tensor, drawn: Tensor) -> Tensor:
    """The slope by its shape of a number drawn from the gamma distribution of scale 1."""
    return bind(GAMMA_SLOPE, alpha, drawn)  # type: ignore[no-any-return]


# -- Dirichlet ----------------------------------------------------------------------------------


def _dirichlet_slope_by_draw(
    t: Tensor, y: Tensor, x: Tensor, alpha: Tensor, total: Tensor
) -> object:
    surplus = log(x) - digamma(alpha) + digamma(total)
    steepness = (alpha - 1) / x - (total - alpha) / (1 - x)
    return -t * (surplus / (1 - x) + y * steepness)


DIRICHLET_SLOPE = _slope_row(
    "dirichlet_grad", dirichlet_slope, (_dirichlet_slope_by_draw, None, None),
    "The slope of a Dirichlet component by its own concentration, over 1 - x.",
)  # fmt: skip


def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """The slope of a Dirichlet component by its own concentration, over ``1 - x``.

    ``total`` is the sum of the concentrations of all components.
    """
    return bind(DIRICHLET_SLOPE, x, alpha, total)  # type: ignore[no-any-return]


def _dirichlet_eval(alpha: Array, *, generator: Generator | None) -> Array:
    source = default_generator() if generator is None else generator
    gammas = source.standard_gamma(alpha.astype(np.float64))
    shares = gammas / gammas.sum(axis=-1, keepdims=True)
    limits = np.finfo(np.float64)
    kept: Array = np.clip(shares, limits.tiny, 1 - limits.epsneg)
    return kept.astype(alpha.dtype)


def _dirichlet_type(alpha: TensorType, *, generator: Generator | None) -> TensorType:
    return alpha


def _dirichlet_vjp(g: Tensor, out: Tensor, alpha: Tensor, *, generator: Generator | None) -> Tensor:
    total = alpha.sum(-1, keepdim=True)
    return dirichlet_grad(out, alpha, total) * (g - (out * g).sum(-1, keepdim=True))


DIRICHLET = opaque(
    "sample_dirichlet", _dirichlet_eval, _dirichlet_type, _dirichlet_vjp, random=True,
    upcast=False,
    emit=SAMPLED, autocast=AutocastPolicy.KEEP,
    doc="Shares of 1 with the concentrations in the last dimension.",
)  # fmt: skip


def sample_dirichlet(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Shares that add up to 1, with the concentrations in the last dimension."""
    check_generator(generator)
    check_floating("dirichlet", alpha.dtype)
    return bind(DIRICHLET, alpha, generator=generator)  # type: ignore[no-any-return]
