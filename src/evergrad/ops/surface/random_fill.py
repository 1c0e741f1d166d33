"""Draws into tensors that are there: ``uniform_``, ``normal_`` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.dtypes import dtype
from evergrad.core.inplace import assign, check_writable
from evergrad.core.op import Op
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import constant
from evergrad.ops.rows.movement.views import expand, permute, put_back
from evergrad.ops.rows.random.draws import (
    ANY_INTEGERS,
    BERNOULLI,
    CAUCHY,
    CHANCE,
    EXPONENTIAL,
    GEOMETRIC,
    INTEGERS,
    LOG_NORMAL,
    NORMAL,
    UNIFORM,
    check_bounds,
    check_floating,
    check_generator,
    draw,
    draw_in_order,
    integer_limits,
    memory_order,
    read_bounds,
)
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.rng.default_generator import Generator
    from evergrad.core.types import GeneratorLike


def _draw_into(self: Tensor, op: Op, generator: Generator | None, *numbers: object) -> Tensor:
    """Draw in memory order, as PyTorch does."""
    check_writable(STATE.get(), self, None)  # a refused call draws nothing
    size = self._type.shape
    if self.layout_array().flags.c_contiguous:
        return assign(self, draw(op, size, self.dtype, generator, *numbers))
    return assign(
        self, draw_in_order(op, memory_order(self), size, self.dtype, generator, *numbers)
    )


def _check_continuous(name: str, target: dtype) -> None:
    if target.category < dtypes.FLOATING:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {target.name}"
        )


@expose(function=False)
def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with uniform numbers in [from_, to)."""
    check_floating("check_uniform_bounds", self.dtype)
    return _draw_into(self, UNIFORM, generator, float(from_), float(to))


@expose(function=False)
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers."""
    check_floating("normal_kernel_cpu", self.dtype)
    singly = not self.is_contiguous()
    return _draw_into(self, NORMAL, generator, float(mean), float(std), singly)


@expose(function=False)
def log_normal_(
    self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers whose logarithm is normal."""
    check_floating("log_normal_cpu", self.dtype)
    return _draw_into(self, LOG_NORMAL, generator, float(mean), float(std))


@expose(function=False)
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential numbers of rate ``lambd``."""
    _check_continuous("Exponential", self.dtype)
    return _draw_into(self, EXPONENTIAL, generator, float(lambd))


@expose(function=False)
def cauchy_(
    self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with Cauchy numbers."""
    _check_continuous("Cauchy", self.dtype)
    return _draw_into(self, CAUCHY, generator, float(median), float(sigma))


@expose(function=False)
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with the number of trials up to the first success of probability ``p``."""
    return _draw_into(self, GEOMETRIC, generator, float(p))


@expose(function=False)
def random_(
    self: Tensor, *args: object, generator: Generator | None = None, **named: object
) -> Tensor:
    """Fill with integers: ``random_()``, ``random_(to)`` or ``random_(from_, to)``."""
    given = [*args, *(named[name] for name in ("from_", "from", "to") if name in named)]
    if not given:
        return _draw_into(self, ANY_INTEGERS, generator)
    if len(given) == 2 and given[1] is None:
        given[1] = integer_limits(self.dtype)[1] + 1
    low, high = read_bounds("random_", given, {})
    check_bounds(low, high, self.dtype)
    return _draw_into(self, INTEGERS, generator, low, high)


def _is_probability(number: Any) -> bool:
    return bool(0 <= number <= 1)


@expose(function=False)
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: GeneratorLike = None) -> Tensor:
    """Fill with 1 with probability ``p`` (a number or a tensor), else 0."""
    check_generator(generator)
    if isinstance(p, PythonNumber) and _is_probability(p):
        # A run-time number: the same draws as with a scalar, which takes 53 bits for each element.
        p = constant((), p, dtypes.float64)
    if not isinstance(p, Tensor):
        return _draw_into(self, CHANCE, generator, float(p))
    check_floating("bernoulli_tensor_cpu_p_", p.dtype)
    order = memory_order(self)
    p = permute(expand(p, self._type.shape), order)
    check_writable(STATE.get(), self, None)
    drawn = bind(BERNOULLI, p, dtype=self.dtype, generator=generator)
    return assign(self, put_back(drawn, order))
