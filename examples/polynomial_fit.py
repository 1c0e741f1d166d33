"""Fit a polynomial by gradients, let its degree grow, and factor what was found.

    python examples/polynomial_fit.py [--steps 400]

The coefficients are a value of the algebra: a polynomial of higher degree is the same value in a
larger shape, so fitting goes on where it was when the degree grows. At the end the roots of the fit
are found, and the product of its linear factors is compared with it.
"""

from __future__ import annotations

import argparse

import numpy as np

import evergrad as eg
from evergrad import optim, ragged

TRUTH = ragged.tensor([0.5, -1.0, 0.0, 2.0], eg.float64)  # 0.5 - x + 2 x^3


def fit(steps: int = 400, degrees: tuple[int, ...] = (1, 3)) -> tuple[ragged.Tensor, list[float]]:
    """The coefficients, and the mean squared error after each degree."""
    x = eg.tensor(np.linspace(-1, 1, 101))
    y = ragged.evaluate(TRUTH, x)
    coefficients = ragged.zero(eg.float64)
    errors = []
    for degree in degrees:
        grown = coefficients.extended((degree + 1,)).clone()
        coefficients = ragged.tensor(grown, requires_grad=True)
        optimizer = optim.Adam([coefficients.dense], lr=0.05)
        for _ in range(steps):
            loss = ((ragged.evaluate(coefficients, x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        coefficients = coefficients.detach()
        errors.append(loss.item())
    return coefficients, errors


def product_of_factors(value: ragged.Tensor) -> ragged.Tensor:
    """The polynomial again, from its roots and its leading coefficient."""
    small = ragged.shrink(value)
    made = ragged.tensor([complex(small.tolist()[-1])], eg.complex128)
    for root in ragged.roots(value).tolist():
        made = ragged.convolve(made, ragged.tensor([-root, 1], eg.complex128))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    found, errors = fit(parser.parse_args().steps)
    print("coefficients", [round(c, 3) for c in found.tolist()], "truth", TRUTH.tolist())
    print("error by degree", [f"{e:.1e}" for e in errors])
    print("roots", [f"{r:.3f}" for r in ragged.roots(found).tolist()])
    assert ragged.allclose(found, TRUTH, atol=0.01)
    assert ragged.allclose(product_of_factors(found), found.to(eg.complex128), atol=1e-6)


if __name__ == "__main__":
    main()
