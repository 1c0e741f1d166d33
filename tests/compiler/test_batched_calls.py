"""Many calls in one: a loop gives what they give, changes what they change, fails as they do."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.compiler.calls import batched_calls
from evergrad.memory.ledger import LEDGER

from .steps import arrays


class Training:
    """A model with an optimizer and a step; two made alike are equal."""

    def __init__(
        self, layers: Callable[[], list[Any]], optimizer: str = "SGD", **options: Any
    ) -> None:
        eg.manual_seed(7)
        self.layers = nn.Sequential(*layers()).double()
        kind = getattr(eg.optim, optimizer)
        self.optimizer = kind(self.layers.parameters(), lr=0.05, **options)
        self.step = eg.compile(self.plain_step)

    def plain_step(self, x: Any) -> Any:
        loss = self.layers(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def state(self) -> list[Any]:
        held = [self.layers.state_dict(), self.optimizer.state_dict()["state"]]
        return arrays([held, eg.get_rng_state()])


def perceptron() -> list[Any]:
    return [nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)]


def with_dropout() -> list[Any]:
    return [nn.Linear(3, 8), nn.Dropout(0.4), nn.Linear(8, 2)]


def with_batch_norm() -> list[Any]:
    return [nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)]


def rows(count: int, *shape: int) -> Any:
    found = np.random.default_rng(3).standard_normal((count, *(shape or (4, 3))))
    return eg.from_numpy(found).clone()


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that native loops have begun with, and of those they had."""
    found: list[int] = []
    run = batched_calls._Loop.run

    def noting(self: Any, *given: Any) -> None:
        found.append(self.count - self.first)
        run(self, *given)

    monkeypatch.setattr(batched_calls._Loop, "run", noting)
    return found


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("layers", [perceptron, with_dropout, with_batch_norm])
@pytest.mark.parametrize("optimizer", [
    ("SGD", {}), ("SGD", {"momentum": 0.9}), ("AdamW", {}), ("RMSprop", {})
], ids=lambda o: o[0])  # fmt: skip
def test_a_loop_is_its_calls_to_the_bit(
    layers: Any, optimizer: Any, threads: int, native: list[int]
) -> None:
    eg.set_num_threads(threads)
    name, options = optimizer
    xs = rows(20)
    called = Training(layers, name, **options)
    expected = [called.step(x) for x in xs]
    after = called.state()
    looped = Training(layers, name, **options)
    losses = eg.cat([looped.step.loop(part) for part in (xs[:7], xs[7:8], xs[8:])])
    np.testing.assert_array_equal(losses.numpy(), eg.stack(expected).numpy())
    for ours, theirs in zip(looped.state(), after, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert native[0] < 7 and native[1:] == [1, 12], "later loops are native from their first row"


def test_team_and_large_steps() -> None:
    x = rows(5, 256, 64)

    def train(threads: int) -> list[Any]:
        eg.set_num_threads(threads)
        found = Training(lambda: [nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)], "AdamW")
        losses = found.step.loop(x)
        assert next(iter(found.step.fast_paths)).program.threads > 1
        return [losses.numpy(), *found.state()]

    one, two = train(1), train(2)
    for ours, theirs in zip(two, one, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# -- arguments and results ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (4, 3), (40, 30)], ids=str)
def test_results_of_any_size_are_stacked(shape: tuple[int, ...], native: list[int]) -> None:
    @eg.compile
    def f(x: Any, y: Any) -> Any:
        return x * 2 + y, (x > y), (x - y).sum()

    xs, ys = rows(9, *shape, 1)[..., 0], rows(9, *shape, 2)[..., 1]
    for _ in range(2):
        both, above, sums = f.loop(xs, ys)
        np.testing.assert_array_equal(both.numpy(), (xs * 2 + ys).numpy())
        np.testing.assert_array_equal(above.numpy(), (xs > ys).numpy())
        expected = [(x - y).sum().item() for x, y in zip(xs, ys, strict=True)]
        np.testing.assert_allclose(sums.numpy(), expected, rtol=1e-12, atol=1e-12)
    assert native[-1] == 9


def test_one_result_is_one_tensor(native: list[int]) -> None:
    f = eg.compile(lambda x: x.exp())
    xs = rows(6, 5)
    for _ in range(2):
        found = f.loop(xs)
        assert isinstance(found, eg.Tensor)
        np.testing.assert_allclose(found.numpy(), np.exp(xs.numpy()), rtol=1e-14)
    assert native[-1] == 6


def test_what_is_the_same_for_all_rows_is_expanded(native: list[int]) -> None:
    f = eg.compile(lambda x, w: x @ w)
    xs, w = rows(8, 4, 3), rows(3, 2)
    for _ in range(2):
        found = f.loop(xs, w.expand(8, 3, 2))
        np.testing.assert_allclose(found.numpy(), (xs @ w).numpy(), rtol=1e-13)
    assert native[-1] == 8


def test_rows_that_do_not_lie_in_order(native: list[int]) -> None:
    f = eg.compile(lambda x: x * 3)
    xs = rows(4, 6, 5)
    views = (xs.transpose(1, 2), xs.transpose(0, 2), xs[::2], xs.flip(0), xs[:, ::2])
    for view in (*views, *views):
        np.testing.assert_array_equal(f.loop(view).numpy(), (view * 3).numpy())
    assert len(native) >= len(views)


def test_other_results_and_numbers_take_the_long_way(native: list[int]) -> None:
    f = eg.compile(lambda x, scale: {"twice": x * scale, "given": x})
    xs = rows(5, 3)
    found = f.loop(xs, 2.0)
    np.testing.assert_array_equal(found["twice"].numpy(), (xs * 2).numpy())
    np.testing.assert_array_equal(found["given"].numpy(), xs.numpy())
    assert not native


def test_a_loop_inside_of_a_larger_program() -> None:
    inner = eg.compile(lambda x: x.sin())
    outer = eg.compile(lambda xs: inner.loop(xs).sum())
    xs = rows(3, 4)
    for _ in range(2):
        np.testing.assert_allclose(outer(xs).item(), np.sin(xs.numpy()).sum(), rtol=1e-13)


@pytest.mark.parametrize(("given", "message"), [
    ((), "at least one tensor"), ((2.0,), "at least one tensor"),
    ((eg.tensor(1.0),), "first dimension"), ((eg.ones(3), eg.ones(4)), r"\[3, 4\]"),
    ((eg.ones(0, 2),), "one at least"),
])  # fmt: skip
def test_bad_rows_are_reported(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        eg.compile(lambda *x: x[0] * 2).loop(*given)


def test_results_that_are_no_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match="return tensors only from the step"):
        eg.compile(lambda x: (x * 2, "name")).loop(eg.ones(3))


# -- what changes around it ---------------------------------------------------------------------


def test_options_are_read_when_a_loop_begins() -> None:
    xs = rows(12)
    called, looped = Training(perceptron), Training(perceptron)
    for rate, part in ((0.05, xs[:4]), (0.2, xs[4:8]), (0.01, xs[8:])):
        for training in (called, looped):
            training.optimizer.param_groups[0]["lr"] = rate
        expected = [called.step(x).item() for x in part]
        assert looped.step.loop(part).tolist() == expected


def test_gradients_that_were_there_are_gone_as_after_calls() -> None:
    training, xs = Training(perceptron), rows(6)
    parameters = list(training.layers.parameters())

    @eg.compile
    def step(x: Any) -> Any:
        training.optimizer.zero_grad()
        return training.plain_step(x)

    for _ in range(3):
        training.layers(xs[0]).sum().backward()
        assert step.loop(xs).shape == (6,)
        assert all(p.grad is None for p in parameters)


def test_what_was_saved_before_a_loop_is_not_used_after_it() -> None:
    training = Training(perceptron)
    xs = rows(6)
    training.step.loop(xs)
    weight = training.layers[0].weight
    out = (weight * weight).sum()
    training.step.loop(xs)
    with pytest.raises(RuntimeError, match=r"in-place|written|version"):
        out.backward()


def test_memory_does_not_grow() -> None:
    training, xs = Training(perceptron, "AdamW"), rows(50)
    training.step.loop(xs)
    live = None
    for _ in range(20):
        losses = training.step.loop(xs)
        live = live or LEDGER.live
        assert LEDGER.live == live
    assert losses.shape == (50,)


def test_models_in_threads_train_as_alone() -> None:
    xs = rows(300)
    alone = Training(perceptron, "AdamW")
    expected = [alone.step.loop(xs).numpy() for _ in range(5)]
    found: dict[int, list[Any]] = {}

    def train(number: int) -> None:
        training = trainings[number]
        found[number] = [training.step.loop(xs).numpy() for _ in range(5)]

    trainings = [Training(perceptron, "AdamW") for _ in range(3)]
    threads = [threading.Thread(target=train, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        np.testing.assert_array_equal(np.stack(found[number]), np.stack(expected))


# -- failures -----------------------------------------------------------------------------------


class Lookup(Training):
    """A step that fails where an index is out of range."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__(lambda: [nn.Embedding(5, 4), nn.Dropout(dropout), nn.Linear(4, 1)])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_row_that_fails_ends_the_loop(dropout: float) -> None:
    indices = eg.from_numpy(np.random.default_rng(0).integers(0, 5, (10, 6)))
    wrong = indices.clone()
    wrong[4, 2] = 9
    called = Lookup(dropout)
    for row in (*indices, *wrong[:4]):
        called.step(row)
    with pytest.raises(IndexError):
        called.step(wrong[4])
    after = called.state()
    looped = Lookup(dropout)
    looped.step.loop(indices)
    with pytest.raises(IndexError) as caught:
        looped.step.loop(wrong)
    assert "in row 4 of a loop; the rows before it are done" in caught.value.__notes__
    for ours, theirs in zip(looped.state(), after, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_interrupt_comes_between_rows() -> None:
    training, xs = Training(perceptron), rows(16).repeat(20_000, 1, 1)
    training.step.loop(xs[:8])
    weights = training.layers[0].weight
    version, before = weights._version, weights.detach().clone()

    def interrupt(*ignored: Any) -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                training.step.loop(xs)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    done = weights._version - version
    assert done > 0 and not eg.equal(weights, before)
    again = Training(perceptron)
    again.step.loop(xs[:8])
    for left in range(done, 0, -len(xs)):
        again.step.loop(xs[: min(left, len(xs))])
    np.testing.assert_array_equal(again.layers[0].weight.detach(), weights.detach())
