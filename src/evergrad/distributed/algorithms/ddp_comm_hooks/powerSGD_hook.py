"""PowerSGD: gradients of matrices as products of two thin matrices (Vogels et al., 2019).

A matrix M (n, m) is approximated by P Qᵀ with P (n, r) and Q (m, r), from one step of the power
method: P is the mean over the ranks of M Q, made orthonormal, and Q the mean of Mᵀ P. Only P and Q
travel. The error is kept and added to the gradient of the next step. Parameters that would not get
smaller (vectors, small matrices) are averaged as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from evergrad.distributed.buckets import GradBucket, joined, split
from evergrad.distributed.buffers import is_traced
from evergrad.distributed.collectives import all_reduce
from evergrad.distributed.process_group import ReduceOp, checked_group
from evergrad.distributed.work import Future
from evergrad.errors import TraceError


class PowerSGDState:
    """What PowerSGD keeps from step to step: the matrices Q and the errors of every bucket."""

    def __init__(
        self, process_group: object = None, matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000, min_compression_rate: float = 2,
        use_error_feedback: bool = True, warm_start: bool = True,
        orthogonalization_epsilon: float = 0, random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:  # fmt: skip
        if start_powerSGD_iter <= 1 and (use_error_feedback or warm_start):
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is "
                "enabled, because buckets are rebuilt after the first iteration"
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.random_seed = random_seed
        self.iter: int = 0
        self.errors: dict[int, Tensor] = {}
        self.factors: dict[tuple[int, int], Tensor] = {}

    def next_iteration(self, bucket: GradBucket) -> None:
        if bucket.is_last():
            self.iter += 1


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Average a bucket by PowerSGD, after the first ``start_powerSGD_iter`` steps."""
    return _compressed(state, bucket, _approximated)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """The same with the whole bucket as one square matrix, padded with zeros: fewer and smaller
    messages, and a worse approximation."""
    return _compressed(state, bucket, _approximated_as_square)


def _compressed(
    state: PowerSGDState, bucket: GradBucket, approximate: Callable[..., tuple[Tensor, Tensor]]
) -> Future:
    if state.iter < state.start_powerSGD_iter:
        _check_traced(False, "its first steps, which average exactly, are counted")
        state.next_iteration(bucket)
        return allreduce_hook(state.process_group, bucket)
    _check_traced(state.warm_start, "warm_start=False draws other matrices in every step")
    with evergrad.no_grad():
        flat = bucket.buffer()
        if state.use_error_feedback:
            error = _kept(state.errors, bucket.index(), lambda: evergrad.zeros_like(flat))
            error.copy_(flat.add_(error))
        result, represented = approximate(state, bucket, flat)
        if state.use_error_feedback:
            error.sub_(represented)
    state.next_iteration(bucket)
    future = Future()
    future.set_result(result)
    return future


def _check_traced(is_stable: bool, reason: str) -> None:
    """Refuse to trace what a compiled step would not repeat as it is."""
    if is_traced() and not is_stable:
        raise TraceError(
            f"PowerSGD inside a compiled function: {reason}.\n  fix: run the first "
            "start_powerSGD_iter + 1 steps uncompiled, with warm_start=True"
        )


def _kept(held: dict[Any, Tensor], key: object, make: Callable[[], Tensor]) -> Tensor:
    """A tensor that outlives the step, and a trace that is running."""
    if key not in held:
        with using(trace=None):
            held[key] = make()
    return held[key]


def _is_worth(shape: tuple[int, int], state: PowerSGDState) -> bool:
    rows, columns = shape
    rank = min(*shape, state.matrix_approximation_rank)
    return (rows + columns) * rank * state.min_compression_rate < rows * columns


def _approximated(state: PowerSGDState, bucket: GradBucket, flat: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the bucket, exact for small tensors and of low rank for matrices; and what of
    this process's gradient is represented in it."""
    exact: list[Tensor] = []
    for number, gradient in enumerate(bucket.gradients()):
        matrix = gradient.view(gradient.shape[0], -1) if gradient.ndim > 1 else None
        if matrix is None or not _is_worth((matrix.shape[0], matrix.shape[1]), state):
            exact.append(gradient)
            continue
        matrix.copy_(_low_rank(state, (bucket.index(), number), matrix))
    represented = flat.clone()
    if exact:
        flat_exact = joined(exact)
        _mean(flat_exact, state)
        for gradient, part in zip(exact, split(flat_exact, exact), strict=True):
            gradient.copy_(part)
    return flat, represented


def _approximated_as_square(
    state: PowerSGDState, bucket: GradBucket, flat: Tensor
) -> tuple[Tensor, Tensor]:
    side = math.isqrt(max(flat.numel() - 1, 0)) + 1
    padded = evergrad.cat([flat, flat.new_zeros(side * side - flat.numel())]).view(side, side)
    mean = _low_rank(state, (bucket.index(), 0), padded)
    flat.copy_(mean.view(-1)[: flat.numel()])
    return flat, flat


def _low_rank(state: PowerSGDState, key: tuple[int, int], matrix: Tensor) -> Tensor:
    """The mean of a matrix over the ranks, of low rank."""
    rows, columns = matrix.shape
    rank = min(rows, columns, state.matrix_approximation_rank)

    def random_factor() -> Tensor:
        draw = 0 if state.warm_start else state.iter
        seed = state.random_seed + 1000 * key[0] + key[1] + 1_000_003 * draw
        generator = evergrad.Generator().manual_seed(seed)
        found: Tensor = evergrad.randn(columns, rank, generator=generator, dtype=matrix.dtype)
        return found

    factor = _kept(state.factors, key, random_factor) if state.warm_start else random_factor()
    left = matrix @ _orthonormal(factor)
    _mean(left, state)
    left = _orthonormal(left)
    right = matrix.t() @ left
    _mean(right, state)
    factor.copy_(right)
    result: Tensor = left @ right.t()
    return result


def _orthonormal(matrix: Tensor) -> Tensor:
    found: Tensor = evergrad.linalg.qr(matrix)[0]
    return found


def _mean(tensor: Tensor, state: PowerSGDState) -> None:
    all_reduce(tensor, ReduceOp.AVG, checked_group(state.process_group), label="PowerSGD")
