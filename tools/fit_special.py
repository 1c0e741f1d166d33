"""Fit the polynomials with which special functions are evaluated, and print them as a module.

    python tools/fit_special.py > src/evergrad/ops/special_tables.py

Needs mpmath. Every polynomial interpolates its function at Chebyshev nodes, in 60 digits.
"""

from collections.abc import Callable, Sequence

import mpmath as mp

mp.mp.dps = 60
Number = mp.mpf
Function = Callable[[Number], Number]
Table = tuple[str, str, Callable[[], list[Number]]]  # name, meaning, coefficients


def chebyshev(f: Function, low: float, high: float, terms: int) -> list[Number]:
    """The Chebyshev coefficients of ``f`` on an interval."""
    centre, half = (Number(high) + low) / 2, (Number(high) - low) / 2
    angles = [mp.pi * (k + Number(1) / 2) / terms for k in range(terms)]
    values = [f(centre + half * mp.cos(a)) for a in angles]
    return [
        (2 if j else 1) * mp.fdot(values, [mp.cos(j * a) for a in angles]) / terms
        for j in range(terms)
    ]


def powers(coefficients: Sequence[Number], low: float = -1, high: float = 1) -> list[Number]:
    """The same polynomial by powers of the variable, lowest first."""
    scale, offset = 2 / (Number(high) - low), -(Number(high) + low) / (Number(high) - low)
    total = [Number(0)] * len(coefficients)
    older, newer = [Number(0)] * len(total), [Number(1)] + [Number(0)] * (len(total) - 1)
    for j, c in enumerate(coefficients):
        total = [v + c * n for v, n in zip(total, newer, strict=True)]
        shifted = [Number(0), *newer[:-1]]
        times_t = [scale * s + offset * n for s, n in zip(shifted, newer, strict=True)]
        factor = 2 if j else 1
        following = [factor * v - o for v, o in zip(times_t, older, strict=True)]
        older, newer = newer, following
    return total


def erf_excess(square: Number) -> Number:
    x = mp.sqrt(square)
    return mp.erf(x) / x - 1


def exp_rest(x: Number) -> Number:
    """What follows ``1 + x`` in ``exp(x)``, over ``x**2``."""
    return mp.hyp1f1(1, 3, x) / 2


def log_rest(x: Number) -> Number:
    """What follows ``x - x**2 / 2`` in ``log(1 + x)``, over ``x**3``."""
    return (mp.log1p(x) - x + x**2 / 2) / x**3


def scaled_erfcx(t: Number) -> Number:
    x = Number("3.75") * (1 + t) / (1 - t)
    if x > 200:
        tail = 1 - 1 / (2 * x**2) + 3 / (4 * x**4) - 15 / (8 * x**6) + 105 / (16 * x**8)
        return (1 + 2 * x) * tail / (mp.sqrt(mp.pi) * x)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def normal_tail(t: Number) -> Number:
    """In t = 1 / (x + 4)."""
    x = 1 / t - 4
    return mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2)) / 2


