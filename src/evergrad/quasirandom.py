"""``SobolEngine``: points that fill the unit cube more evenly than random ones.

The direction numbers are those of Joe and Kuo (2008), in ``sobol_directions.npz``; points and
scrambles are PyTorch's for the same seed.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.rng.default_generator import Generator
from evergrad.core.tensor import Array, Tensor, from_array
from evergrad.ops.surface.public import FUNCTIONS

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike

__all__ = ["SobolEngine"]

_BITS = 30


@cache
def _numbers() -> tuple[Array, Array]:
    """A primitive polynomial and initial direction numbers for each dimension."""
    with files("evergrad").joinpath("sobol_directions.npz").open("rb") as file:
        found = np.load(file)
        return found["poly"], found["vinit"]


def _directions(dimension: int) -> Array:
    """The direction numbers of each dimension, ``(dimension, bits)``, most significant first."""
    polynomials, first = _numbers()
    made = np.zeros((dimension, _BITS), np.int64)
    made[:1] = 1
    for d in range(1, dimension):
        polynomial = int(polynomials[d])
        degree = polynomial.bit_length() - 1
        row = [int(value) for value in first[d, :degree]]
        for j in range(degree, _BITS):
            value = row[j - degree]
            for k in range(degree):
                if polynomial >> (degree - 1 - k) & 1:
                    value ^= row[j - k - 1] << (k + 1)
            row.append(value)
        made[d] = row
    return made << np.arange(_BITS - 1, -1, -1)


def _parity(bits: Array) -> Array:
    """Whether a number of 30 bits has an odd number of ones."""
    for shift in (16, 8, 4, 2, 1):
        bits = bits ^ bits >> shift
    return bits & 1


class SobolEngine:
    """A low-discrepancy sequence in ``[0, 1)^dimension``.

    >>> eg.quasirandom.SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    seed: int | None
    scramble: bool
    dimension: int

    MAXBIT = _BITS
    MAXDIM = 1111

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                "Supported range of dimensionality for SobolEngine is "
                f"[1, {self.MAXDIM}], got {dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self._columns = _directions(dimension)
        shift = self._scrambled() if scramble else np.zeros(dimension, np.int64)
        self.shift: Tensor = from_array(shift)
        self.quasi: Tensor = from_array(shift.copy())
        self.num_generated: int = 0

    def _scrambled(self) -> Array:
        """Apply a random lower triangular matrix to the directions; gives the random shift."""
        generator = None
        if self.seed is not None:
            generator = Generator()
            generator.manual_seed(self.seed)
        bits = (self.dimension, _BITS)
        shift = FUNCTIONS["randint"](2, bits, generator=generator).numpy()
        matrix = FUNCTIONS["randint"](2, (*bits, _BITS), generator=generator).tril().numpy()
        places = np.arange(_BITS)
        matrix[:, places, places] = 1
        rows = matrix @ (1 << places[::-1])  # (dimension, bits)
        odd = _parity(self._columns[:, :, None] & rows[:, None, :])  # (dimension, column, bit)
        self._columns = odd @ (1 << places[::-1])
        return np.asarray(shift @ (1 << places), np.int64)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``n`` points, ``(n, dimension)``."""
        kind = dtypes.get_default_dtype() if dtype is None else dtype
        points = np.empty((n, self.dimension), np.int64)
        current = self.quasi.numpy().copy()
        for i in range(n):
            current = self._step(current, self.num_generated + i)
            points[i] = current
        self.quasi = from_array(current)
        self.num_generated += n
        values = from_array(points / (1 << _BITS)).to(kind)
        if out is not None:
            return out.resize_as_(values).copy_(values)
        return values

    def _step(self, current: Array, number: int) -> Array:
        """Point ``number`` from the one before; the first one is the shift itself."""
        if number == 0:
            return current
        lowest_zero = (~(number - 1) & number).bit_length() - 1
        return np.asarray(current ^ self._columns[:, lowest_zero])

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DtypeLike = None) -> Tensor:
        """The next ``2**m`` points; together with the former ones a power of two as well."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Start again with the first point."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out ``n`` points."""
        current = self.quasi.numpy().copy()
        for i in range(n):
            current = self._step(current, self.num_generated + i)
        self.quasi = from_array(current)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        further = (", scramble=True" if self.scramble else "") + (
            "" if self.seed is None else f", seed={self.seed}"
        )
        return f"SobolEngine(dimension={self.dimension}{further})"
