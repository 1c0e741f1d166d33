"""Row-sparse gradients under GradScaler: unscaled, checked and left out like dense ones."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

INDICES = [[1, 2, 2], [11, 0, 1]]


def trained(
    ns: Any, optimizer: str, layer: str, *, overflow: bool, clip: bool = False,
    compiled: bool = False,
) -> tuple[np.ndarray[Any, Any], float]:  # fmt: skip
    """The weights and the scale after five steps, the second of which may overflow."""
    options = {"mode": "sum"} if layer == "EmbeddingBag" else {}
    model = getattr(ns.nn, layer)(12, 4, sparse=True, **options)
    with ns.no_grad():
        model.weight.copy_(ns.arange(48.0).reshape(12, 4) / 100)
    optim = getattr(ns.optim, optimizer)(model.parameters(), lr=0.1)
    scaler = ns.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(indices: Any, factor: Any) -> Any:
        optim.zero_grad()
        loss = (model(indices) ** 2 * factor).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optim)
        if clip:
            ns.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optim)
        scaler.update()
        return loss.detach()

    run = ns.compile(step) if compiled else step
    for number in range(5):
        factor = float("inf") if overflow and number == 1 else 1.0
        run(ns.tensor(INDICES), ns.tensor(factor))
    return model.weight.detach().numpy(), scaler.get_scale()


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
@pytest.mark.parametrize("overflow", [False, True])
@pytest.mark.parametrize("layer", ["Embedding", "EmbeddingBag"])
@pytest.mark.parametrize("optimizer", ["SGD", "SparseAdam", "Adagrad"])
def test_sparse_gradients_are_unscaled(
    torch: ModuleType, optimizer: str, layer: str, overflow: bool
) -> None:
    own = trained(eg, optimizer, layer, overflow=overflow)
    theirs = trained(torch, optimizer, layer, overflow=overflow)
    np.testing.assert_allclose(own[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert own[1] == theirs[1]


# Sparse gradients that outlive the step leave it to Python, which a warning says.
@pytest.mark.filterwarnings("ignore:.*is not one compiled program:RuntimeWarning")
@pytest.mark.parametrize("overflow", [False, True])
def test_compiled_steps_unscale_and_clip_sparse_gradients(overflow: bool) -> None:
    found = [
        trained(eg, "SGD", "Embedding", overflow=overflow, clip=True, compiled=compiled)
        for compiled in (False, True)
    ]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    assert found[0][1] == found[1][1]


def test_a_sum_of_rows_may_overflow() -> None:
    """Of 16-bit gradients in one place: each is finite, and their sum is not."""
    weight = eg.zeros(3, 1, dtype=eg.float16, requires_grad=True)
    at, rows = eg.tensor([[1, 1]]), eg.full((2, 1), 60000.0, dtype=eg.float16)
    weight.grad = eg.sparse_coo_tensor(at, rows, (3, 1))
    optim = eg.optim.SGD([weight], lr=1.0)
    scaler = eg.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(eg.ones(()))
    found = scaler._unscale_grads(optim, allow_fp16=True)
    assert found is not None and bool(found)