def erfinv_ratio(w: Number) -> Number:
    """erfinv(x) / x in w = -log(1 - x * x)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def lgamma_core(t: Number) -> Number:
    x = (t + 3) / 2
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def bessel_near(order: int) -> Function:
    return lambda x: mp.exp(-x) * mp.besseli(order, x) / x**order


def bessel_far(order: int) -> Function:
    return lambda u: mp.sqrt(8 / u) * mp.exp(-8 / u) * mp.besseli(order, 8 / u)


_FOUR_TO_TWELVE = (1 / Number(12), 1 / Number(4))

_HALF_LOG_2 = mp.log(2) / 2
_ROOTS_OF_2 = (mp.sqrt(Number(1) / 2) - 1, mp.sqrt(2) - 1)

TABLES: tuple[Table, ...] = (
    ("EXP_SINGLE", "(exp(x) - 1 - x) / x**2 by powers of x, |x| <= log(2) / 2.",
     lambda: powers(chebyshev(exp_rest, -_HALF_LOG_2, _HALF_LOG_2, 5), -_HALF_LOG_2, _HALF_LOG_2)),
    ("LOG_SINGLE", "(log(1 + x) - x + x**2 / 2) / x**3 by powers of x, 1/2 <= (1 + x)**2 <= 2.",
     lambda: powers(chebyshev(log_rest, *_ROOTS_OF_2, 9), *_ROOTS_OF_2)),
    ("ERF_NEAR", "erf(x) / x - 1 by powers of x**2, 0 <= x <= 1.",
     lambda: powers(chebyshev(erf_excess, 0, 1, 13), 0, 1)),
    ("ERF_NEAR_SINGLE", "The same for single precision.",
     lambda: powers(chebyshev(erf_excess, 0, 1, 6), 0, 1)),
    ("LOG_ERFC_SINGLE", "log(erfc(x)) by powers of x, 1 <= x <= 4, for single precision.",
     lambda: powers(chebyshev(lambda x: mp.log(mp.erfc(x)), 1, 4, 8), 1, 4)),
    ("ERFCX", "(1 + 2x) exp(x**2) erfc(x) by powers of t = (x - 3.75) / (x + 3.75), x >= 0.",
     lambda: powers(chebyshev(scaled_erfcx, -1, 1, 27))),
    ("ERFCX_SINGLE", "The same for single precision, 0 <= x <= 10.",
     lambda: powers(chebyshev(scaled_erfcx, -1, 0.46, 11), -1, 0.46)),
    ("NORMAL_TAIL_SINGLE",
     "exp(x**2 / 2) (1 - ndtr(x)) by powers of t = 1 / (x + 4), 0 <= x <= 8.",
     lambda: powers(chebyshev(normal_tail, *_FOUR_TO_TWELVE, 8), *_FOUR_TO_TWELVE)),
    ("ERFINV_NEAR_SINGLE", "erfinv(x) / x by powers of w - 2.5, w = -log(1 - x**2), 0 <= w <= 5.",
     lambda: powers(chebyshev(lambda v: erfinv_ratio(v + 2.5), -2.5, 2.5, 10), -2.5, 2.5)),
    ("ERFINV_FAR_SINGLE", "erfinv(x) / x by powers of sqrt(w) - 3, 5 <= w <= 17.",
     lambda: powers(chebyshev(lambda v: erfinv_ratio((v + 3) ** 2), -0.8, 1.2, 11), -0.8, 1.2)),
    ("LGAMMA", "lgamma(x) / ((x - 1) (x - 2)) by powers of t = 2x - 3, 1 <= x <= 2.",
     lambda: powers(chebyshev(lgamma_core, -1, 1, 22))),
    ("I0_NEAR", "Chebyshev series of exp(-x) I0(x) in x / 4 - 1, 0 <= x <= 8.",
     lambda: chebyshev(bessel_near(0), 0, 8, 30)),
    ("I0_FAR", "Chebyshev series of sqrt(x) exp(-x) I0(x) in 16 / x - 1, x >= 8.",
     lambda: chebyshev(bessel_far(0), 0, 1, 26)),
    ("I0_NEAR_SINGLE", "exp(-x) I0(x) by powers of x / 4 - 1, 0 <= x <= 8, for single precision.",
     lambda: powers(chebyshev(bessel_near(0), 0, 8, 18))),
    ("I0_FAR_SINGLE", "sqrt(x) exp(-x) I0(x) by powers of 16 / x - 1, x >= 8.",
     lambda: powers(chebyshev(bessel_far(0), 0, 1, 8))),
    ("I1_NEAR", "Chebyshev series of exp(-x) I1(x) / x in x / 4 - 1, 0 <= x <= 8.",
     lambda: chebyshev(bessel_near(1), 0, 8, 30)),
    ("I1_FAR", "Chebyshev series of sqrt(x) exp(-x) I1(x) in 16 / x - 1, x >= 8.",
     lambda: chebyshev(bessel_far(1), 0, 1, 26)),
    ("I1_NEAR_SINGLE", "exp(-x) I1(x) / x by powers of x / 4 - 1, 0 <= x <= 8.",
     lambda: powers(chebyshev(bessel_near(1), 0, 8, 18))),
    ("I1_FAR_SINGLE", "sqrt(x) exp(-x) I1(x) by powers of 16 / x - 1, x >= 8.",
     lambda: powers(chebyshev(bessel_far(1), 0, 1, 8))),
)  # fmt: skip


def print_tables(title: str, tables: Sequence[Table]) -> None:
    """A module with every table as a tuple of doubles."""
    print(f'"""{title}"""')
    for name, meaning, coefficients in tables:
        print(f"\n# {meaning}\n{name} = (")
        for value in coefficients():
            print(f"    {float(value)!r},")
        print(")")


if __name__ == "__main__":
    print_tables(
        "Polynomials for special functions, as fitted by ``tools/fit_special.py``.", TABLES
    )
