"""Fit the Chebyshev series with which Bessel and Airy functions are evaluated.

    python tools/fit_bessel.py > src/evergrad/ops/bessel_tables.py

Needs mpmath. Every series is of a variable that goes from -1 to 1.
"""

import mpmath as mp
from fit_special import Function, Number, Table, chebyshev, print_tables


def of_square(f: Function, reach: float) -> Function:
    """A function of x, 0 <= x <= reach, as one of (x / reach)**2."""
    return lambda u: f(reach * mp.sqrt(u))


def j_near(order: int) -> Function:
    return lambda x: mp.besselj(order, x) / x**order


def y_rest(order: int) -> Function:
    """What is left of Y when its logarithm and its pole are taken out."""

    def rest(x: Number) -> Number:
        pole = 2 / (mp.pi * x) if order else 0
        smooth = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x) + pole
        return smooth / x**order

    return rest


def wave_part(order: int, part: int) -> Function:
    """P (part 0) and Q (part 1): sqrt(2 / (pi x)) (P cos(c) - Q sin(c)) is J, with P sin(c) +
    Q cos(c) it is Y, where c = x - (2 order + 1) pi / 4. As functions of (8 / x)**2; Q by x / 8."""

    def found(u: Number) -> Number:
        x = 8 / mp.sqrt(u)
        angle = x - (2 * order + 1) * mp.pi / 4
        scale = mp.sqrt(mp.pi * x / 2)
        j, y = scale * mp.besselj(order, x), scale * mp.bessely(order, x)
        if part == 0:
            return j * mp.cos(angle) + y * mp.sin(angle)
        return (y * mp.cos(angle) - j * mp.sin(angle)) * x / 8

    return found


def k_rest(order: int) -> Function:
    """What is left of K when its logarithm is taken out; of K1 times x."""

    def rest(x: Number) -> Number:
        sign = -1 if order == 0 else 1
        smooth = mp.besselk(order, x) - sign * mp.log(x / 2) * mp.besseli(order, x)
        return smooth * x**order

    return rest


def k_far(order: int) -> Function:
    return lambda u: mp.sqrt(2 / u) * mp.exp(2 / u) * mp.besselk(order, 2 / u)


def airy_right(u: Number) -> Number:
    """2 sqrt(pi) x**(1/4) exp(z) Ai(x), z = 2/3 x**1.5, in u = z(2) / z."""
    z = _airy_reach(2) / u
    x = (Number(3) / 2 * z) ** (Number(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(z) * mp.airyai(x)


def airy_wave(part: int) -> Function:
    """P and Q in sqrt(pi) x**(1/4) Ai(-x) = P sin(a) - Q cos(a), a = z + pi/4, as functions of
    (z(6) / z)**2; Q by z / z(6)."""

    def found(u: Number) -> Number:
        z = _airy_reach(6) / mp.sqrt(u)
        x = (Number(3) / 2 * z) ** (Number(2) / 3)
        scale = mp.sqrt(mp.pi) * mp.root(x, 4)
        a, b = scale * mp.airyai(-x), scale * mp.airybi(-x)
        angle = z + mp.pi / 4
        if part == 0:
            return a * mp.sin(angle) + b * mp.cos(angle)
        return (b * mp.sin(angle) - a * mp.cos(angle)) / mp.sqrt(u)

    return found


def _airy_reach(x: int) -> Number:
    return Number(2) / 3 * mp.sqrt(Number(x)) ** 3


def bessel_tables(order: int) -> tuple[Table, ...]:
    return (
        (f"J{order}_NEAR", f"J{order}(x) / x**{order} in 2 (x / 8)**2 - 1, 0 <= x <= 8.",
         lambda: chebyshev(of_square(j_near(order), 8), 0, 1, 18)),
        (f"Y{order}_NEAR", f"Y{order} less its logarithm and pole, the same way.",
         lambda: chebyshev(of_square(y_rest(order), 8), 0, 1, 18)),
        (f"P{order}_FAR", "P of J and Y in 2 (8 / x)**2 - 1, x >= 8.",
         lambda: chebyshev(wave_part(order, 0), 0, 1, 16)),
        (f"Q{order}_FAR", "Q x / 8 of J and Y, the same way.",
         lambda: chebyshev(wave_part(order, 1), 0, 1, 16)),
        (f"K{order}_NEAR", f"x**{order} K{order}(x) less its logarithm in x**2 / 2 - 1, x <= 2.",
         lambda: chebyshev(of_square(k_rest(order), 2), 0, 1, 12)),
        (f"K{order}_FAR", f"sqrt(x) exp(x) K{order}(x) in 4 / x - 1, x >= 2.",
         lambda: chebyshev(k_far(order), 0, 1, 26)),
    )  # fmt: skip


AIRY_TABLES: tuple[Table, ...] = (
    ("AIRY_MIDDLE", "Ai(x) in (x + 2) / 4, -6 <= x <= 2.",
     lambda: chebyshev(mp.airyai, -6, 2, 42)),
    ("AIRY_RIGHT", "2 sqrt(pi) x**(1/4) exp(z) Ai(x) in 2 z(2) / z - 1, z = 2/3 x**1.5, x >= 2.",
     lambda: chebyshev(airy_right, 0, 1, 24)),
    ("AIRY_LEFT_P", "P of Ai(-x) in 2 (z(6) / z)**2 - 1, x >= 6.",
     lambda: chebyshev(airy_wave(0), 0, 1, 16)),
    ("AIRY_LEFT_Q", "Q z / z(6) of Ai(-x), the same way.",
     lambda: chebyshev(airy_wave(1), 0, 1, 16)),
)  # fmt: skip


if __name__ == "__main__":
    print_tables(
        "Series for Bessel and Airy functions, as fitted by ``tools/fit_bessel.py``.",
        (*bessel_tables(0), *bessel_tables(1), *AIRY_TABLES),
    )
