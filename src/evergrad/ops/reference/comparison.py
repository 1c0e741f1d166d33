"""Comparisons, logic, bits and special functions of each element."""

DOCS = {
    "eq": """Whether elements are equal, as booleans.

>>> eg.eq(eg.tensor([1, 2]), eg.tensor([1, 3]))
tensor([ True, False])
""",
    "ne": """Whether elements differ, as booleans.

>>> eg.ne(eg.tensor([1, 2]), eg.tensor([1, 3]))
tensor([False,  True])
""",
    "lt": """Whether ``input < other``, as booleans.

>>> eg.lt(eg.tensor([1, 2]), 2)
tensor([ True, False])
""",
    "le": """Whether ``input <= other``, as booleans.

>>> eg.le(eg.tensor([1, 2]), 1)
tensor([ True, False])
""",
    "gt": """Whether ``input > other``, as booleans.

>>> eg.gt(eg.tensor([1, 2]), 1)
tensor([False,  True])
""",
    "ge": """Whether ``input >= other``, as booleans.

>>> eg.ge(eg.tensor([1, 2]), 2)
tensor([False,  True])
""",
    "isclose": """Whether ``|input - other| <= atol + rtol * |other|``, element by element.

Args:
    input: tensor
    other: tensor; shapes broadcast
    rtol: relative tolerance
    atol: absolute tolerance
    equal_nan: whether two NaNs are close

>>> eg.isclose(eg.tensor([1.0, 2.0]), eg.tensor([1.0 + 1e-9, 2.1]))
tensor([ True, False])
""",
    "allclose": """Whether all elements are close: see :func:`isclose`. Returns a Python bool.

>>> eg.allclose(eg.tensor([1.0]), eg.tensor([1.0 + 1e-9]))
True
""",
    "equal": """Whether two tensors have the same shape and elements, as a Python bool.

>>> eg.equal(eg.tensor([1, 2]), eg.tensor([1, 2]))
True
""",
    "isnan": """Whether elements are NaN.

>>> eg.isnan(eg.tensor([eg.nan, 1.0]))
tensor([ True, False])
""",
    "isinf": """Whether elements are infinite, of either sign.

>>> eg.isinf(eg.tensor([-eg.inf, 1.0]))
tensor([ True, False])
""",
    "isfinite": """Whether elements are neither infinite nor NaN.

>>> eg.isfinite(eg.tensor([eg.inf, eg.nan, 1.0]))
tensor([False, False,  True])
""",
    "isposinf": """Whether elements are plus infinity.

>>> eg.isposinf(eg.tensor([eg.inf, -eg.inf]))
tensor([ True, False])
""",
    "isneginf": """Whether elements are minus infinity.

>>> eg.isneginf(eg.tensor([eg.inf, -eg.inf]))
tensor([False,  True])
""",
    "isreal": """Whether the imaginary part is zero.

>>> eg.isreal(eg.tensor([1 + 0j, 1j]))
tensor([ True, False])
""",
    "isin": """Whether each element is among ``test_elements``.

Args:
    elements: tensor or number
    test_elements: tensor or number
    assume_unique: accepted, has no effect on the result
    invert: whether each element is *not* among them

>>> eg.isin(eg.tensor([1, 2, 3]), eg.tensor([2, 4]))
tensor([False,  True, False])
""",
    "logical_and": """Whether both are not zero.

>>> eg.logical_and(eg.tensor([True, True]), eg.tensor([True, False]))
tensor([ True, False])
""",
    "logical_or": """Whether at least one is not zero.

>>> eg.logical_or(eg.tensor([False, True]), eg.tensor([False, False]))
tensor([False,  True])
""",
    "logical_xor": """Whether exactly one is not zero.

>>> eg.logical_xor(eg.tensor([True, True]), eg.tensor([True, False]))
tensor([False,  True])
""",
    "logical_not": """Whether it is zero.

>>> eg.logical_not(eg.tensor([0.0, 2.0]))
tensor([ True, False])
""",
    "bitwise_and": """The bits that both integers have; of booleans, ``and``.

>>> eg.bitwise_and(eg.tensor([12]), eg.tensor([10]))
tensor([8])
""",
    "bitwise_or": """The bits that at least one of the integers has; of booleans, ``or``.

>>> eg.bitwise_or(eg.tensor([12]), eg.tensor([10]))
tensor([14])
""",
    "bitwise_xor": """The bits that exactly one of the integers has.

>>> eg.bitwise_xor(eg.tensor([12]), eg.tensor([10]))
tensor([6])
""",
    "bitwise_not": """All bits turned over: ``-x - 1``; of booleans, ``not``.

>>> eg.bitwise_not(eg.tensor([0, 5]))
tensor([-1, -6])
""",
    "bitwise_left_shift": """``input * 2 ** other`` of integers.

>>> eg.bitwise_left_shift(eg.tensor([3]), 2)
tensor([12])
""",
    "bitwise_right_shift": """``input // 2 ** other`` of integers.

>>> eg.bitwise_right_shift(eg.tensor([12]), 2)
tensor([3])
""",
    "erf": """The error function: ``2 / sqrt(pi)`` times the integral of ``exp(-t^2)`` from 0 to x.

>>> eg.erf(eg.tensor([0.0, 1.0]))
tensor([0.0000, 0.8427])
""",
    "erfc": """``1 - erf(x)``, exact where erf is almost 1.

>>> eg.erfc(eg.tensor([0.0, 3.0]))
tensor([1.0000e+00, 2.2090e-05])
""",
    "erfinv": """The inverse of :func:`erf`, for ``-1 < x < 1``.

>>> eg.erfinv(eg.tensor([0.0, 0.5]))
tensor([0.0000, 0.4769])
""",
    "lgamma": """The logarithm of the absolute value of the gamma function.

>>> eg.lgamma(eg.tensor([0.5, 5.0]))
tensor([0.5724, 3.1781])
""",
    "digamma": """The derivative of :func:`lgamma`.

>>> eg.digamma(eg.tensor([1.0, 2.0]))
tensor([-0.5772,  0.4228])
""",
    "polygamma": """The ``n``-th derivative of :func:`digamma`.

Args:
    n: order, not negative; a Python integer
    input: floating-point tensor

>>> eg.polygamma(1, eg.tensor([1.0]))
tensor([1.6449])
""",
    "mvlgamma": """The logarithm of the multivariate gamma function of dimension ``p``.

>>> eg.mvlgamma(eg.tensor([3.0]), 2)
tensor([1.5502])
""",
    "igamma": """The regularised lower incomplete gamma function ``P(input, other)``.

>>> eg.igamma(eg.tensor([2.0]), eg.tensor([1.0]))
tensor([0.2642])
""",
    "igammac": """The regularised upper incomplete gamma function ``Q = 1 - P``.

>>> eg.igammac(eg.tensor([2.0]), eg.tensor([1.0]))
tensor([0.7358])
""",
    "i0": """The modified Bessel function of the first kind, order zero.

>>> eg.i0(eg.tensor([0.0, 1.0]))
tensor([1.0000, 1.2661])
""",
    "is_nonzero": """Whether the only element is not zero, as a Python bool.

>>> eg.is_nonzero(eg.tensor([2.0]))
True
""",
}
