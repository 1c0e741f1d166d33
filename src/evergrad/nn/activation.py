"""Activation functions as layers.

Most hold a few numbers and call the function of the same name; :class:`_Activation` keeps the
numbers in the order in which they are given and shown.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from evergrad.core.tensor import Tensor
from evergrad.nn import functional as F
from evergrad.nn import init
from evergrad.nn.module import TensorModule
from evergrad.nn.parameter import Parameter
from evergrad.ops.rows.creation.constants import empty

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike


class _Activation(TensorModule):
    """A function with settings: ``_fields`` names them, ``_shown`` those its text shows."""

    _fields: tuple[str, ...] = ()
    _shown: tuple[str, ...] | None = None

    def extra_repr(self) -> str:
        shown = self._fields if self._shown is None else self._shown
        words = [f"{name}={getattr(self, name)}" for name in shown if name != "inplace"]
        if "inplace" in self._fields and getattr(self, "inplace", False):
            words.append("inplace=True")
        return ", ".join(words)


class ReLU(_Activation):
    """``max(x, 0)``"""

    _fields = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class RReLU(_Activation):
    """A rectifier whose negative slope is drawn anew in training.

    Args:
        lower, upper: the slope is drawn between them; 1/8 and 1/3 by default. ``eval()``
            uses their mean
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.RReLU(0.1, 0.3).eval()(x)
    tensor([-0.4000, -0.0500,  0.5000,  8.0000])
    """

    inplace: bool
    upper: float
    lower: float

    _fields = ("lower", "upper", "inplace")

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Hardtanh(_Activation):
    """Held between two numbers.

    Args:
        min_val: the least value; default -1.0
        max_val: the greatest value; default 1.0
        inplace: write the result to the input; default ``False``
        min_value, max_value: former names of the bounds

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Hardtanh()(x)
    tensor([-1.0000, -0.2500,  0.5000,  1.0000])
    """

    inplace: bool
    max_val: float
    min_val: float

    _fields = ("min_val", "max_val", "inplace")

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
        min_value: float | None = None, max_value: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        min_val = self._former("min_value", "min_val", min_value, min_val)
        max_val = self._former("max_value", "max_val", max_value, max_val)
        if max_val <= min_val:
            raise AssertionError(f"max_val must be larger than min_val: {max_val} <= {min_val}")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    @staticmethod
    def _former(name: str, present: str, value: float | None, otherwise: float) -> float:
        """A setting given under its former name."""
        if value is None:
            return otherwise
        warnings.warn(
            f"keyword argument `{name}` is deprecated and rename to `{present}`",
            FutureWarning,
            stacklevel=4,  # below this, the constructor and its wrapper
        )
        return value

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """``min(max(x, 0), 6)``

    Args:
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.ReLU6()(x)
    tensor([0.0000, 0.0000, 0.5000, 6.0000])
    """

    _shown = ()

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Sigmoid(_Activation):
    """``1 / (1 + exp(-x))``"""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input.sigmoid()


class Hardsigmoid(_Activation):
    """A piecewise linear sigmoid.

    ``clamp(x / 6 + 1 / 2, 0, 1)``.

    Args:
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Hardsigmoid()(x)
    tensor([0.1667, 0.4583, 0.5833, 1.0000])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Tanh(_Activation):
    """The hyperbolic tangent."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input.tanh()


class SiLU(_Activation):
    """``x * sigmoid(x)``"""

    _fields = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(_Activation):
    """``x * tanh(softplus(x))``

    Args:
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Mish()(x)
    tensor([-0.2525, -0.1299,  0.3752,  8.0000])
    """

    _fields = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class Hardswish(_Activation):
    """A piecewise version of SiLU.

    ``x * clamp(x + 3, 0, 6) / 6``.

    Args:
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Hardswish()(x)
    tensor([-0.3333, -0.1146,  0.2917,  8.0000])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


