"""Starting values for parameters, the same numbers as PyTorch's for the same seed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.types import GeneratorLike
from evergrad.lazy import known_names
from evergrad.linalg import qr
from evergrad.ops.rows.creation.constants import empty
from evergrad.ops.rows.creation.constants import eye as identity
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.random.draws import NORMAL, UNIFORM, draw_like, randperm

_LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "sigmoid",
)  # fmt: skip


def calculate_gain(nonlinearity: str, param: object = None) -> float:
    """How much a nonlinearity shrinks the size of signals, as a factor to make up for it.

    Args:
        nonlinearity: name of a function of :mod:`~evergrad.nn.functional`, such as ``"relu"``
        param: its parameter, the negative slope of ``"leaky_relu"``

    >>> round(nn.init.calculate_gain("relu"), 4)
    1.4142
    """
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: GeneratorLike = None
) -> Tensor:
    """Fill with numbers spread evenly between ``a`` and ``b``.

    Args:
        tensor: the tensor to fill; it is returned
        a, b: the bounds; defaults 0.0 and 1.0
        generator: the source of random numbers; default the global one

    >>> w = nn.init.uniform_(eg.empty(100), -1, 1)
    >>> bool(w.abs().max() <= 1)
    True
    """
    with using(grad=False):
        return tensor.uniform_(a, b, generator=generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: GeneratorLike = None
) -> Tensor:
    """Fill with normally distributed numbers.

    Args:
        tensor: the tensor to fill; it is returned
        mean: default 0.0
        std: standard deviation; default 1.0
        generator: the source of random numbers; default the global one

    >>> nn.init.normal_(eg.empty(2, 3), std=0.02).shape
    evergrad.Size([2, 3])
    """
    with using(grad=False):
        return tensor.normal_(mean, std, generator=generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number.

    Args:
        tensor: the tensor to fill; it is returned
        val: the number

    >>> nn.init.constant_(eg.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    with using(grad=False):
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    Args:
        tensor: the tensor to fill; it is returned

    >>> nn.init.ones_(eg.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    Args:
        tensor: the tensor to fill; it is returned

    >>> nn.init.zeros_(eg.empty(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def _cumulative_normal(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: GeneratorLike = None,
) -> Tensor:  # fmt: skip
    """Fill with normally distributed numbers that lie between ``a`` and ``b``.

    Args:
        tensor: the tensor to fill; it is returned
        mean, std: of the normal distribution; defaults 0.0 and 1.0
        a, b: the bounds; defaults -2.0 and 2.0
        generator: the source of random numbers; default the global one

    >>> w = nn.init.trunc_normal_(eg.empty(100))
    >>> bool(w.abs().max() <= 2)
    True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of "
            "values may be incorrect.",
            stacklevel=2,
        )
    share = _cumulative_normal((b - mean) / std) - _cumulative_normal((a - mean) / std)
    with using(grad=False):
        if share > 0.3:
            _redraw_outside(tensor, mean, std, a, b, generator)
        else:
            _accept_by_density(tensor, mean, std, a, b, generator)
    return tensor


def _redraw_outside(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: GeneratorLike
) -> None:
    """Normal numbers, drawn again where they lie outside."""
    low, high = tensor.new_tensor(a).item(), tensor.new_tensor(b).item()
    tensor.normal_(mean, std, generator=generator)
    while True:
        outside = (tensor < low) | (tensor > high)
        if not outside.any():
            return
        again = draw_like(NORMAL, tensor, tensor.dtype, generator, float(mean), float(std))
        tensor.copy_(where(outside, again, tensor))


