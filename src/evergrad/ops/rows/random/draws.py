"""Rows that draw: from a generator given by name, or from the calling thread's own.

The numbers are those of :mod:`evergrad.core.rng.generator`, which are PyTorch's for the same seed.
Counts and choices (``bernoulli``, ``binomial``, ``poisson``) have slope 0 in their parameters, as
in PyTorch; a gamma number moves with its shape. Other draws have no derivative, and their results
no history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.compound import Compound
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.families import opaque
from evergrad.core.meta import placed
from evergrad.core.namespace import ops
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.rng.default_generator import Generator, default_generator
from evergrad.core.row_facts import AutocastPolicy, Emit, lowered, numpy_evaluates
from evergrad.core.shapes import Shape, TensorType, as_shape, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import (
    check_place,
    chosen_dtype,
    constant,
    deliver,
    finish,
    named_size,
    zeros_like,
)
from evergrad.ops.rows.creation.quick import quick_draw
from evergrad.ops.rows.movement.views import put_back, squeeze, unsqueeze
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import (
        DeviceLike,
        DtypeLike,
        GeneratorLike,
        Ints,
        LayoutLike,
        Leaves,
        MemoryFormatLike,
    )


def _source(generator: Generator | None) -> Generator:
    return default_generator() if generator is None else generator


def check_generator(generator: Generator | None) -> None:
    """Refuse what cannot draw."""
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"generator must be an evergrad.Generator, not {type(generator).__name__}")


SAMPLED = numpy_evaluates("rejection: how many words a number takes depends on their values")
WORDS = lowered("passes.lower_random")  # from a Mersenne twister; Philox numbers are NumPy's
RARE = numpy_evaluates("rare in models: no formula in words")


# -- rows of numbers ----------------------------------------------------------------------------


def _drawing(name: str, method: Callable[..., Array], doc: str, emit: Emit = WORDS) -> Op:
    """A row whose arguments are numbers: ``method(generator, size, dtype, *numbers)``."""

    def evaluate(*numbers: object, size: Shape, dtype: dtype, generator: Generator | None) -> Array:
        return method(_source(generator), size, dtype.np, *numbers)

    def type_rule(
        *numbers: object, size: Shape, dtype: dtype, generator: Generator | None
    ) -> TensorType:
        return tensor_type(size, dtype)

    return opaque(
        name, evaluate, type_rule, NONDIFFERENTIABLE, random=True, upcast=False, emit=emit,
        autocast=AutocastPolicy.KEEP, doc=doc,
    )  # fmt: skip


UNIFORM = _drawing("uniform", Generator.uniform, "Uniform between two numbers.")
NORMAL = _drawing("normal", Generator.normal, "Normal with a mean and a deviation.")
LOG_NORMAL = _drawing("log_normal", Generator.log_normal, "The exponential of a normal.")
EXPONENTIAL = _drawing("exponential", Generator.exponential, "Exponential with a rate.")
CAUCHY = _drawing("cauchy", Generator.cauchy, "Cauchy around a median.", RARE)
GEOMETRIC = _drawing(
    "geometric", lambda source, size, kind, p: source.geometric(p, size, kind),
    "Trials up to the first success.", RARE,
)  # fmt: skip
CHANCE = _drawing(
    "chance", lambda source, size, kind, p: source.bernoulli(p, size, kind),
    "1 with one probability for all.", lowered("codegen.rng"),
)  # fmt: skip
INTEGERS = _drawing(
    "randint", lambda source, size, kind, low, high: source.randint(low, high, size, kind),
    "Integers between two numbers.",
)  # fmt: skip
ANY_INTEGERS = _drawing("random", Generator.random_full, "Every integer the type holds.")
PERMUTATION = _drawing(
    "randperm", lambda source, size, kind: source.randperm(size[0], kind),
    "The integers below n in random order.",
)  # fmt: skip


def draw(
    op: Op, size: Shape, dtype: dtype, generator: Generator | None, *numbers: object
) -> Tensor:
    """A new tensor drawn by a row of numbers."""
    check_generator(generator)
    if size and min(size) < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(size)}: {list(size)}"
        )
    return bind(op, *numbers, size=size, dtype=dtype, generator=generator)  # type: ignore[no-any-return]


def memory_order(tensor: Tensor) -> list[int]:
    """The dimensions from the one with the longest steps in memory to that with the shortest.

    Where elements lie on top of each other there is no such order; theirs is the dimensions' own.
    """
    array = tensor.layout_array()
    steps = [s if n > 1 else None for s, n in zip(array.strides, array.shape, strict=True)]
    if 0 in steps or array.flags.c_contiguous:
        return list(range(array.ndim))
    return sorted(range(array.ndim), key=lambda dim: -array.strides[dim])


def draw_in_order(
    op: Op,
    order: list[int],
    size: Shape,
    dtype: dtype,
    generator: Generator | None,
    *numbers: object,
) -> Tensor:
    """Draw with the dimensions in an order that need not be their own."""
    drawn = draw(op, tuple(size[dim] for dim in order), dtype, generator, *numbers)
    return put_back(drawn, order)


def draw_like(
    op: Op, input: Tensor, dtype: dtype, generator: Generator | None, *numbers: object
) -> Tensor:
    """Drawn in the memory order of a tensor, with its strides; for all elements of a nested one."""
    if isinstance(input, Compound) and input.is_nested:
        return input.mapped(op.name, lambda x: draw_like(op, x, dtype, generator, *numbers))
    size = input._type.shape
    if input.layout_array().flags.c_contiguous:
        numbers = (*numbers, False) if op is NORMAL else numbers
        return draw(op, size, dtype, generator, *numbers)
    order = memory_order(input)
    if op is NORMAL:
        numbers = (*numbers, order != list(range(len(size))))
    return draw_in_order(op, order, size, dtype, generator, *numbers)


def check_floating(kernel: str, target: dtype) -> None:
    """Refuse integers, in the name of PyTorch's kernel."""
    if target.category < dtypes.FLOATING:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{target.name}'")


