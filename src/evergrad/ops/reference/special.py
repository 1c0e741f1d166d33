"""Bessel functions, orthogonal polynomials and their like."""

DOCS = {
    "special.airy_ai": """The Airy function Ai.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.airy_ai(eg.tensor([0.5, 2.0]))
tensor([0.2317, 0.0349])
""",
    "special.bessel_j0": """The Bessel function of the first kind, order zero.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.bessel_j0(eg.tensor([0.5, 2.0]))
tensor([0.9385, 0.2239])
""",
    "special.bessel_j1": """The Bessel function of the first kind, order one.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.bessel_j1(eg.tensor([0.5, 2.0]))
tensor([0.2423, 0.5767])
""",
    "special.bessel_y0": """The Bessel function of the second kind, order zero.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.bessel_y0(eg.tensor([0.5, 2.0]))
tensor([-0.4445,  0.5104])
""",
    "special.bessel_y1": """The Bessel function of the second kind, order one.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.bessel_y1(eg.tensor([0.5, 2.0]))
tensor([-1.4715, -0.1070])
""",
    "special.i0e": """``exp(-|x|) I0(x)``, which stays finite where I0 overflows.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.i0e(eg.tensor([0.5, 2.0]))
tensor([0.6450, 0.3085])
""",
    "special.i1e": """``exp(-|x|) I1(x)``, which stays finite where I1 overflows.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.i1e(eg.tensor([0.5, 2.0]))
tensor([0.1564, 0.2153])
""",
    "special.modified_bessel_i0": """The modified Bessel function of the first kind, order zero.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.modified_bessel_i0(eg.tensor([0.5, 2.0]))
tensor([1.0635, 2.2796])
""",
    "special.modified_bessel_i1": """The modified Bessel function of the first kind, order one.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.modified_bessel_i1(eg.tensor([0.5, 2.0]))
tensor([0.2579, 1.5906])
""",
    "special.modified_bessel_k0": """The modified Bessel function of the second kind, order zero.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.modified_bessel_k0(eg.tensor([0.5, 2.0]))
tensor([0.9244, 0.1139])
""",
    "special.modified_bessel_k1": """The modified Bessel function of the second kind, order one.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.modified_bessel_k1(eg.tensor([0.5, 2.0]))
tensor([1.6564, 0.1399])
""",
    "special.scaled_modified_bessel_k0": """\
``exp(x) K0(x)``, which stays above zero where K0 underflows.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.scaled_modified_bessel_k0(eg.tensor([0.5, 2.0]))
tensor([1.5241, 0.8416])
""",
    "special.scaled_modified_bessel_k1": """\
``exp(x) K1(x)``, which stays above zero where K1 underflows.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.scaled_modified_bessel_k1(eg.tensor([0.5, 2.0]))
tensor([2.7310, 1.0335])
""",
    "special.spherical_bessel_j0": """sin(x) / x, and 1 at 0.

Args:
    input: real numbers; integers become the default type of floats
    out: where to write the result

>>> eg.special.spherical_bessel_j0(eg.tensor([0.5, 2.0]))
tensor([0.9589, 0.4546])
""",
    "special.chebyshev_polynomial_t": """Chebyshev's polynomial of the first kind, of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.chebyshev_polynomial_t(eg.tensor([0.5, 2.0]), 2)
tensor([-0.5000,  7.0000])
""",
    "special.chebyshev_polynomial_u": """Chebyshev's polynomial of the second kind, of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.chebyshev_polynomial_u(eg.tensor([0.5, 2.0]), 2)
tensor([ 0., 15.])
""",
    "special.chebyshev_polynomial_v": """Chebyshev's polynomial of the third kind, of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.chebyshev_polynomial_v(eg.tensor([0.5, 2.0]), 2)
tensor([-1., 11.])
""",
    "special.chebyshev_polynomial_w": """Chebyshev's polynomial of the fourth kind, of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.chebyshev_polynomial_w(eg.tensor([0.5, 2.0]), 2)
tensor([ 1., 19.])
""",
    "special.hermite_polynomial_h": """The physicists' Hermite polynomial of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.hermite_polynomial_h(eg.tensor([0.5, 2.0]), 2)
tensor([-1., 14.])
""",
    "special.hermite_polynomial_he": """The probabilists' Hermite polynomial of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.hermite_polynomial_he(eg.tensor([0.5, 2.0]), 2)
tensor([-0.7500,  3.0000])
""",
    "special.laguerre_polynomial_l": """The Laguerre polynomial of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.laguerre_polynomial_l(eg.tensor([0.5, 2.0]), 2)
tensor([ 0.1250, -1.0000])
""",
    "special.legendre_polynomial_p": """The Legendre polynomial of degree ``n``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.legendre_polynomial_p(eg.tensor([0.5, 2.0]), 2)
tensor([-0.1250,  5.5000])
""",
    "special.shifted_chebyshev_polynomial_t": """\
Chebyshev's polynomial of the first kind, of degree ``n``, at ``2 * input - 1``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.shifted_chebyshev_polynomial_t(eg.tensor([0.5, 2.0]), 2)
tensor([-1., 17.])
""",
    "special.shifted_chebyshev_polynomial_u": """\
Chebyshev's polynomial of the second kind, of degree ``n``, at ``2 * input - 1``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.shifted_chebyshev_polynomial_u(eg.tensor([0.5, 2.0]), 2)
tensor([-1., 35.])
""",
    "special.shifted_chebyshev_polynomial_v": """\
Chebyshev's polynomial of the third kind, of degree ``n``, at ``2 * input - 1``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.shifted_chebyshev_polynomial_v(eg.tensor([0.5, 2.0]), 2)
tensor([-1., 29.])
""",
    "special.shifted_chebyshev_polynomial_w": """\
Chebyshev's polynomial of the fourth kind, of degree ``n``, at ``2 * input - 1``.

Args:
    input: where, real numbers
    n: the degree, a number or a tensor; broadcast with ``input``
    out: where to write the result

>>> eg.special.shifted_chebyshev_polynomial_w(eg.tensor([0.5, 2.0]), 2)
tensor([-1., 41.])
""",
}
