"""Samples of Bessel functions and orthogonal polynomials. Accuracy is tested elsewhere."""

import numpy as np

from evergrad.testing.samples import between, normal, sample

_EDGES = np.array([0.0, -0.0, np.nan, -1.0])

for _name in (
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "spherical_bessel_j0",
):  # fmt: skip
    for _x in (between(0.1, 4.5, 2, 3), np.array(1.5), normal(0, 2), _EDGES):
        sample(_name, lambda ns, x, f=_name: getattr(ns.special, f)(x), _x, dtypes=())

for _name in (
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
    "laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
):  # fmt: skip
    sample(_name, lambda ns, x, f=_name: getattr(ns.special, f)(x, 5), normal(2, 3), dtypes=())
    sample(_name, lambda ns, x, n, f=_name: getattr(ns.special, f)(x, n), normal(4, 1),
           np.array([-1.0, 0.0, 1.0, 2.9, 9.0]), dtypes=(), label="degrees")  # fmt: skip
    sample(_name, lambda ns, n, f=_name: getattr(ns.special, f)(0.3, n), np.array([3.0]), dtypes=(),
           label="of a number")  # fmt: skip
    sample(_name, lambda ns, x, f=_name: getattr(ns.special, f)(x, 3), normal(0, 2), dtypes=())
