"""Samples of the rows that take numbers apart."""

import numpy as np

from evergrad.testing.samples import integers, normal, sample

for _name in ("gcd", "lcm"):
    sample(_name, lambda ns, a, b, f=_name: getattr(ns, f)(a, b), integers(-20, 20, 2, 3),
           integers(-9, 9, 3, seed=1), dtypes=())  # fmt: skip
    sample(_name, lambda ns, a, b, f=_name: getattr(a, f)(b), np.array([0, 0, -6]),
           np.array([0, -5, 4]), dtypes=(), label="zeros and signs")  # fmt: skip
for _row, _part in (("frexp_mantissa", 0), ("frexp_exponent", 1)):
    sample(_row, lambda ns, x, k=_part: ns.frexp(x)[k], normal(2, 3) * 10,
           reference=lambda x, k=_part: np.frexp(x)[k])  # fmt: skip
    sample(_row, lambda ns, x, k=_part: x.frexp()[k], np.array(3.7), label="scalar")
    sample(_row, lambda ns, x, k=_part: ns.frexp(x)[k], normal(0, 2), label="empty")
    sample(_row, lambda ns, x, k=_part: ns.frexp(x)[k], np.array([0.0, -0.5, 1e-310]), dtypes=(),
           smooth=False, label="edges")  # fmt: skip
