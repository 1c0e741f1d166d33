"""Samples of the rows that draw from families, and of the slopes of such draws.

What is drawn moves with its concentration at a fixed probability, not at a fixed seed, so that
differences of draws are no check of the slopes; those of quantiles are, and stand in the tests.
"""

import numpy as np

from evergrad.ops.rows.random.gamma import dirichlet_grad, sample_dirichlet, standard_gamma_grad
from evergrad.testing.samples import between, positive, sample

sample("sample_dirichlet", lambda ns, a: sample_dirichlet(a), np.float32(positive(2, 3)),
       torch=False, dtypes=(), smooth=False)  # fmt: skip
sample("standard_gamma_grad",
       lambda ns, x: standard_gamma_grad(ns.tensor(1.7, dtype=x.dtype), x),
       positive(2, 3), torch=False, dtypes=())  # fmt: skip
sample("standard_gamma_grad", lambda ns, a, x: standard_gamma_grad(a.detach(), x.detach()),
       positive(2, 1), positive(3), torch=False, dtypes=(), smooth=False,
       label="broadcast")  # fmt: skip
sample("dirichlet_grad",
       lambda ns, x: dirichlet_grad(
           x, ns.tensor(1.7, dtype=x.dtype), ns.tensor(3.2, dtype=x.dtype)),
       between(0.1, 0.9, 2, 3), torch=False, dtypes=())  # fmt: skip
sample("dirichlet_grad", lambda ns, x, a: dirichlet_grad(x.detach(), a.detach(), a.detach() + 2),
       between(0.1, 0.9, 2, 1), positive(3), torch=False, dtypes=(), smooth=False,
       label="broadcast")  # fmt: skip
