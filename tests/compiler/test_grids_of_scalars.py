"""Recurrences over a grid of scalars: hundreds of groups, on each of which nearly all later ones
depend. Scheduling them took minutes."""

from __future__ import annotations

import time

import evergrad as eg

# Seconds of processor time, of which a few are enough.
LIMIT = 30


def soft_dtw(cost: eg.Tensor) -> eg.Tensor:
    count = cost.shape[0]
    far = eg.tensor(1e8)
    best = [[far] * (count + 1) for _ in range(count + 1)]
    best[0][0] = eg.tensor(0.0)
    for i in range(1, count + 1):
        for j in range(1, count + 1):
            before = eg.stack([best[i - 1][j - 1], best[i - 1][j], best[i][j - 1]])
            best[i][j] = cost[i - 1, j - 1] - eg.logsumexp(-before, 0)
    return best[count][count]


def test_soft_dynamic_time_warping() -> None:
    eg.manual_seed(0)
    x, y = eg.randn(8, 4), eg.randn(8, 4)

    def step(x: eg.Tensor) -> tuple[eg.Tensor, eg.Tensor]:
        x = x.detach().requires_grad_()
        loss = soft_dtw(eg.cdist(x, y) ** 2)
        (slope,) = eg.autograd.grad(loss, x)
        return loss.detach(), slope

    expected = step(x)
    compiled = eg.compile(step)
    began = time.process_time()
    for _ in range(3):
        for found, wanted in zip(compiled(x), expected, strict=True):
            assert eg.allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert time.process_time() - began < LIMIT
