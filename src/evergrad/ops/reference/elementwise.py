"""Functions of each element: arithmetic, powers, exponentials, rounding, angles."""

DOCS = {
    "add": """The sum ``input + alpha * other``, element by element.

Args:
    input: tensor or number
    other: tensor or number; shapes broadcast
    alpha: factor of ``other``

Integers stay integers; an integer and a float give a float, as in PyTorch.

>>> eg.add(eg.tensor([1.0, 2.0]), eg.tensor([[10.0], [20.0]]), alpha=2)
tensor([[21., 22.],
        [41., 42.]])
""",
    "sub": """The difference ``input - alpha * other``, element by element.

Args:
    input: tensor or number
    other: tensor or number; shapes broadcast
    alpha: factor of ``other``

>>> eg.sub(eg.tensor([5, 7]), eg.tensor([1, 2]), alpha=2)
tensor([3, 3])
""",
    "rsub": """The difference the other way round: ``other - alpha * input``.

Args:
    input: tensor or number
    other: tensor or number; shapes broadcast
    alpha: factor of ``input``

>>> eg.rsub(eg.tensor([1.0, 2.0]), 10)
tensor([9., 8.])
""",
    "mul": """The product ``input * other``, element by element.

Args:
    input: tensor or number
    other: tensor or number; shapes broadcast

>>> eg.mul(eg.tensor([[1.0], [2.0]]), eg.tensor([3.0, 4.0]))
tensor([[3., 4.],
        [6., 8.]])
""",
    "div": """The quotient ``input / other``, element by element.

Args:
    input: tensor or number
    other: tensor or number; shapes broadcast
    rounding_mode: ``None`` divides truly (integers give floats), ``"trunc"`` rounds towards zero
        as C does, ``"floor"`` down as Python's ``//`` does

>>> eg.div(eg.tensor([7, -7]), 2)
tensor([ 3.5000, -3.5000])
>>> eg.div(eg.tensor([7, -7]), 2, rounding_mode="trunc")
tensor([ 3, -3])
>>> eg.div(eg.tensor([7, -7]), 2, rounding_mode="floor")
tensor([ 3, -4])
""",
    "true_divide": """The quotient ``input / other``; integers give floats.

>>> eg.true_divide(eg.tensor([1, 2]), 2)
tensor([0.5000, 1.0000])
""",
    "floor_divide": """The quotient rounded down, as Python's ``//``.

Args:
    input: tensor or number
    other: tensor or number; shapes broadcast

>>> eg.floor_divide(eg.tensor([7, -7]), 2)
tensor([ 3, -4])
""",
    "remainder": """What division leaves, with the sign of the divisor: Python's ``%``.

Args:
    input: tensor or number
    other: tensor or number, the divisor; shapes broadcast

>>> eg.remainder(eg.tensor([5, -5]), 3)
tensor([2, 1])
""",
    "fmod": """What division leaves, with the sign of the dividend: C's ``fmod``.

Args:
    input: tensor or number
    other: tensor or number, the divisor; shapes broadcast

>>> eg.fmod(eg.tensor([5, -5]), 3)
tensor([ 2, -2])
""",
    "pow": """``input`` to the power ``exponent``, element by element.

Args:
    input: tensor or number
    exponent: tensor or number; shapes broadcast

A negative integer power of integers is refused, as it is in PyTorch: convert to floats first.

>>> eg.pow(eg.tensor([1.0, 2.0, 3.0]), 2)
tensor([1., 4., 9.])
>>> eg.pow(2, eg.tensor([1, 2, 3]))
tensor([2, 4, 8])
""",
    "float_power": """``input`` to the power ``exponent``, in float64 (complex128 for complex).

>>> eg.float_power(eg.tensor([1, 2, 3]), 2)
tensor([1., 4., 9.], dtype=evergrad.float64)
""",
    "square": """The square ``x * x``.

>>> eg.square(eg.tensor([-1.0, 2.0]))
tensor([1., 4.])
""",
    "sqrt": """The square root; NaN below zero.

The derivative ``1 / (2 sqrt(x))`` is infinite at zero.

>>> eg.sqrt(eg.tensor([4.0, 2.0, -1.0]))
tensor([2.0000, 1.4142,    nan])
""",
    "rsqrt": """The reciprocal of the square root: ``1 / sqrt(x)``.

>>> eg.rsqrt(eg.tensor([4.0, 0.25]))
tensor([0.5000, 2.0000])
""",
    "reciprocal": """``1 / x``; integers give floats.

>>> eg.reciprocal(eg.tensor([2.0, 4.0]))
tensor([0.5000, 0.2500])
""",
    "neg": """The negative ``-x``.

>>> eg.neg(eg.tensor([1.0, -2.0]))
tensor([-1.,  2.])
""",
    "positive": """The tensor itself: ``+x``. Booleans are refused.

>>> eg.positive(eg.tensor([1.0, -2.0]))
tensor([ 1., -2.])
""",
    "abs": """The absolute value; of a complex number its distance from zero.

The derivative at zero is zero.

>>> eg.abs(eg.tensor([-1.5, 2.0]))
tensor([1.5000, 2.0000])
>>> eg.abs(eg.tensor([3 + 4j]))
tensor([5.])
""",
    "sign": """-1, 0 or 1, as the sign says; the derivative is zero everywhere.

>>> eg.sign(eg.tensor([-2.0, 0.0, 3.0]))
tensor([-1.,  0.,  1.])
""",
    "sgn": """The sign, and of a complex number ``x / |x|``.

>>> eg.sgn(eg.tensor([3 + 4j, 0j]))
tensor([0.6000+0.8000j, 0.0000+0.0000j])
""",
    "signbit": """Whether the sign bit is set; negative zero has it.

>>> eg.signbit(eg.tensor([-0.0, 0.0, -3.0]))
tensor([ True, False,  True])
""",
    "copysign": """The magnitude of ``input`` with the sign of ``other``.

>>> eg.copysign(eg.tensor([1.0, 2.0]), eg.tensor([-0.0, 3.0]))
tensor([-1.,  2.])
""",
    "exp": """The exponential ``e ** x``.

>>> eg.exp(eg.tensor([0.0, 1.0]))
tensor([1.0000, 2.7183])
""",
    "exp2": """``2 ** x``

>>> eg.exp2(eg.tensor([0.5, 3.0]))
tensor([1.4142, 8.0000])
""",
    "expm1": """``exp(x) - 1``, exact for small ``x`` where ``exp(x) - 1`` would cancel.

>>> eg.expm1(eg.tensor([1e-10, 1.0]))
tensor([1.0000e-10, 1.7183e+00])
""",
    "log": """The natural logarithm; minus infinity at zero, NaN below.

>>> eg.log(eg.tensor([1.0, 10.0, 0.0]))
tensor([0.0000, 2.3026,   -inf])
""",
    "log2": """The logarithm to base 2.

>>> eg.log2(eg.tensor([1.0, 10.0]))
tensor([0.0000, 3.3219])
""",
    "log10": """The logarithm to base 10.

>>> eg.log10(eg.tensor([1.0, 50.0]))
tensor([0.0000, 1.6990])
""",
    "log1p": """``log(1 + x)``, exact for small ``x``.

>>> eg.log1p(eg.tensor([1e-10, 1.0]))
tensor([1.0000e-10, 6.9315e-01])
""",
    "logaddexp": """``log(exp(input) + exp(other))`` without overflow.

>>> eg.logaddexp(eg.tensor([1000.0]), eg.tensor([1000.0]))
tensor([1000.6932])
""",
    "logaddexp2": """``log2(2 ** input + 2 ** other)`` without overflow.

>>> eg.logaddexp2(eg.tensor([3.0]), eg.tensor([2.0]))
tensor([3.5850])
""",
    "sigmoid": """The logistic function ``1 / (1 + exp(-x))``, between 0 and 1.

>>> eg.sigmoid(eg.tensor([-1.0, 0.0, 1.0]))
tensor([0.2689, 0.5000, 0.7311])
""",
    "logit": """The inverse of sigmoid: ``log(x / (1 - x))``.

Args:
    input: probabilities
    eps: ``x`` is clamped to ``[eps, 1 - eps]`` first; ``None`` gives NaN outside ``[0, 1]``

>>> eg.logit(eg.tensor([0.5, 0.9]))
tensor([0.0000, 2.1972])
""",
    "relu": """``max(x, 0)``; the derivative at zero is zero.

>>> eg.relu(eg.tensor([-1.0, 0.0, 2.0]))
tensor([0., 0., 2.])
""",
    "tanh": """The hyperbolic tangent, between -1 and 1.

>>> eg.tanh(eg.tensor([-1.0, 0.0, 1.0]))
tensor([-0.7616,  0.0000,  0.7616])
""",
}
