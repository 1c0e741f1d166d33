"""Samples of special functions. Accuracy is tested elsewhere; here are PyTorch and derivatives."""

from collections.abc import Callable

import numpy as np

from evergrad.testing.samples import Array, between, normal, positive, sample

__all__: list[str] = []  # samples are registered, nothing is exported

inf, nan = np.inf, np.nan

_EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.0, 30.0, -30.0, inf, -inf, nan])


def _named(name: str) -> Callable[..., object]:
    """The function of the library or, where it is not there, of its special functions."""
    return lambda ns, *x: getattr(ns if hasattr(ns, name) else ns.special, name)(*x)


def _function(name: str, x: Array, edges: Array = _EDGES) -> None:
    call = _named(name)
    for inputs in (x, np.array(x.flat[0]), x[:0]):
        sample(name, call, inputs)
    sample(name, lambda ns, x: call(ns, x.detach()), edges, dtypes=(), smooth=False,
           label="edges")  # fmt: skip


for _name in ("erf", "erfc", "erfcx", "ndtr", "log_ndtr", "i0", "i0e", "i1", "i1e", "sinc"):
    _function(_name, normal(2, 3))
_function("erfinv", between(-0.95, 0.95, 2, 3))
_function("ndtri", between(0.05, 0.95, 2, 3), np.array([0.0, 1.0, 0.5, 1e-30, 1.5, -1.0, nan]))
_function("lgamma", positive(2, 3), np.array([0.0, 1.0, 2.0, -1.0, -2.5, 50.0, inf, nan]))
_function("digamma", positive(2, 3), np.array([0.0, -0.0, -1.0, -2.5, 50.0, inf, nan]))
_function("entr", positive(2, 3), np.array([0.0, -1.0, 1.0, nan, inf]))
_function("logit", between(0.05, 0.95, 2, 3), np.array([0.0, 1.0, 1.5, -0.5, nan]))
sample("erf", _named("erf"), np.array([3.0, -4.0, 5.5, 1e-8, 1.0]), label="far and near")
sample("sinc", _named("sinc"), np.array([0.0, 1.0, 2.0]), torch=False, reference=np.sinc, dtypes=(),
       label="at zero")  # fmt: skip
sample("i1", _named("i1"), np.array([0.0, 8.0, 12.0, -20.0]), dtypes=(), label="at zero and far")
sample("lgamma", _named("lgamma"), np.array([-0.3, -1.7, -2.2]), dtypes=(),
       label="negative")  # fmt: skip
sample("logit", lambda ns, x: ns.logit(x, eps=0.2), between(0.02, 0.98, 6), dtypes=(), label="eps")

for _order in (1, 2, 3):
    # Of the first order PyTorch has nine digits; SciPy agrees with this one to the last.
    sample("polygamma", lambda ns, x, n: ns.polygamma(n, x), positive(2, 3), _order, tolerance=1e-9,
           label=f"order {_order}")  # fmt: skip
sample("polygamma", lambda ns, x: x.polygamma(2), np.array([5.5, 20.0]), dtypes=())
sample("digamma", lambda ns, x: ns.polygamma(0, x), positive(3), label="order 0")
sample("lgamma", lambda ns, x: ns.mvlgamma(x, 3), positive(3, low=2.0), dtypes=(),
       label="of dimension 3")  # fmt: skip

sample("zeta", lambda ns, q: ns.special.zeta(2.5, q), positive(2, 3), dtypes=())
sample("zeta", lambda ns, q: ns.special.zeta(ns.tensor([[1.5], [3.0]], dtype=q.dtype), q),
       positive(3), dtypes=(), label="broadcast")  # fmt: skip
sample("zeta", lambda ns, s, q: ns.special.zeta(s.detach(), q.detach()),
       np.array([1.0, 0.5, 2.0, 3.0, 2.5, nan]), np.array([2.0, 2.0, -1.0, -1.5, -1.5, 1.0]),
       label="edges", dtypes=(), smooth=False)  # fmt: skip
for _name in ("igamma", "igammac"):
    sample(_name, lambda ns, x, name=_name: getattr(ns, name)(ns.tensor(1.7, dtype=x.dtype), x),
           positive(2, 3) * 2, dtypes=())  # fmt: skip
    sample(_name, lambda ns, a, x, name=_name: getattr(ns, name)(a.detach(), x.detach()),
           np.array([0.0, 0.0, 1.0, -1.0, inf, 1.0, inf, 50.0]),
           np.array([0.0, 1.0, 0.0, 1.0, 1.0, inf, inf, 70.0]), smooth=False, label="edges",
           dtypes=())  # fmt: skip
sample("xlog1py", lambda ns, a, b: ns.special.xlog1py(a, b), normal(2, 3), positive(3))
sample("xlog1py", lambda ns, a, b: ns.special.xlog1py(a, b), np.zeros(4),
       np.array([-1.0, -2.0, nan, inf]), smooth=False, label="zero times")  # fmt: skip
