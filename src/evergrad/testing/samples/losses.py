"""Samples of rows that are losses."""

import numpy as np

from evergrad.testing.samples import between, sample

sample(
    "binary_cross_entropy",
    lambda ns, x, t: ns.nn.functional.binary_cross_entropy(x, t, reduction="none"),
    between(0.1, 0.9, 2, 3), between(0.1, 0.9, 2, 3, seed=1),
    reference=lambda x, t: -t * np.log(x) - (1 - t) * np.log(1 - x),
)  # fmt: skip
sample(
    "binary_cross_entropy",
    lambda ns, x: ns.nn.functional.binary_cross_entropy(x, ns.ones_like(x), reduction="none"),
    np.array([0.0, 1.0]), reference=lambda x: np.array([100.0, 0.0]), torch=False, smooth=False,
    dtypes=(), label="certain",
)  # fmt: skip
