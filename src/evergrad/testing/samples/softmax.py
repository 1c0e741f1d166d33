"""Samples of softmax and its logarithm."""

from __future__ import annotations

import numpy as np

from evergrad.testing.samples import normal, sample

__all__: list[str] = []  # samples are registered, nothing is exported

for row in ("softmax", "log_softmax"):
    for shape, dim in (
        ((3, 4), 1),
        ((3, 4), 0),
        ((2, 3, 2), -2),
        ((5,), 0),
        ((0, 3), 1),
        ((2, 0), 1),
    ):
        sample(
            row, (lambda ns, x, f=row, d=dim: getattr(ns, f)(x, d)), normal(*shape) * 2,
            label=f"{shape} dim {dim}",
        )  # fmt: skip
    sample(row, (lambda ns, x, f=row: getattr(ns, f)(x, 0)), np.asarray(normal()), label="0-d")
    hidden = np.array([[-np.inf, 1.0, 2.0], [-np.inf] * 3, [np.inf, 0.0, 1.0], [np.nan, 0.0, 1.0]])
    sample(
        row,
        (lambda ns, x, f=row: getattr(ns, f)(x, 1)),
        hidden,
        smooth=False,
        dtypes=(),
        label="edges",
    )
    sample(
        row, (lambda ns, x, f=row: getattr(ns, f)(x, 1)), np.array([[1e3, 0.0], [-1e3, 5.0]]),
        label="large",
    )  # fmt: skip