class ELU(_Activation):
    """``x`` above 0, ``alpha * (exp(x) - 1)`` below."""

    inplace: bool
    alpha: float

    _fields = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Activation):
    """ELU with a slope that is continuous for every ``alpha``.

    Args:
        alpha: scale of the negative part; default 1.0
        inplace: write the result to the input; default ``False``

    Shapes: any; the result has the input's.

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.CELU()(x)
    tensor([-0.8647, -0.2212,  0.5000,  8.0000])
    """

    inplace: bool
    alpha: float

    _fields = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class SELU(_Activation):
    """ELU scaled so that signals normalise themselves.

    Args:
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.SELU()(x)
    tensor([-1.5202, -0.3889,  0.5254,  8.4056])
    """

    _fields = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class GLU(_Activation):
    """Half of the input gated by the sigmoid of the other half.

    Args:
        dim: the dimension that is halved, of even extent 2 n; default -1

    The result has extent n along ``dim``.

    >>> nn.GLU()(eg.tensor([[1.0, 2.0, 0.0, 0.0]]))
    tensor([[0.5000, 1.0000]])
    """

    _fields = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)


class GELU(_Activation):
    """``x`` times the normal distribution function of ``x``."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardshrink(_Activation):
    """Zero for small inputs, the rest unchanged.

    Args:
        lambd: inputs within ``[-lambd, lambd]`` become 0; default 0.5

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Hardshrink()(x)
    tensor([-2.,  0.,  0.,  8.])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Hardshrink):
    """Zero for small inputs, the rest moved towards zero.

    Args:
        lambd: by how much; at least 0, default 0.5

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Softshrink()(x)
    tensor([-1.5000,  0.0000,  0.0000,  7.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Tanhshrink(_Activation):
    """``x - tanh(x)``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Tanhshrink()(x)
    tensor([-1.0360e+00, -5.0813e-03,  3.7883e-02,  7.0000e+00])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class LeakyReLU(_Activation):
    """``x`` above 0, a fraction of it below."""

    inplace: bool
    negative_slope: float

    _fields = ("negative_slope", "inplace")

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class LogSigmoid(_Activation):
    """The logarithm of the sigmoid.

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.LogSigmoid()(x)
    tensor([-2.1269e+00, -8.2594e-01, -4.7408e-01, -3.3541e-04])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softplus(_Activation):
    """A smooth rectifier."""

    threshold: float
    beta: float

    _fields = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class Softsign(_Activation):
    """``x / (1 + |x|)``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Softsign()(x)
    tensor([-0.6667, -0.2000,  0.3333,  0.8889])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class PReLU(_Activation):
    """A rectifier whose negative slope is learned."""

    _fields = ("num_parameters",)

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: DeviceLike = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight: Parameter = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)


class Threshold(_Activation):
    """``x`` above a threshold, a fixed value below.

    Args:
        threshold: inputs greater than it stay
        value: what the others become
        inplace: write the result to the input; default ``False``

    >>> x = eg.tensor([-2.0, -0.25, 0.5, 8.0])
    >>> nn.Threshold(0.1, -1.0)(x)
    tensor([-1.0000, -1.0000,  0.5000,  8.0000])
    """

    inplace: bool
    value: float
    threshold: float

    _fields = ("threshold", "value", "inplace")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)


class Softmax(_Activation):
    """Positive numbers that add up to 1 along a dimension."""

    _fields = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(Softmax):
    """The softmax of the negated input.

    Args:
        dim: the dimension whose elements add up to 1

    >>> nn.Softmin(dim=-1)(eg.tensor([0.0, 0.0, 1.0]))
    tensor([0.4223, 0.4223, 0.1554])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(Softmax):
    """The logarithm of the softmax."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(_Activation):
    """The softmax over the channels of images.

    The input is (N, C, H, W) or (C, H, W).

    >>> nn.Softmax2d()(eg.zeros(2, 1, 1)).flatten()
    tensor([0.5000, 0.5000])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)