# -- rows of tensors ----------------------------------------------------------------------------


def _no_slope(g: Tensor, out: Tensor, *args: Tensor, **attrs: object) -> tuple[Tensor, ...]:
    """The gradient of a draw that is not reparametrized, as PyTorch defines it."""
    return tuple(zeros_like(arg) for arg in args)


def _sampling(
    name: str, method: Callable[..., Array], doc: str, vjp: Any = NONDIFFERENTIABLE,
    emit: Emit = SAMPLED,
) -> Op:  # fmt: skip
    """A row that draws one number for each element of its arguments, in their type."""

    def evaluate(*arrays: Array, generator: Generator | None) -> Array:
        return method(_source(generator), *np.broadcast_arrays(*arrays))

    def type_rule(*types: TensorType, generator: Generator | None) -> TensorType:
        return tensor_type(broadcast_shapes(*(t.shape for t in types)), types[0].dtype)

    return opaque(
        name, evaluate, type_rule, vjp, random=True, upcast=False, emit=emit,
        autocast=AutocastPolicy.KEEP, doc=doc,
    )  # fmt: skip


def _gamma_slope(g: Tensor, out: Tensor, alpha: Tensor, *, generator: Generator | None) -> Tensor:
    return g * ops.standard_gamma_grad(alpha, out)


def _normal_around(source: Generator, mean: Array, std: Array) -> Array:
    if not np.all(std >= 0):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    return source.normal(mean.shape, mean.dtype) * std + mean


NORMAL_AROUND = _sampling(
    "normal_around", _normal_around, "Normal around a mean for each element.", _no_slope
)
POISSON = _sampling("poisson", Generator.poisson, "Counts with a rate for each element.", _no_slope)
BINOMIAL = _sampling("binomial", Generator.binomial, "Successes in a number of trials.", _no_slope)
GAMMA = _sampling(
    "standard_gamma", Generator.standard_gamma, "Gamma numbers of scale 1.", _gamma_slope
)


# -- functions that make tensors ----------------------------------------------------------------


