"""Fit the polynomials of the compiler's elementary functions, and print them as a module.

    python tools/fit_vecmath.py > src/evergrad/compiler/codegen/vecmath/tables.py

Needs mpmath. Every polynomial interpolates its function at Chebyshev nodes, in 60 digits; the terms
that the emitted code adds exactly (``x``, ``1``, ``-x**2 / 2``) are taken off before.
"""

import mpmath as mp
from fit_special import Function, Number, Table, chebyshev, exp_rest, powers, print_tables


def fitted(f: Function, low: Number, high: Number, terms: int) -> list[Number]:
    return powers(chebyshev(f, low, high, terms), low, high)


def odd_rest(f: Function) -> Function:
    """``(f(x) - x) / x**3`` in ``z = x**2``."""

    def rest(z: Number) -> Number:
        x = mp.sqrt(z)
        return (f(x) - x) / x**3

    return rest


def cos_rest(z: Number) -> Number:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def log_series(w: Number) -> Number:
    """``(log((1 + s) / (1 - s)) / s - 2) / s**2`` in ``w = s**2``."""
    s = mp.sqrt(w)
    return (2 * mp.atanh(s) / s - 2) / w


_HALF_LOG_2 = mp.log(2) / 2
_EIGHTH = (mp.pi / 4) ** 2
_LOG_RANGE = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2

TABLES: tuple[Table, ...] = (
    ("EXP_DOUBLE", "(exp(x) - 1 - x) / x**2 by powers of x, |x| <= log(2) / 2.",
     lambda: fitted(exp_rest, -_HALF_LOG_2, _HALF_LOG_2, 11)),
    ("LOG_DOUBLE", "(log((1 + s) / (1 - s)) / s - 2) / s**2 by powers of s**2, |s| <= 0.1716.",
     lambda: fitted(log_series, Number(0), _LOG_RANGE, 8)),
    ("SIN_SINGLE", "(sin(x) - x) / x**3 by powers of x**2, |x| <= pi / 4.",
     lambda: fitted(odd_rest(mp.sin), Number(0), _EIGHTH, 4)),
    ("COS_SINGLE", "(cos(x) - 1 + x**2 / 2) / x**4 by powers of x**2, |x| <= pi / 4.",
     lambda: fitted(cos_rest, Number(0), _EIGHTH, 3)),
    ("SIN_DOUBLE", "(sin(x) - x) / x**3, for double precision.",
     lambda: fitted(odd_rest(mp.sin), Number(0), _EIGHTH, 7)),
    ("COS_DOUBLE", "(cos(x) - 1 + x**2 / 2) / x**4, for double precision.",
     lambda: fitted(cos_rest, Number(0), _EIGHTH, 7)),
    ("TAN_SINGLE", "(tan(x) - x) / x**3 by powers of x**2, |x| <= pi / 4.",
     lambda: fitted(odd_rest(mp.tan), Number(0), _EIGHTH, 7)),
    ("ATAN_SINGLE", "(atan(x) - x) / x**3 by powers of x**2, |x| <= tan(pi / 8).",
     lambda: fitted(odd_rest(mp.atan), Number(0), mp.tan(mp.pi / 8) ** 2, 5)),
    ("ATAN_DOUBLE", "The same for double precision.",
     lambda: fitted(odd_rest(mp.atan), Number(0), mp.tan(mp.pi / 8) ** 2, 14)),
    ("ASIN_SINGLE", "(asin(x) - x) / x**3 by powers of x**2, |x| <= 1/2.",
     lambda: fitted(odd_rest(mp.asin), Number(0), Number(1) / 4, 6)),
    ("ASIN_DOUBLE", "The same for double precision.",
     lambda: fitted(odd_rest(mp.asin), Number(0), Number(1) / 4, 14)),
)  # fmt: skip


if __name__ == "__main__":
    print_tables("Polynomials and constants, as fitted by ``tools/fit_vecmath.py``.", TABLES)
