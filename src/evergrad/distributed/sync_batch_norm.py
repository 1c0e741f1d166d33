"""Batch norm with the statistics of several processes' batches.

Sums, sums of squares about a common centre and counts of each channel are added over the processes,
in one differentiable collective; the gradient is that of the sum of all processes' losses.
"""

from __future__ import annotations

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributed.process_group import checked_group, is_initialized
from evergrad.distributed.traced import apply
from evergrad.extension import provides
from evergrad.nn import functional as F
from evergrad.ops.rows.collective import ALL_REDUCE


@provides("sync_batch_norm")
def sync_batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, momentum: float, eps: float, process_group: object,
) -> Tensor:  # fmt: skip
    """Normalize with the statistics of all processes; running statistics move towards them."""
    group = checked_group(process_group) if is_initialized() else None
    if group is None or group.size() == 1:
        return F.batch_norm(input, running_mean, running_var, weight, bias, True, momentum, eps)
    x = input.float() if input.dtype.itemsize < 4 else input
    dims = (0, *range(2, x.ndim))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    # The mean of this process's batch, moved to that of all: first sums, then squares about it.
    own_count = evergrad.full((1,), float(x.numel() // x.shape[1]), dtype=x.dtype)
    sums = apply(ALL_REDUCE, evergrad.cat([x.sum(dims), own_count]), group, reduction="SUM")
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centred = x - mean.reshape(shape)
    squares = apply(ALL_REDUCE, (centred * centred).sum(dims), group, reduction="SUM")
    variance = squares / count
    result = centred * (variance + eps).rsqrt().reshape(shape)
    if weight is not None:
        result = result * weight.reshape(shape)
    if bias is not None:
        result = result + bias.reshape(shape)
    if running_mean is not None and running_var is not None:
        with using(grad=False):
            running_mean.lerp_(mean.detach().to(running_mean.dtype), momentum)
            unbiased = variance.detach() * (count / (count - 1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    found: Tensor = result.to(input.dtype)
    return found
