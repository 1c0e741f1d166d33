"""Samples of the activation curves that are rows."""

from __future__ import annotations

import numpy as np

from evergrad.testing.samples import normal, sample

__all__: list[str] = []  # samples are registered, nothing is exported

for shape in ((2, 3), (), (0, 2), (4, 1, 3)):
    x = np.asarray(normal(*shape) * 2)
    sample("elu", lambda ns, x: ns.nn.functional.elu(x), x)
    sample("softplus", lambda ns, x: ns.nn.functional.softplus(x), x)
    sample("logsigmoid", lambda ns, x: ns.nn.functional.logsigmoid(x), x,
           reference=lambda x: -np.logaddexp(-x, 0))  # fmt: skip
    sample("hardswish", lambda ns, x: ns.nn.functional.hardswish(x), x)
    sample("softshrink", lambda ns, x: ns.nn.functional.softshrink(x), x)
    sample("hardshrink", lambda ns, x: ns.nn.functional.hardshrink(x), x)
    sample("leaky_relu", lambda ns, x: ns.nn.functional.leaky_relu(x), x)
    sample("hardtanh", lambda ns, x: ns.nn.functional.hardtanh(x), x)
    # PyTorch rounds a sixth to single precision, also in double.
    sample("hardsigmoid", lambda ns, x: ns.nn.functional.hardsigmoid(x), x, torch=False,
           reference=lambda x: np.clip(x / 6 + 0.5, 0, 1))  # fmt: skip
x = normal(5, 2) * 3
sample("elu", lambda ns, x: ns.nn.functional.elu(x, 0.7), x, label="alpha")
# PyTorch rounds celu's constant to single precision, also in double.
sample("elu", lambda ns, x: ns.nn.functional.celu(x, 1.3), x, torch=False, label="celu",
       reference=lambda x: np.where(x > 0, x, 1.3 * np.expm1(x / 1.3)))  # fmt: skip
sample("elu", lambda ns, x: ns.nn.functional.selu(x), x, label="selu")
sample("softplus", lambda ns, x: ns.nn.functional.softplus(x, 2.0, 1.5), x, label="beta, threshold")
sample("softshrink", lambda ns, x: ns.nn.functional.softshrink(x, 0.9), x, label="wide")
sample("leaky_relu", lambda ns, x: ns.nn.functional.leaky_relu(x, -0.3), x, label="slope")
sample("hardtanh", lambda ns, x: ns.nn.functional.relu6(x), x, label="relu6")
edges = np.array([-np.inf, -200.0, -3.0, -0.0, 0.0, 3.0, 200.0, np.inf, np.nan])
for row in (
    "elu", "softplus", "logsigmoid", "hardswish", "softshrink", "hardshrink", "leaky_relu",
    "hardtanh",
):  # fmt: skip
    sample(
        row, (lambda ns, x, f=row: getattr(ns.nn.functional, f)(x)), edges, smooth=False,
        label="edges",
    )  # fmt: skip
