"""Ops that validate values inside compiled functions: the same errors as eager ones, and nothing
written; whole programs of what had to read values before."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import distributions as D
from evergrad import nn
from evergrad.nn import functional as F
from evergrad.ops.rows.check import require

from .check_cases import CASES, Step, floats, ints


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
        return
    assert found.dtype is expected.dtype
    assert found.shape == expected.shape
    a, b = found.detach().numpy(), expected.detach().numpy()
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def outcome(step: Step, args: tuple[Any, ...]) -> Any:
    try:
        return step(*args)
    except Exception as error:
        return error


# -- what holds of all --------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_compiled_as_eager(name: str) -> None:
    found = CASES[name]()
    compiled = eg.compile(found.step)
    for number, args in enumerate([*found.good, *found.good]):
        eg.manual_seed(number)
        expected = found.step(*args)
        after = eg.rand(2)
        eg.manual_seed(number)
        assert_same(compiled(*args), expected)
        assert_same(eg.rand(2), after)  # as many random numbers were drawn


@pytest.mark.parametrize("name", [name for name, make in CASES.items() if make().bad])
def test_errors_are_those_of_eager_mode(name: str) -> None:
    found = CASES[name]()
    count = eg.zeros(3)

    def step(*args: Any) -> Any:
        count.add_(1)
        return found.step(*args)

    compiled = eg.compile(step)
    compiled(*found.good[0])
    assert count[0] == 1
    for args in found.bad:
        eg.manual_seed(5)
        expected = outcome(found.step, args)
        assert isinstance(expected, Exception), "the arguments are not refused"
        eg.manual_seed(5)
        before = eg.get_rng_state()
        error = outcome(compiled, args)
        assert type(error) is type(expected), error
        assert str(error) == str(expected)
        assert "check_cases.py" in "\n".join(getattr(error, "__notes__", [])), "no location"
        assert count.tolist() == [1, 1, 1], "a failed call wrote"
        assert eg.equal(eg.get_rng_state(), before)
    compiled(*found.good[0])
    assert count[0] == 2


@pytest.mark.parametrize("name", ["cross_entropy", "ctc", "bags_sum", "bags_max", "masked_scatter",
                                  "mask_of_rows", "distribution_normal", "distribution_gamma",
                                  "distribution_mvn_tril", "repeat_interleave"])  # fmt: skip
def test_gradients_as_eager(name: str) -> None:
    """By a float argument, and by a captured leaf."""
    found = CASES[name]()
    scale = eg.tensor(1.5).requires_grad_()

    def loss(*args: Any) -> Any:
        first, *others = args
        given = (first * scale if first.is_floating_point() else first, *others)
        result = found.step(*given)
        parts = result if isinstance(result, tuple | list) else [result]
        return sum((p * p).sum() * scale for p in parts if p.is_floating_point())

    def grads(step: Step, args: tuple[Any, ...]) -> list[Any]:
        eg.manual_seed(3)
        leaf = args[0].clone()
        wanted = [scale]
        if leaf.is_floating_point():
            wanted.append(leaf.requires_grad_())
        return list(eg.autograd.grad(step(leaf, *args[1:]), wanted))

    compiled = eg.compile(loss)
    for args in found.good:
        assert_same(grads(compiled, args), grads(loss, args))


def test_a_result_of_another_length_is_computed_eagerly() -> None:
    compiled = eg.compile(lambda t: eg.bincount(t, minlength=3))
    assert compiled(eg.tensor([0, 2, 2])).tolist() == [1, 0, 2]
    assert compiled.last_call.kind == "whole"
    for _ in range(2):
        assert compiled(eg.tensor([0, 5, 5])).tolist() == [1, 0, 0, 0, 0, 2]
        assert "the value 5 needs a result longer than minlength=3" in compiled.last_call.reason
        assert compiled(eg.tensor([0, 1, 1])).tolist() == [1, 2, 0]
        assert compiled.last_call.kind == "whole"


def test_a_training_step_whose_check_fails_leaves_parameters_and_state() -> None:
    eg.manual_seed(0)
    model = nn.Linear(4, 5)
    opt = eg.optim.Adam(model.parameters())

    @eg.compile
    def step(x: Any, t: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), t)
        loss.backward()
        opt.step()
        return loss.detach()

    x, t = floats(6, 4), ints(0, 5, 6)
    step(x, t)

    def state() -> list[Any]:
        kept = [v for s in opt.state.values() for v in s.values()]
        return [v.detach().numpy().tobytes() for v in (*model.parameters(), *kept)]

    before = state()
    error = outcome(step, (x, t.clone().fill_(11)))
    assert isinstance(error, IndexError)
    assert str(error).startswith("Target 11 is out of bounds. The input has 5 classes, 0 to 4; ")
    assert state() == before
    step(x, t)
    assert state() != before


def test_tensors_in_messages_are_shown_as_in_eager_mode() -> None:
    weight = nn.Parameter(eg.tensor([[1.0, float("nan")], [0.5, 2.0]]))
    closed = eg.tensor([3.0, 4.0])

    def step(x: Any, n: Any) -> Any:
        y = (x * weight).exp()
        require(y == y, ValueError, lambda: f"{x} {weight} {y} {closed} {n} {n:.1f} {n.long()!r}")
        return y

    args = (eg.tensor([1.0, 2.0]), eg.tensor(2.25))
    expected, found = outcome(step, args), outcome(eg.compile(step), args)
    assert isinstance(expected, ValueError)
    assert str(found) == str(expected)


def test_checks_inside_transforms() -> None:
    def loss(x: Any, t: Any) -> Any:
        return F.cross_entropy(x, t)

    x, t = floats(3, 6, 5), ints(0, 5, 3, 6)
    expected = eg.stack([loss(a, b) for a, b in zip(x, t, strict=True)])
    assert_same(eg.vmap(loss)(x, t), expected)
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        eg.vmap(loss)(x, t.clone().fill_(9))
    assert_same(eg.compile(eg.vmap(loss))(x, t), expected)
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        eg.compile(eg.vmap(loss))(x, t.clone().fill_(9))
    grad = eg.func.grad(loss)
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        eg.compile(grad)(x[0], t[0].clone().fill_(9))


def test_equal_checks_are_one() -> None:
    def step(x: Any) -> Any:
        a, b = D.Normal(x, 1.0), D.Normal(x, 1.0)
        return a.log_prob(x) + b.log_prob(x)

    x = floats(4)
    compiled = eg.compile(step)
    compiled(x)
    *_, optimized = str(compiled.explain(x)).split("graph(")
    assert optimized.count("= check(") == 1  # that x is a number; the scale is a constant


def _add_to(count: Any, x: Any) -> None:
    count.add_(1)


def _write_a_part(count: Any, x: Any) -> None:
    count[1:] = x.sum()


def _write_a_view(count: Any, x: Any) -> None:
    count.view(3, 1).mul_(2)


def _replace(count: Any, x: Any) -> None:
    count.data = count * 2


def _write_twice(count: Any, x: Any) -> None:
    count.add_(1)
    count.mul_(x.mean())


def _differentiate(count: Any, x: Any) -> None:
    weight = count.detach().requires_grad_()
    (weight * x[:3]).sum().backward()
    count.add_(weight.grad)


@pytest.mark.parametrize(
    "write", [_add_to, _write_a_part, _write_a_view, _replace, _write_twice, _differentiate]
)
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.filterwarnings("ignore:.*is not one compiled program:RuntimeWarning")
def test_a_segment_that_fails_leaves_no_symbolic_value(write: Any, reads: bool) -> None:
    """Python runs the step, whose recorded operations fail when they are computed."""
    count, calls = eg.ones(3), queue.SimpleQueue[int]()

    def step(x: Any) -> Any:
        calls.put(1)
        write(count, x)
        density = D.Normal(0.0, x).log_prob(x)
        return density.numpy() if reads else density

    compiled = eg.compile(step)
    good, bad = eg.full((4,), 2.0), eg.full((4,), -1.0)
    for _ in range(3):
        before, version = count.tolist(), count._version
        with pytest.raises(ValueError, match="scale"):
            compiled(bad)
        assert count.tolist() == before and count._version >= version
        assert count.grad is None
        expected = count.clone()
        write(expected, good)
        compiled(good)
        assert count.tolist() == expected.tolist()
