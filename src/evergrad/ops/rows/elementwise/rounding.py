"""Numbers rounded to integers or decimal places, with slope 0, and what rounding leaves over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import elementwise, meet, real_number
from evergrad.core.row_facts import cheap
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.elementwise.basic import ZERO_SLOPE, unary
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.ops.surface.public import TensorFunction


def _rounding(function: Callable[..., object]) -> Callable[..., object]:
    return lambda x, **out: function(x, **out) if x.dtype.kind in "fV" else np.positive(x, **out)


floor: TensorFunction = unary(
    "floor", _rounding(np.floor), ZERO_SLOPE, promote=meet, accepts=real_number,
              emit=cheap(lambda b, x: b.floor(x), floats=True),
              doc="Rounded downwards.")  # fmt: skip
ceil: TensorFunction = unary(
    "ceil", _rounding(np.ceil), ZERO_SLOPE, promote=meet, accepts=real_number,
             emit=cheap(lambda b, x: b.ceil(x), floats=True), doc="Rounded upwards.")  # fmt: skip
trunc: TensorFunction = unary(
    "trunc", _rounding(np.trunc), ZERO_SLOPE, "fix", promote=meet, accepts=real_number,
              emit=cheap(lambda b, x: b.trunc(x), floats=True),
              doc="Rounded towards zero.")  # fmt: skip
frac: TensorFunction = unary(
    "frac", lambda x, **out: np.subtract(x, np.trunc(x), **out), lambda t, y, x: t,
             promote=meet, accepts=lambda d: d.is_floating_point,
             emit=cheap(lambda b, x: b.sub(x, b.trunc(x)), floats=True), eager_loop=True,
             doc="x - trunc(x)")  # fmt: skip
ROUND = elementwise("round", _rounding(np.rint), ZERO_SLOPE, accepts=real_number,
                    emit=cheap(lambda b, x: b.round(x), floats=True),
                    doc="Rounded to the nearest integer, ties to the even one.")  # fmt: skip


@expose(inplace=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded to ``decimals`` places, ties to even."""
    if decimals == 0:
        return bind(ROUND, input)  # type: ignore[no-any-return]
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return bind(ROUND, input * scale) / scale  # type: ignore[no-any-return]
    return bind(ROUND, input / scale) * scale  # type: ignore[no-any-return]