def _accept_by_density(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: GeneratorLike
) -> None:
    """Evenly spread numbers, drawn again as often as the density there is low."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2

    def rejected(candidates: Tensor) -> Tensor:
        density = ((candidates - mean) / std) ** 2 * -0.5 - peak
        draws = draw_like(UNIFORM, candidates, candidates.dtype, generator, 0.0, 1.0)
        return draws.log() > density

    tensor.uniform_(a, b, generator=generator)
    pending = rejected(tensor)
    while pending.any():
        candidates = draw_like(UNIFORM, tensor, tensor.dtype, generator, float(a), float(b))
        tensor.copy_(where(pending, candidates, tensor))
        pending = pending & rejected(candidates)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity.

    Args:
        tensor: a matrix

    >>> nn.init.eye_(eg.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with using(grad=False):
        return tensor.copy_(identity(*tensor.shape, dtype=tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it passes its input on.

    Args:
        tensor: (out, in, *kernel) with one, two or three kernel dimensions
        groups: groups of the convolution; default 1

    >>> nn.init.dirac_(eg.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    shape = tensor.shape
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = shape[0] // groups
    center = tuple(n // 2 for n in shape[2:])
    with using(grad=False):
        tensor.zero_()
        for g in range(groups):
            for d in range(min(per_group, shape[1])):
                tensor[(g * per_group + d, d, *center)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs reach each output, and outputs each input."""
    if tensor.ndim < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    shape = tensor.shape
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: GeneratorLike = None) -> Tensor:
    """Glorot's uniform: signals keep their size forward and backward.

    Args:
        tensor: a weight of at least two dimensions, (out, in, ...)
        gain: factor; default 1.0, see :func:`calculate_gain`
        generator: the source of random numbers; default the global one

    >>> w = nn.init.xavier_uniform_(eg.empty(2, 4))
    >>> bool(w.abs().max() <= 1)  # sqrt(6 / (2 + 4))
    True
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: GeneratorLike = None) -> Tensor:
    """Glorot's normal: signals keep their size forward and backward.

    Args:
        tensor: a weight of at least two dimensions, (out, in, ...)
        gain: factor; default 1.0, see :func:`calculate_gain`
        generator: the source of random numbers; default the global one

    >>> w = nn.init.xavier_normal_(eg.empty(100, 100))
    >>> 0.09 < w.std() < 0.11  # sqrt(2 / (100 + 100))
    tensor(True)
    """
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _is_empty(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: GeneratorLike = None,
) -> Tensor:  # fmt: skip
    """He's uniform: signals keep their size through rectifiers.

    Args:
        tensor: a weight of at least two dimensions, (out, in, ...)
        a: negative slope of the rectifier behind it; default 0
        mode: ``"fan_in"`` (default) keeps the size forward, ``"fan_out"`` backward
        nonlinearity: name of the function behind it; default ``"leaky_relu"``
        generator: the source of random numbers; default the global one

    >>> w = nn.init.kaiming_uniform_(eg.empty(8, 6), nonlinearity="relu")
    >>> bool(w.abs().max() <= 1)  # sqrt(6 / 6)
    True
    """
    if _is_empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: GeneratorLike = None,
) -> Tensor:  # fmt: skip
    """He's normal: signals keep their size through rectifiers.

    Args:
        tensor: a weight of at least two dimensions, (out, in, ...)
        a: negative slope of the rectifier behind it; default 0
        mode: ``"fan_in"`` (default) keeps the size forward, ``"fan_out"`` backward
        nonlinearity: name of the function behind it; default ``"leaky_relu"``
        generator: the source of random numbers; default the global one

    >>> w = nn.init.kaiming_normal_(eg.empty(64, 100))
    >>> 0.13 < w.std() < 0.16  # sqrt(2 / 100)
    tensor(True)
    """
    if _is_empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: GeneratorLike = None) -> Tensor:
    """Fill with a (semi-)orthogonal matrix.

    Args:
        tensor: at least two dimensions; those behind the first count as one
        gain: factor; default 1
        generator: the source of random numbers; default the global one

    >>> w = nn.init.orthogonal_(eg.empty(3, 5))
    >>> eg.allclose(w @ w.T, eg.eye(3), atol=1e-5)
    True
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with using(grad=False):
        flat = empty(rows, columns, dtype=tensor.dtype).normal_(0, 1, generator=generator)
        if rows < columns:
            flat = flat.t()
        q, r = qr(flat)
        q = q * r.diagonal().sign()
        if rows < columns:
            q = q.t()
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: GeneratorLike = None
) -> Tensor:
    """Fill a matrix with normal numbers, a part of each column with zeros.

    Args:
        tensor: a matrix
        sparsity: share of zeros in each column
        std: standard deviation of the others; default 0.01
        generator: the source of random numbers; default the global one

    >>> (nn.init.sparse_(eg.empty(4, 3), 0.5) == 0).sum(0)
    tensor([2, 2, 2])
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    count = math.ceil(sparsity * rows)
    with using(grad=False):
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[randperm(rows)[:count], column] = 0
    return tensor


def _deprecated(name: str) -> Callable[..., Tensor]:
    current = globals()[name + "_"]

    def former(*args: object, **kwargs: object) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return current(*args, **kwargs)  # type: ignore[no-any-return]

    former.__name__ = name
    former.__doc__ = f"The former spelling of ``{name}_``."
    return former


uniform: object = _deprecated("uniform")
normal: object = _deprecated("normal")
constant: Callable[..., Tensor] = _deprecated("constant")
eye: object = _deprecated("eye")
dirac: object = _deprecated("dirac")
xavier_uniform: object = _deprecated("xavier_uniform")
xavier_normal: object = _deprecated("xavier_normal")
kaiming_uniform: object = _deprecated("kaiming_uniform")
kaiming_normal: object = _deprecated("kaiming_normal")
orthogonal: object = _deprecated("orthogonal")
sparse: Callable[..., Tensor] = _deprecated("sparse")

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
    "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_",
    "xavier_uniform_", "zeros_",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
