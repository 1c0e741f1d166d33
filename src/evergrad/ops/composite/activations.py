"""Activation functions: softmax and its relatives, and curves applied to each element.

Plain functions over rows. Where PyTorch has a form that writes to its argument, ``inplace=True``
and the name with an underscore do so.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.core import dtypes
from evergrad.core.autocast import autocast_policy
from evergrad.core.bind import bind, bind_and_prepare, bind_prepared, cast
from evergrad.core.compound import is_jagged
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.eager.fusion import eager_composite
from evergrad.core.inplace import write_result
from evergrad.core.op import Op, prepared_calls
from evergrad.core.prepared import prepared
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.shapes import normalize_dim
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.errors import DTypeError, ShapeError
from evergrad.ops.rows.creation.constants import zeros_like
from evergrad.ops.rows.elementwise.activations import (
    ELU,
    HARDSHRINK,
    HARDSIGMOID,
    HARDSWISH,
    HARDTANH,
    LEAKY_RELU,
    LOGSIGMOID,
    SOFTPLUS,
    SOFTSHRINK,
)
from evergrad.ops.rows.elementwise.arithmetic import threshold as _threshold
from evergrad.ops.rows.elementwise.basic import relu as _relu
from evergrad.ops.rows.elementwise.basic import sigmoid, where
from evergrad.ops.rows.elementwise.magnitude import abs as absolute
from evergrad.ops.rows.elementwise.trigonometry import tanh
from evergrad.ops.rows.indexing.scatter import scatter
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.views import clone, reshape
from evergrad.ops.rows.random.draws import UNIFORM_WHERE
from evergrad.ops.rows.reduce.extrema import amax, argmax
from evergrad.ops.rows.reduce.softmax import LOG_SOFTMAX, SOFTMAX
from evergrad.ops.rows.special.functions import ndtr
from evergrad.ops.surface.handles import detach
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike, GeneratorLike

Curve = Callable[[Tensor], Tensor]

# So that a standard normal input keeps mean 0 and variance 1.
SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


# -- shared -------------------------------------------------------------------------------------


def require_floating(name: str, input: Tensor, *, takes_complex: bool = False) -> None:
    """Refuse integers, and complex numbers where none are taken, in PyTorch's words."""
    highest = dtypes.COMPLEX if takes_complex else dtypes.FLOATING
    if not dtypes.FLOATING <= input.dtype.category <= highest:
        raise NotImplementedError(f"\"{name}\" not implemented for '{input.dtype.name}'")


def widened(input: Tensor) -> Tensor:
    """16-bit floats as float32, for computations of several steps that should round once."""
    low = input.dtype.is_floating_point and input.itemsize < 4
    return cast(input, dtypes.float32) if low else input


def applied(name: str, curve: Curve, input: Tensor, inplace: bool) -> Tensor:
    """A curve applied to a tensor, as a new one or in place. What the history of an in-place form
    needs is taken from a copy, since the original is about to be overwritten."""
    if not inplace:
        return curve(input)
    recorded = STATE.get().grad and input.requires_grad
    return write_result(name, input, curve(clone(input) if recorded else input))


# -- softmax ------------------------------------------------------------------------------------


def below_largest(input: Tensor, dim: int) -> Tensor:
    """The input minus its largest element along a dimension, so that ``exp`` does not overflow.
    The shift cancels out of every use, so it is no part of the history."""
    return input - amax(detach(input), dim, True)


def _prepared(name: str, input: Tensor, dim: int, target: object) -> tuple[Tensor, int, dtype]:
    if target is not None:
        input = cast(input, as_dtype(target))
    require_floating(name, input)
    return widened(input), normalize_dim(dim, input.ndim), input.dtype


_ALONG_DIM = {SOFTMAX: prepared_calls(), LOG_SOFTMAX: prepared_calls()}


