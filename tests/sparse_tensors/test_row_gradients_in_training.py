"""Row-sparse gradients through hooks, clipping, accumulation and optimizers: as in PyTorch, and
with time and memory of the rows that are touched."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import memory, nn

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")

OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda ns, p: ns.optim.SGD(p, lr=0.1),
    "momentum": lambda ns, p: ns.optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda ns, p: ns.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adagrad": lambda ns, p: ns.optim.Adagrad(p, lr=0.1),
    "SparseAdam": lambda ns, p: ns.optim.SparseAdam(p, lr=0.1),
}
CLIPS: dict[str, Any] = {
    "norm": lambda ns, p: ns.nn.utils.clip_grad_norm_(p, 0.5),
    "largest": lambda ns, p: ns.nn.utils.clip_grad_norm_(p, 0.5, float("inf")),
    "none": lambda ns, p: None,
}
INDICES = np.array([[1, 3, 3], [0, 1, 7]])


def trained(ns: Any, optimizer: str, clip: str, bag: bool, hook: bool, passes: int) -> Any:
    """The table after a few steps, some rows in several of them and twice in one."""
    layer = (ns.nn.EmbeddingBag if bag else ns.nn.Embedding)(10, 4, sparse=True, dtype=ns.float64)
    start = np.random.default_rng(0).standard_normal((10, 4))
    with ns.no_grad():
        layer.weight.copy_(ns.tensor(start))
    if hook:
        layer.weight.register_hook(lambda g: g * 0.5)
    made = OPTIMIZERS[optimizer](ns, list(layer.parameters()))
    for number in range(4):
        made.zero_grad()
        for k in range(passes):
            out = layer(ns.tensor((INDICES + number + k) % 10))
            (out**2).sum().backward()
        assert layer.weight.grad.is_sparse
        CLIPS[clip](ns, list(layer.parameters()))
        made.step()
    return layer.weight.detach().numpy()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("bag", [False, True])
def test_training_as_in_torch(optimizer: str, clip: str, bag: bool, torch: ModuleType) -> None:
    for hook, passes in [(False, 1), (True, 1), (True, 2)]:
        expected = _reference(torch, optimizer, clip, bag, hook, passes)
        found = trained(eg, optimizer, clip, bag, hook, passes)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def _reference(torch: ModuleType, optimizer: str, clip: str, bag: bool, hook: bool,
               passes: int) -> Any:  # fmt: skip
    """PyTorch's, with its gradient coalesced where its own clipping needs that."""
    if clip == "none":
        return trained(torch, optimizer, clip, bag, hook, passes)
    original = CLIPS[clip]

    def coalesced(ns: Any, parameters: Any) -> None:
        if ns is torch:
            for p in parameters:
                p.grad = p.grad.coalesce()
            limit, order = 0.5, float("inf") if clip == "largest" else 2.0
            norm = torch.linalg.vector_norm(parameters[0].grad.values(), order)
            parameters[0].grad *= (limit / (norm + 1e-6)).clamp(max=1.0)
        else:
            original(ns, parameters)

    CLIPS[clip] = coalesced
    try:
        return trained(torch, optimizer, clip, bag, hook, passes)
    finally:
        CLIPS[clip] = original