def _standard(name: str, op: Op, numbers: tuple[float, float], kernel: str, doc: str) -> None:
    """``rand`` and ``randn``, and their forms for the shape and type of a tensor."""

    def function(
        *size: object, generator: Generator | None = None, out: Tensor | None = None,
        dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
        requires_grad: bool = False, pin_memory: bool = False, **named: object,
    ) -> Tensor:  # fmt: skip
        check_place(device)
        target = chosen_dtype(dtype, out)
        check_floating(kernel, target)
        made = draw(op, named_size(name, size, named), target, generator, *numbers)
        return deliver(name, made, out, requires_grad)

    def like(
        input: Tensor, *, generator: Generator | None = None, dtype: DtypeLike = None,
        device: DeviceLike = None, layout: LayoutLike = None, requires_grad: bool = False,
        pin_memory: bool = False, memory_format: MemoryFormatLike = None,
    ) -> Tensor:  # fmt: skip
        check_place(device)
        target = input.dtype if dtype is None else as_dtype(dtype)
        check_floating(kernel, target)
        return finish(draw_like(op, input, target, generator, *numbers), requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    like.__name__ = like.__qualname__ = f"{name}_like"
    like.__doc__ = f"{doc} In the shape and type of a tensor."
    expose(method=False, out=False)(quick_draw(placed(function)))
    expose(method=False, out=False)(quick_draw(placed(like, like=True)))


_standard("rand", UNIFORM, (0.0, 1.0), "check_uniform_bounds", "Uniform in [0, 1).")
_standard("randn", NORMAL, (0.0, 1.0), "normal_kernel_cpu", "Normal with mean 0 and variance 1.")


@expose(method=False, out=False)
@quick_draw
@placed
def randint(
    *args: object, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
    requires_grad: bool = False, pin_memory: bool = False, **named: object,
) -> Tensor:  # fmt: skip
    """``randint(low, high, size)``: integers from ``low`` (or 0) up to ``high`` - 1."""
    check_place(device)
    rest = list(args)
    size = named.pop("size") if "size" in named else rest.pop()
    low, high = read_bounds("randint", rest, named)
    target = dtypes.int64 if dtype is None and out is None else chosen_dtype(dtype, out)
    check_bounds(low, high, target)
    made = draw(INTEGERS, as_shape((size,)), target, generator, low, high)
    return deliver("randint", made, out, requires_grad)


@expose(method=False, out=False)
def randint_like(
    input: Tensor, *args: object, generator: Generator | None = None, dtype: DtypeLike = None,
    device: DeviceLike = None, layout: LayoutLike = None, requires_grad: bool = False,
    pin_memory: bool = False, memory_format: MemoryFormatLike = None, **named: object,
) -> Tensor:  # fmt: skip
    """``randint_like(input, low, high)``: integers in the shape and type of a tensor."""
    check_place(device)
    low, high = read_bounds("randint_like", list(args), named)
    target = input.dtype if dtype is None else as_dtype(dtype)
    check_bounds(low, high, target)
    return finish(draw_like(INTEGERS, input, target, generator, low, high), requires_grad)


def read_bounds(name: str, given: Leaves, named: dict[str, object]) -> tuple[int, int]:
    """``(high)`` or ``(low, high)``, in order or by name."""
    if "high" in named:
        given = [*given, named.pop("high")]
    if "low" in named:
        given = [named.pop("low"), *given]
    if named or not 1 <= len(given) <= 2:
        raise TypeError(f"{name}() takes (high) or (low, high), got {given} and {sorted(named)}")
    bounds = [0, *given] if len(given) == 1 else given
    try:
        low, high = (bound.__index__() for bound in bounds)
    except AttributeError:
        raise TypeError(f"{name}(): the bounds must be integers, got {bounds}") from None
    return low, high


def check_bounds(low: int, high: int, target: dtype) -> None:
    """Refuse bounds that are empty, or beyond the element type."""
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if target.category > dtypes.INTEGRAL:
        return
    smallest, largest = integer_limits(target)
    if not smallest <= low <= largest:
        raise RuntimeError(f"from is out of bounds for {target.name}")
    if not smallest <= high - 1 <= largest:
        raise RuntimeError(f"to - 1 is out of bounds for {target.name}")


def integer_limits(target: dtype) -> tuple[int, int]:
    """The smallest and the largest number of an integer type or ``bool``."""
    if target is dtypes.bool_:
        return 0, 1
    info = dtypes.iinfo(target)
    return info.min, info.max


@expose(method=False, out=False)
@quick_draw
@placed
def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The integers below ``n`` in random order."""
    check_place(device)
    target = dtypes.int64 if dtype is None and out is None else chosen_dtype(dtype, out)
    if target.category <= dtypes.INTEGRAL:
        if n - 1 > integer_limits(target)[1]:
            raise RuntimeError(f"value cannot be converted to type {target.name} without overflow")
    elif n > 2 / dtypes.finfo(target).eps + 1:
        largest = int(2 / dtypes.finfo(target).eps) + 1
        raise RuntimeError(f"n cannot be greater than {largest} for {target.name} type.")
    made = draw(PERMUTATION, as_shape((n,)), target, generator)
    return deliver("randperm", made, out, requires_grad)


@expose(method=False)
@placed
def normal(
    mean: Any, std: Any = 1.0, size: Ints | None = None, *, generator: GeneratorLike = None,
    dtype: DtypeLike = None, device: DeviceLike = None, layout: LayoutLike = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers; mean and deviation are numbers with a ``size``, or tensors."""
    check_place(device)
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        return _normal_of_tensors(mean, std, generator)
    if size is None:
        raise TypeError("normal() of a mean and std that are both numbers needs a size")
    target = chosen_dtype(dtype)
    check_floating("normal_kernel_cpu", target)
    made = draw(NORMAL, as_shape((size,)), target, generator, float(mean), float(std))
    return made.requires_grad_() if requires_grad else made


def _normal_of_tensors(mean: object, std: Any, generator: Generator | None) -> Tensor:
    check_generator(generator)
    target = (mean if isinstance(mean, Tensor) else std).dtype
    check_floating("normal_kernel_cpu", target)
    if not isinstance(std, Tensor) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    operands = [
        cast(v, target) if isinstance(v, Tensor) else constant((), v, target) for v in (mean, std)
    ]
    return bind(NORMAL_AROUND, *operands, generator=generator)  # type: ignore[no-any-return]


def _uniform_where_eval(
    mask: Array, low: float, high: float, *, dtype: dtype, generator: Generator | None
) -> Array:
    made = np.ones(mask.shape, dtype.np)
    count = int(np.count_nonzero(mask))
    made[mask] = _source(generator).uniform((count,), np.dtype(np.float64), float(low), float(high))
    return made


UNIFORM_WHERE = opaque(
    "uniform_where", _uniform_where_eval,
    lambda mask, low, high, *, dtype, generator: tensor_type(mask.shape, dtype), NONDIFFERENTIABLE,
    random=True, upcast=False, emit=RARE, autocast=AutocastPolicy.KEEP,
    doc="Uniform between two numbers, drawn where a mask holds; else 1.",
)  # fmt: skip


# -- by probabilities and weights ---------------------------------------------------------------


def _bernoulli_eval(p: Array, *, dtype: dtype, generator: Generator | None) -> Array:
    return _source(generator).bernoulli(p, p.shape, dtype.np)


BERNOULLI = opaque(
    "bernoulli", _bernoulli_eval, lambda p, *, dtype, generator: tensor_type(p.shape, dtype),
    _no_slope, random=True, upcast=False,
    emit=WORDS, autocast=AutocastPolicy.KEEP,
    doc="1 with a probability for each element.",
)  # fmt: skip


@expose()
def bernoulli(input: Tensor, p: Any = None, *, generator: GeneratorLike = None) -> Tensor:
    """1 with the probability that stands in ``input``, or with ``p`` everywhere; else 0."""
    check_generator(generator)
    if p is not None:
        return draw(CHANCE, input._type.shape, input.dtype, generator, float(p))
    check_floating("bernoulli_tensor_cpu_p_", input.dtype)
    return bind(BERNOULLI, input, dtype=input.dtype, generator=generator)  # type: ignore[no-any-return]


def _multinomial_type(
    probs: TensorType, *, count: int, replacement: bool, generator: Generator | None
) -> TensorType:
    return tensor_type((probs.shape[0], count), dtypes.int64)


def _multinomial_eval(
    probs: Array, *, count: int, replacement: bool, generator: Generator | None
) -> Array:
    return _source(generator).multinomial(probs, count, replacement)


MULTINOMIAL = opaque(
    "multinomial", _multinomial_eval, _multinomial_type, NONDIFFERENTIABLE, random=True,
    upcast=False,
    emit=WORDS, autocast=AutocastPolicy.KEEP,
    doc="Categories by their weights, for each row.",
)  # fmt: skip


@expose()
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn with the weights in the last dimension."""
    check_generator(generator)
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {input.dtype.name}"
        )
    rows = unsqueeze(input, 0) if input.ndim == 1 else input
    drawn: Tensor = bind(
        MULTINOMIAL, rows, count=int(num_samples), replacement=bool(replacement),
        generator=generator,
    )  # fmt: skip
    return squeeze(drawn, 0) if input.ndim == 1 else drawn


@expose(method=False, out=False)
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Counts with the rates in ``input``."""
    check_generator(generator)
    check_floating("poisson_cpu", input.dtype)
    return bind(POISSON, input, generator=generator)  # type: ignore[no-any-return]


@expose(method=False, out=False)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Successes in ``count`` trials of probability ``prob``."""
    check_generator(generator)
    check_floating("binomial_cpu", count.dtype)
    return bind(BINOMIAL, count, prob, generator=generator)  # type: ignore[no-any-return]


def standard_gamma(alpha: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers of scale 1 with the shapes in ``alpha``."""
    check_generator(generator)
    check_floating("_standard_gamma_cpu", alpha.dtype)
    return bind(GAMMA, alpha, generator=generator)  # type: ignore[no-any-return]