def _along_dim(op: Op, input: Tensor, dim: int, dtype: DtypeLike) -> Tensor:
    """Bind a row along one dimension; a 0-d tensor counts as a vector of one."""
    calls = _ALONG_DIM[op]
    is_plain = dtype is None and dim.__class__ is int
    key = input._type, dim if is_plain else 0
    if is_plain and (found := calls.get(key)) is not None:
        return bind_prepared(found, input)  # type: ignore[no-any-return]
    x, at, target = _prepared(op.name, input, dim, dtype)
    if not x.ndim:
        return cast(bind(op, reshape(x, (1,)), dim=0).reshape(()), target)
    if is_plain and x is input:
        return bind_and_prepare(calls, key, op, x, dim=at)  # type: ignore[no-any-return]
    return cast(bind(op, x, dim=at), target)


@expose("softmax", numpy_names=True)
def _softmax(input: Tensor, dim: int, dtype: DtypeLike = None) -> Tensor:
    """Exponentials along a dimension, divided by their sum."""
    return _along_dim(SOFTMAX, input, dim, dtype)


@expose("log_softmax", numpy_names=True)
def _log_softmax(input: Tensor, dim: int, dtype: DtypeLike = None) -> Tensor:
    """The logarithm of ``softmax``, computed without its rounding."""
    return _along_dim(LOG_SOFTMAX, input, dim, dtype)


def _implied_dim(name: str, input: Tensor, stacklevel: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        UserWarning,
        stacklevel=stacklevel,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DtypeLike = None
) -> Tensor:
    """Exponentials along a dimension, divided by their sum."""
    return _softmax(
        input, _implied_dim("softmax", input, _stacklevel) if dim is None else dim, dtype
    )


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DtypeLike = None
) -> Tensor:
    """The logarithm of ``softmax``, computed without its rounding."""
    return _log_softmax(
        input, _implied_dim("log_softmax", input, _stacklevel) if dim is None else dim, dtype
    )


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DtypeLike = None
) -> Tensor:
    """``softmax`` of the negated input."""
    return _softmax(
        -input, _implied_dim("softmin", input, _stacklevel) if dim is None else dim, dtype
    )


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A random choice, softened by ``tau``; with ``hard`` one-hot in value but not in gradient."""
    noise = -zeros_like(logits).exponential_().log()
    soft = _softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    place = argmax(detach(soft), dim, True)
    chosen = scatter(zeros_like(logits), dim, place, 1.0)
    return chosen - detach(soft) + soft


# -- rectifiers ---------------------------------------------------------------------------------


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(x, 0)``"""
    return input.relu_() if inplace else _relu(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``x`` where it is positive, else ``negative_slope * x``."""
    require_floating("leaky_relu", input)
    return applied("leaky_relu", lambda x: bind(LEAKY_RELU, x, negative_slope), input, inplace)


@expose(out=False)
@autocast_policy(AutocastPolicy.LOWER)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``leaky_relu`` with a learned slope, one or one for each channel."""
    if weight.dtype is not input.dtype:
        raise DTypeError(
            f"prelu: Type promoting not supported. Got {input.dtype.name} and {weight.dtype.name}"
        )
    if weight.ndim > 1:
        raise ShapeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if weight._type.numel != 1:
        if not input.ndim:
            raise ShapeError("Not allow zero-dim input tensor.")
        channels = input._type.shape[1] if input.ndim > 1 else 1
        if channels != weight._type.numel:
            raise ShapeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight._type.numel} and channel size = {channels}."
            )
        weight = reshape(weight, (channels,) + (1,) * (input.ndim - 2))
    elif weight.ndim and not input.ndim:
        weight = reshape(weight, ())
    return _prelu(input, weight)  # type: ignore[no-any-return]


@eager_composite(least=512)
def _prelu(input: Tensor, weight: Tensor) -> Tensor:
    return where(input > 0, input, input * weight)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    inplace: bool = False,
) -> Tensor:  # fmt: skip
    """``leaky_relu`` whose slope is drawn for each element while training, else in the middle.

    Args:
        input: any shape
        lower, upper: the slope is drawn between them; 1/8 and 1/3 by default
        training: draw slopes, else use the mean of the bounds; default ``False``
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> eg.rrelu(x, 0.1, 0.3)
    tensor([-0.2000,  0.5000,  2.0000])
    """
    return drawn_rrelu(input, lower, upper, training, inplace, None)