def test_clipping_by_value_clamps_the_sum_of_a_place() -> None:
    layer = nn.Embedding(5, 2, sparse=True)
    layer(eg.tensor([1, 1, 3])).sum().backward()
    nn.utils.clip_grad_value_(layer.parameters(), 1.5)
    assert layer.weight.grad is not None and layer.weight.grad.is_sparse
    assert layer.weight.grad.to_dense()[:, 0].tolist() == [0, 1.5, 0, 1, 0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("clip", ["norm", "none"])
def test_memory_follows_the_rows_touched(optimizer: str, clip: str) -> None:
    """A step on 1,000 rows of a table of 100,000 x 64 holds a few times those rows; the table has
    25.6 MB. (A million rows: bench/sparse_rows.py.)"""
    layer = nn.Embedding(100_000, 64, sparse=True)
    made = OPTIMIZERS[optimizer](eg, list(layer.parameters()))
    rows = eg.randint(0, 100_000, (1000,))

    def step() -> None:
        made.zero_grad()
        (layer(rows) ** 2).sum().backward()
        CLIPS[clip](eg, list(layer.parameters()))
        made.step()

    step()  # makes the optimizer's state
    with memory.track() as tracked:
        step()
    assert tracked.peak - tracked.live_at_start < 16 * 1000 * 64 * 4


# Hook, clipping and accumulation of a compiled step.
FORMS = {
    "plain": (False, "none", 1),
    "hook": (True, "none", 1),
    "clipped by norm": (False, "norm", 1),
    "clipped by the largest": (False, "largest", 1),
    "clipped by value": (False, "value", 1),
    "accumulated": (False, "none", 2),
    "all": (True, "norm", 2),
}


def step_on_rows(form: str, optimizer: str, rows: int) -> tuple[Any, Any]:
    """A step on 40 rows of a table, some twice, and the table."""
    hook, clip, passes = FORMS[form]
    layer = nn.Embedding(rows, 8, sparse=True)
    with eg.no_grad():
        layer.weight.copy_(eg.arange(rows * 8.0).reshape(rows, 8).sin())
    if hook:
        layer.weight.register_hook(lambda g: g * 0.5)
    made = OPTIMIZERS[optimizer](eg, list(layer.parameters()))

    def step(numbers: eg.Tensor) -> None:
        for k in range(passes):
            (layer(numbers + k) ** 2).sum().backward()
        if clip == "value":
            nn.utils.clip_grad_value_(layer.parameters(), 0.7)
        else:
            CLIPS[clip](eg, list(layer.parameters()))
        made.step()
        made.zero_grad()

    return step, layer.weight


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad", "SparseAdam"])
def test_compiled_steps_follow_the_rows_touched(optimizer: str, form: str) -> None:
    """They agree with eager ones; their plan does not grow with the table. That of a clipped step
    had the dense gradient."""
    numbers = eg.tensor(np.random.default_rng(0).integers(0, 30, 40))
    eager, expected = step_on_rows(form, optimizer, 400)
    step, found = step_on_rows(form, optimizer, 400)
    compiled = eg.compile(step)
    for k in range(3):
        eager(numbers + k)
        compiled(numbers + k)
    eg.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    plans = []
    for rows in (400, 40_000):
        step, _ = step_on_rows(form, optimizer, rows)
        compiled = eg.compile(step)
        compiled(numbers)  # makes the optimizer's state
        plans.append(int(compiled.plan(numbers).peak))
    assert plans[0] == plans[1]


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad", "SparseAdam"])
def test_a_compiled_step_that_leaves_its_gradient_follows_the_rows(optimizer: str) -> None:
    """With ``zero_grad`` at its beginning the gradient stays, sparse as in eager code: nothing of
    the table's size is copied."""
    losses, tables = [], []
    for wrap in (lambda step: step, eg.compile):
        layer = nn.Embedding(50_000, 64, sparse=True, _weight=eg.ones(50_000, 64))
        made = OPTIMIZERS[optimizer](eg, list(layer.parameters()))

        def step(rows: eg.Tensor, layer: Any = layer, made: Any = made) -> eg.Tensor:
            made.zero_grad()
            loss = (layer(rows) ** 2).mean()
            loss.backward()
            made.step()
            return loss.detach()

        run: Any = wrap(step)
        losses.append([])
        for number in range(6):
            rows = eg.tensor(np.random.default_rng(number % 2).integers(0, 50_000, 100))
            with memory.track() as tracked:
                losses[-1].append(run(rows).item())
        assert tracked.peak - tracked.live_at_start < 1 << 20  # the table has 12.8 MB
        assert layer.weight.grad is not None and layer.weight.grad.is_sparse
        tables.append(layer.weight.detach())
    assert run.last_call.kind == "whole"
    eg.testing.assert_close(losses[1], losses[0], rtol=1e-6, atol=0)
    eg.testing.assert_close(tables[1], tables[0], rtol=1e-6, atol=1e-7)


def steps_of_changing_lookups(ns: Any, optimizer: str, clip: str, form: str) -> Any:
    """The table after steps that look up different counts of rows, none in one of them. Of the
    steps all are compiled, none, or every second one."""
    layer = ns.nn.Embedding(12, 4, sparse=True, dtype=ns.float64)
    with ns.no_grad():
        layer.weight.copy_(ns.tensor(np.random.default_rng(0).standard_normal((12, 4))))
    made = OPTIMIZERS[optimizer](ns, list(layer.parameters()))

    def step(numbers: Any) -> None:
        (layer(numbers) ** 2).sum().backward()
        CLIPS[clip](ns, list(layer.parameters()))
        made.step()
        made.zero_grad()

    compiled = step if form == "eager" else eg.compile(step)
    for number, rows in enumerate([[1, 3, 3], [], [[0, 1], [3, 7]], [1, 3, 3], [], [5]]):
        run = step if form == "mixed" and number % 2 else compiled
        run(ns.tensor(np.array(rows, np.int64)))
    return layer.weight.detach().numpy()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("clip", ["largest", "none"])
def test_steps_of_changing_lookups(optimizer: str, clip: str, torch: ModuleType) -> None:
    """Compiled steps keep the momentum dense; eager ones go on with either, to the same end."""
    expected = steps_of_changing_lookups(eg, optimizer, clip, "eager")
    if clip == "none":
        reference = steps_of_changing_lookups(torch, optimizer, clip, "eager")
        np.testing.assert_allclose(expected, reference, atol=1e-9)
    for form in ("compiled", "mixed"):
        found = steps_of_changing_lookups(eg, optimizer, clip, form)
        np.testing.assert_allclose(found, expected, atol=1e-9)
