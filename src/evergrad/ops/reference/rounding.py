"""Angles, rounding, clamping and choosing, element by element."""

DOCS = {
    "sin": """The sine of an angle in radians.

>>> eg.sin(eg.tensor([0.0, eg.pi / 2]))
tensor([0., 1.])
""",
    "cos": """The cosine of an angle in radians.

>>> eg.cos(eg.tensor([0.0, eg.pi]))
tensor([ 1., -1.])
""",
    "tan": """The tangent of an angle in radians.

>>> eg.tan(eg.tensor([0.0, 1.0]))
tensor([0.0000, 1.5574])
""",
    "asin": """The angle in ``[-pi/2, pi/2]`` whose sine is ``x``; NaN beyond ``[-1, 1]``.

>>> eg.asin(eg.tensor([0.0, 1.0]))
tensor([0.0000, 1.5708])
""",
    "acos": """The angle in ``[0, pi]`` whose cosine is ``x``; NaN beyond ``[-1, 1]``.

>>> eg.acos(eg.tensor([1.0, 0.0]))
tensor([0.0000, 1.5708])
""",
    "atan": """The angle in ``(-pi/2, pi/2)`` whose tangent is ``x``.

>>> eg.atan(eg.tensor([0.0, 1.0]))
tensor([0.0000, 0.7854])
""",
    "atan2": """The angle of the point ``(other, input)``, in ``(-pi, pi]``: all four quadrants.

Args:
    input: the ordinates y
    other: the abscissas x; shapes broadcast

>>> eg.atan2(eg.tensor([1.0, -1.0]), eg.tensor([-1.0, -1.0]))
tensor([ 2.3562, -2.3562])
""",
    "sinh": """The hyperbolic sine ``(exp(x) - exp(-x)) / 2``.

>>> eg.sinh(eg.tensor([0.0, 1.0]))
tensor([0.0000, 1.1752])
""",
    "cosh": """The hyperbolic cosine ``(exp(x) + exp(-x)) / 2``.

>>> eg.cosh(eg.tensor([0.0, 1.0]))
tensor([1.0000, 1.5431])
""",
    "asinh": """The inverse hyperbolic sine ``log(x + sqrt(x^2 + 1))``.

>>> eg.asinh(eg.tensor([0.0, 1.0]))
tensor([0.0000, 0.8814])
""",
    "acosh": """The inverse hyperbolic cosine, for ``x >= 1``.

>>> eg.acosh(eg.tensor([1.0, 2.0]))
tensor([0.0000, 1.3170])
""",
    "atanh": """The inverse hyperbolic tangent, for ``-1 < x < 1``.

>>> eg.atanh(eg.tensor([0.0, 0.5]))
tensor([0.0000, 0.5493])
""",
    "hypot": """The length ``sqrt(input^2 + other^2)`` without overflow on the way.

>>> eg.hypot(eg.tensor([3.0]), eg.tensor([4.0]))
tensor([5.])
""",
    "deg2rad": """Degrees as radians: ``x * pi / 180``.

>>> eg.deg2rad(eg.tensor([180.0, 90.0]))
tensor([3.1416, 1.5708])
""",
    "rad2deg": """Radians as degrees: ``x * 180 / pi``.

>>> eg.rad2deg(eg.tensor([1.0]))
tensor([57.2958])
""",
    "sinc": """``sin(pi x) / (pi x)``, 1 at zero.

>>> eg.sinc(eg.tensor([0.0, 0.5]))
tensor([1.0000, 0.6366])
""",
    "floor": """The largest integer that is not above ``x``; the derivative is zero.

>>> eg.floor(eg.tensor([1.7, -1.2]))
tensor([ 1., -2.])
""",
    "ceil": """The smallest integer that is not below ``x``; the derivative is zero.

>>> eg.ceil(eg.tensor([1.2, -1.7]))
tensor([ 2., -1.])
""",
    "trunc": """Rounded towards zero; the derivative is zero.

>>> eg.trunc(eg.tensor([1.7, -1.7]))
tensor([ 1., -1.])
""",
    "frac": """What :func:`trunc` cuts off: ``x - trunc(x)``.

>>> eg.frac(eg.tensor([1.5, -1.25]))
tensor([ 0.5000, -0.2500])
""",
    "round": """Rounded to the nearest number, halves to the even one.

Args:
    input: any real tensor
    decimals: digits behind the point that stay; negative rounds to tens, hundreds, ...

>>> eg.round(eg.tensor([0.5, 1.5, 2.4]))
tensor([0., 2., 2.])
>>> eg.round(eg.tensor([1.2345]), decimals=2)
tensor([1.2300])
""",
    "clamp": """Each element, at least ``min`` and at most ``max``.

Args:
    input: any real tensor
    min: number or tensor that broadcasts; ``None`` for no lower bound
    max: number or tensor that broadcasts; ``None`` for no upper bound

The gradient passes where the element is inside, its bounds included. Where ``min > max`` the result
is ``max``.

>>> eg.clamp(eg.tensor([-2.0, 0.5, 3.0]), min=-1, max=1)
tensor([-1.0000,  0.5000,  1.0000])
""",
    "clamp_min": """Each element, at least ``min``.

>>> eg.clamp_min(eg.tensor([-2.0, 3.0]), 0)
tensor([0., 3.])
""",
    "clamp_max": """Each element, at most ``max``.

>>> eg.clamp_max(eg.tensor([-2.0, 3.0]), 0)
tensor([-2.,  0.])
""",
    "maximum": """The larger of two elements; NaN if one is NaN.

Args:
    input: tensor
    other: tensor; shapes broadcast

Where both are equal, each gets half of the gradient.

>>> eg.maximum(eg.tensor([1.0, 5.0]), eg.tensor([3.0, 2.0]))
tensor([3., 5.])
""",
    "minimum": """The smaller of two elements; NaN if one is NaN.

Args:
    input: tensor
    other: tensor; shapes broadcast

>>> eg.minimum(eg.tensor([1.0, 5.0]), eg.tensor([3.0, 2.0]))
tensor([1., 2.])
""",
    "fmax": """The larger of two elements; a NaN loses against a number.

>>> eg.fmax(eg.tensor([1.0, eg.nan]), eg.tensor([3.0, 2.0]))
tensor([3., 2.])
""",
    "fmin": """The smaller of two elements; a NaN loses against a number.

>>> eg.fmin(eg.tensor([1.0, eg.nan]), eg.tensor([3.0, 2.0]))
tensor([1., 2.])
""",
    "lerp": """On the line between two values: ``input + weight * (end - input)``.

Args:
    input: the values at weight 0
    end: the values at weight 1; shapes broadcast
    weight: number or tensor

>>> eg.lerp(eg.tensor([0.0, 10.0]), eg.tensor([1.0, 20.0]), 0.5)
tensor([ 0.5000, 15.0000])
""",
    "addcmul": """``input + value * tensor1 * tensor2``

Args:
    input: tensor
    tensor1: first factor
    tensor2: second factor; all shapes broadcast
    value: number

>>> eg.addcmul(eg.ones(2), eg.tensor([1.0, 2.0]), eg.tensor([3.0, 4.0]), value=0.5)
tensor([2.5000, 5.0000])
""",
    "addcdiv": """``input + value * tensor1 / tensor2``

Args:
    input: tensor
    tensor1: dividend
    tensor2: divisor; all shapes broadcast
    value: number

>>> eg.addcdiv(eg.ones(2), eg.tensor([1.0, 2.0]), eg.tensor([4.0, 4.0]), value=2)
tensor([1.5000, 2.0000])
""",
    "nan_to_num": """NaN and infinities replaced by numbers.

Args:
    input: floating-point tensor
    nan: what replaces NaN; 0 by default
    posinf: what replaces infinity; the largest number of the type by default
    neginf: what replaces minus infinity; the smallest number of the type by default

>>> eg.nan_to_num(eg.tensor([eg.nan, eg.inf, 1.0]), posinf=9.0)
tensor([0., 9., 1.])
""",
    "heaviside": """The step function: 0 below zero, 1 above, ``values`` at zero.

>>> eg.heaviside(eg.tensor([-1.0, 0.0, 2.0]), eg.tensor(0.5))
tensor([0.0000, 0.5000, 1.0000])
""",
    "xlogy": """``input * log(other)``, and 0 where ``input`` is 0 (even if ``other`` is 0).

>>> eg.xlogy(eg.tensor([0.0, 3.0]), eg.tensor([0.0, 2.0]))
tensor([0.0000, 2.0794])
""",
    "ldexp": """``input * 2 ** other``

>>> eg.ldexp(eg.tensor([1.0, 3.0]), eg.tensor([4, -1]))
tensor([16.0000,  1.5000])
""",
    "frexp": """Mantissa in ``[0.5, 1)`` and exponent: ``x = mantissa * 2 ** exponent``.

Returns a named tuple ``(mantissa, exponent)``.

>>> eg.frexp(eg.tensor([8.0])).mantissa
tensor([0.5000])
""",
    "nextafter": """The next number of the type from ``input`` towards ``other``.

>>> eg.nextafter(eg.tensor([1.0]), eg.tensor([2.0])) > 1
tensor([True])
""",
    "gcd": """The greatest common divisor of two integers.

>>> eg.gcd(eg.tensor([12, 7]), eg.tensor([18, 21]))
tensor([6, 7])
""",
    "lcm": """The least common multiple of two integers.

>>> eg.lcm(eg.tensor([4]), eg.tensor([6]))
tensor([12])
""",
    "conj": """The complex conjugate; a real tensor is returned as it is.

PyTorch conjugates when the elements are next read; here a copy is made at once.

>>> eg.conj(eg.tensor([1 + 2j]))
tensor([1.-2.j])
""",
    "angle": """The angle of a complex number in ``(-pi, pi]``; of a real one 0 or pi.

>>> eg.angle(eg.tensor([1j, -1 + 0j]))
tensor([1.5708, 3.1416])
""",
    "threshold": """The elements above ``threshold``; all others become ``value``.

>>> eg.threshold(eg.tensor([0.5, 2.0]), 1.0, 0.0)
tensor([0., 2.])
""",
    "where": """``input`` where the condition holds, ``other`` elsewhere.

Args:
    condition: boolean tensor
    input: tensor or number
    other: tensor or number; all three shapes broadcast

With the condition alone: the places where it holds, as ``nonzero(as_tuple=True)`` gives them. The
gradient of a branch is zero where the other is taken, even if it would be NaN there.

>>> x = eg.tensor([-1.0, 2.0])
>>> eg.where(x > 0, x, 0.0)
tensor([0., 2.])
""",
}
