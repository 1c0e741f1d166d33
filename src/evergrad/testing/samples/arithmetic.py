"""Samples of arithmetic in several steps, and of floats as they are represented."""

from collections.abc import Callable

import numpy as np

from evergrad.testing.samples import between, complex_normal, integers, normal, positive, sample

__all__: list[str] = []  # samples are registered, nothing is exported

inf, nan = np.inf, np.nan


def _named(name: str) -> Callable[..., object]:
    return lambda ns, *inputs: getattr(ns, name)(*inputs)


# -- steps towards, products and quotients added ------------------------------------------------

sample("lerp", lambda ns, a, b, w: ns.lerp(a, b, w), normal(2, 3), normal(2, 3, seed=1),
       between(-0.3, 1.3, 2, 3), reference=lambda a, b, w: a + w * (b - a))  # fmt: skip
sample("lerp", lambda ns, a, b, w: ns.lerp(a, b, w), normal(2, 1), normal(3), between(0, 1, 2, 3),
       label="broadcast")  # fmt: skip
for _weight in (0.3, 0.7, 1):
    sample("lerp", lambda ns, a, b, w: ns.lerp(a, b, w), normal(2, 3), normal(3), _weight,
           label=f"weight {_weight}")  # fmt: skip
sample("lerp", lambda ns, a, b: a.clone().lerp_(b, 0.2), normal(3), normal(3, seed=1),
       label="in place")  # fmt: skip
sample("lerp", lambda ns, a, b, w: ns.lerp(a, b, w), complex_normal(3), complex_normal(3, seed=2),
       0.25, label="complex")  # fmt: skip
sample("lerp", lambda ns, a, b: ns.lerp(a, b, 0.5), normal(0, 2), normal(2), label="empty")

for _name, _divisor in (("addcmul", normal(2, 3, seed=2)), ("addcdiv", positive(2, 3))):
    sample(_name, _named(_name), normal(2, 3), normal(2, 3, seed=1), _divisor)
    sample(_name, _named(_name), normal(2, 1), normal(3), _divisor, label="broadcast")
    sample(_name, lambda ns, x, a, b, name=_name: getattr(ns, name)(x, a, b, value=-0.5),
           normal(2, 3), normal(3), _divisor, label="value")  # fmt: skip
    sample(_name, lambda ns, x, a, b, name=_name: getattr(x.clone(), name + "_")(a, b, value=2),
           normal(2, 3), normal(2, 3, seed=1), _divisor, label="in place")  # fmt: skip
    sample(_name, _named(_name), complex_normal(3), complex_normal(3, seed=1),
           complex_normal(3, seed=2), label="complex")  # fmt: skip
sample("addcmul", lambda ns, x, a, b: ns.addcmul(x, a, b, value=2), integers(0, 9, 3),
       integers(0, 9, 3, seed=1), integers(0, 9, 3, seed=2), label="integers")  # fmt: skip

# -- logarithms of sums and products ------------------------------------------------------------

for _name, _function in {"logaddexp": np.logaddexp, "logaddexp2": np.logaddexp2}.items():
    sample(_name, _named(_name), normal(2, 3), normal(3, seed=1), reference=_function)
    sample(_name, _named(_name), np.array([1000.0, -1000.0]), np.array([1001.0, -1000.0]),
           reference=_function, label="far", dtypes=())  # fmt: skip
    sample(_name, _named(_name), np.array([-inf, -inf, inf]), np.array([-inf, 1.0, 1.0]),
           torch=False, reference=_function, smooth=False, label="infinite")  # fmt: skip
sample("logaddexp", _named("logaddexp"), complex_normal(3), complex_normal(3, seed=2))

sample("xlogy", _named("xlogy"), normal(2, 3), positive(3), reference=lambda a, b: a * np.log(b))
sample("xlogy", _named("xlogy"), normal(3), 2.5, dtypes=(), label="number")
sample("xlogy", lambda ns, b: ns.xlogy(1.5, b), positive(3), label="number first")
sample("xlogy", _named("xlogy"), np.zeros(4), np.array([0.0, -1.0, nan, inf]), smooth=False,
       label="zero times")  # fmt: skip

# -- signs and neighbours -----------------------------------------------------------------------

sample("copysign", _named("copysign"), normal(2, 3), normal(3), reference=np.copysign)
sample("copysign", _named("copysign"), normal(3), -0.0, reference=np.copysign, label="number")
sample("copysign", _named("copysign"), np.array([0.0, -0.0]), np.array([-1.0, 1.0]), smooth=False)
sample("copysign", _named("copysign"), integers(-3, 3, 4), -1, label="integers")
sample("nextafter", _named("nextafter"), normal(2, 3), normal(3, seed=1), reference=np.nextafter)
sample("nextafter", _named("nextafter"), np.array([0.0, 1.0, inf]), np.array([1.0, 1.0, 0.0]),
       smooth=False, dtypes=(), label="edges")  # fmt: skip
sample("mul", lambda ns, x, n: ns.ldexp(x, n), normal(3), integers(-3, 4, 3), label="ldexp")
sample("heaviside", _named("heaviside"), np.array([-1.5, 0.0, 2.0]), normal(3),
       reference=np.heaviside, smooth=False)  # fmt: skip
sample("heaviside", _named("heaviside"), normal(2, 3), normal(3), reference=np.heaviside)
sample("heaviside", _named("heaviside"), np.array([nan, -0.0]), np.array([1.0, nan]), smooth=False)

# -- replaced elements --------------------------------------------------------------------------

_BROKEN = np.array([nan, inf, -inf, 1.5])
sample("nan_to_num", lambda ns, x: ns.nan_to_num(x), _BROKEN, reference=np.nan_to_num, dtypes=(),
       smooth=False)  # fmt: skip
sample("nan_to_num", lambda ns, x: ns.nan_to_num(x, nan=2, posinf=3.5, neginf=-1), _BROKEN,
       reference=lambda x: np.nan_to_num(x, nan=2, posinf=3.5, neginf=-1), smooth=False,
       label="values given")  # fmt: skip
sample("nan_to_num", lambda ns, x: ns.nan_to_num(x), normal(2, 3), reference=lambda x: x)
sample("nan_to_num", lambda ns, x: ns.nan_to_num(x), np.array([complex(nan, 1), complex(2, inf)]),
       torch=False, reference=np.nan_to_num, smooth=False, dtypes=(), label="complex")  # fmt: skip
sample("threshold", lambda ns, x: ns.threshold(x, 0.2, -3), normal(2, 3),
       reference=lambda x: np.where(x > 0.2, x, -3))  # fmt: skip
sample("threshold", lambda ns, x: ns.threshold(x, 0, 20), np.array([0.0, nan, 1.0]), smooth=False)