def drawn_rrelu(
    input: Tensor,
    lower: float,
    upper: float,
    training: bool,
    inplace: bool,
    generator: GeneratorLike,
) -> Tensor:
    """``rrelu`` with slopes of a given generator."""
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    # A slope is drawn only where it is used, as PyTorch does.
    slope = bind(UNIFORM_WHERE, input <= 0, lower, upper, dtype=input.dtype, generator=generator)
    return applied("rrelu", lambda x: where(x > 0, x, x * slope), input, inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Held between two numbers, with slope 0 on them as beyond them."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if input.dtype.category == dtypes.INTEGRAL:
        min_val, max_val = int(min_val), int(max_val)
        if min_val < 0 and input.dtype.np.kind == "u":
            raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return applied("hardtanh", lambda x: bind(HARDTANH, x, min_val, max_val), input, inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``hardtanh`` between 0 and 6."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Straight lines for the sigmoid: ``relu6(x + 3) / 6``."""
    require_floating("hardsigmoid", input)
    return applied("hardsigmoid", lambda x: bind(HARDSIGMOID, x), input, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * relu6(x + 3) / 6``"""
    require_floating("hardswish", input)
    return applied("hardswish", lambda x: bind(HARDSWISH, x), input, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``x`` where it is greater than ``threshold``, else ``value``."""
    return applied("threshold", lambda x: _threshold(x, threshold, value), input, inplace)


@expose()
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where ``|x| <= lambd``, else ``x``."""
    return bind(HARDSHRINK, input, lambd)  # type: ignore[no-any-return]


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` moved towards 0 by ``lambd``, or onto it."""
    require_floating("softshrink", input)
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return bind(SOFTSHRINK, input, lambd)  # type: ignore[no-any-return]


@prepared
def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``"""
    return input - tanh(input)


# -- exponential curves -------------------------------------------------------------------------


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``."""
    require_floating("elu", input)
    if not inplace:
        return bind(ELU, input, alpha, 1.0, 1.0)  # type: ignore[no-any-return]
    return applied("elu", lambda x: bind(ELU, x, alpha, 1.0, 1.0), input, inplace)


@expose(method=False, out=False)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``elu`` whose slope at 0 is 1 for every ``alpha``."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    require_floating("celu", input)
    return applied("celu", lambda x: bind(ELU, x, alpha, alpha, 1.0), input, inplace)


@expose(method=False, out=False)
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """``elu`` scaled so that deep networks keep mean and variance."""
    require_floating("selu", input)
    falling = SELU_ALPHA * SELU_SCALE
    if not inplace:
        return bind(ELU, input, falling, 1.0, SELU_SCALE)  # type: ignore[no-any-return]
    return applied("selu", lambda x: bind(ELU, x, falling, 1.0, SELU_SCALE), input, inplace)


def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, and ``x`` where ``beta * x`` exceeds ``threshold``."""
    require_floating("softplus", input)
    return bind(SOFTPLUS, input, beta, threshold)  # type: ignore[no-any-return]


@prepared
def logsigmoid(input: Tensor) -> Tensor:
    """``log(sigmoid(x))`` without overflow."""
    require_floating("logsigmoid", input)
    return bind(LOGSIGMOID, input)  # type: ignore[no-any-return]


@prepared
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``"""
    require_floating("silu", input, takes_complex=True)
    return applied("silu", _silu, input, inplace)


def _in_single(curve: Curve) -> Curve:
    """A curve of several ops: 16-bit floats are computed in float32 and rounded once.
    Rounded after every op, ``1 + tanh`` cancels to 0 and slopes lose half of their digits."""

    @functools.wraps(curve)
    def applied_in_single(x: Tensor) -> Tensor:
        if x.dtype not in (dtypes.float16, dtypes.bfloat16):
            return curve(x)
        return cast(curve(cast(x, dtypes.float32)), x.dtype)

    return applied_in_single


@eager_composite(least=512, uncast=True)
@_in_single
def _silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


@prepared
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``"""
    require_floating("mish", input)
    return applied("mish", _mish, input, inplace)


@eager_composite(least=512, uncast=True)
@_in_single
def _mish(x: Tensor) -> Tensor:
    return x * tanh(softplus(x))


@prepared
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution's probability of being below ``x``."""
    require_floating("gelu", input)
    if is_jagged(input):
        return input.mapped("gelu", lambda x: gelu(x, approximate))  # type: ignore[attr-defined, no-any-return]
    if approximate == "tanh":
        return _gelu_by_tanh(input)  # type: ignore[no-any-return]
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    return _gelu(input)  # type: ignore[no-any-return]


@eager_composite(least=512, uncast=True)
@_in_single
def _gelu(x: Tensor) -> Tensor:
    return x * ndtr(x)  # type: ignore[no-any-return]


@eager_composite(least=512, uncast=True, aten="gelu")
@_in_single
def _gelu_by_tanh(x: Tensor) -> Tensor:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * ((tanh(inner) + 1) * 0.5)


@prepared
def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``"""
    return input / (absolute(input) + 1)


@prepared
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension times the sigmoid of the second."""
    if not input.ndim:
        raise ShapeError("glu does not support scalars because halving size must be even")
    dim = normalize_dim(dim, input.ndim)
    extent = input._type.shape[dim]
    if extent % 2:
        raise ShapeError(f"Halving dimension must be even, but dimension {dim} is size {extent}")
    return _glu(input, dim=dim, half=extent // 2)  # type: ignore[no-any-return]


@eager_composite(least=512, uncast=True)
def _glu(input: Tensor, *, dim: int, half: int) -> Tensor:
    gate = sigmoid(narrow(input, dim, half, half))
    return narrow(input, dim, 0, half) * gate


# -- forms that write to their argument ---------------------------------------------------------


def relu_(input: Tensor) -> Tensor:
    """``relu`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> eg.relu_(x) is x, x
    (True, tensor([0.0000, 0.5000, 2.0000]))
    """
    return relu(input, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``leaky_relu`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> F.leaky_relu_(x) is x, x
    (True, tensor([-0.0100,  0.5000,  2.0000]))
    """
    return leaky_relu(input, negative_slope, inplace=True)


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """``rrelu`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> eg.rrelu_(x, 0.1, 0.3) is x, x
    (True, tensor([-0.2000,  0.5000,  2.0000]))
    """
    return rrelu(input, lower, upper, training, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``hardtanh`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> F.hardtanh_(x) is x, x
    (True, tensor([-1.0000,  0.5000,  1.0000]))
    """
    return hardtanh(input, min_val, max_val, inplace=True)


@expose(method=False, out=False)
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """``threshold`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> eg.threshold_(x, 1.0, 0.0) is x, x
    (True, tensor([0., 0., 2.]))
    """
    return applied("threshold", lambda x: _threshold(x, threshold, value), input, True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``elu`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> F.elu_(x) is x, x
    (True, tensor([-0.6321,  0.5000,  2.0000]))
    """
    return elu(input, alpha, inplace=True)


@expose(method=False, out=False)
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``celu`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> eg.celu_(x) is x, x
    (True, tensor([-0.6321,  0.5000,  2.0000]))
    """
    return celu(input, alpha, inplace=True)


@expose(method=False, out=False)
def selu_(input: Tensor) -> Tensor:
    """``selu`` in place.

    >>> x = eg.tensor([-1.0, 0.5, 2.0])
    >>> eg.selu_(x) is x, x
    (True, tensor([-1.1113,  0.5254,  2.1014]))
    """
    return selu(input, inplace=True)


expose(method=False, out=False)(relu_)
