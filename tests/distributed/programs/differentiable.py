"""Checks of collectives that are differentiated through: the sum of all ranks' losses counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import evergrad as eg
import evergrad.distributed as dist
from evergrad import nn
from evergrad.distributed import ReduceOp
from evergrad.distributed import nn as dnn
from evergrad.distributed.evaluate import _in_flight

from .collectives import rank, refused, size

CASES: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda x: dnn.all_reduce(x),
    "average": lambda x: dnn.all_reduce(x, ReduceOp.AVG),
    "max": lambda x: dnn.all_reduce(x, ReduceOp.MAX),
    "min": lambda x: dnn.all_reduce(x, ReduceOp.MIN),
    "broadcast": lambda x: dnn.broadcast(x, size() - 1),
    "reduce": lambda x: dnn.reduce(x, 1),
    "all_gather": lambda x: eg.cat(dnn.all_gather(x)),
    "gather": lambda x: eg.cat(dnn.gather(x, 1)),
    "scatter": lambda x: dnn.scatter([x * (i + 1) for i in range(size())], 1),
    "reduce_scatter": lambda x: dnn.reduce_scatter(x, [x * (i + 1) for i in range(size())]),
    "all_to_all": lambda x: eg.cat(dnn.all_to_all([x] * size(),
                                                  [x * (i + 1) for i in range(size())])),
    "all_to_all_single": lambda x: dnn.all_to_all_single(x.repeat(size(), 1), x.repeat(size(), 1)),
}  # fmt: skip


def inputs() -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal((2, 3)) for _ in range(size())]


def loss_of(case: Callable[[Any], Any], x: Any) -> Any:
    """A loss that differs between the ranks."""
    y = case(x)
    weights = eg.arange(1.0, y.numel() + 1, dtype=eg.float64).reshape(y.shape)
    return (y.sin() * weights).sum() * (rank() + 1)


def total_loss(case: Callable[[Any], Any], x: Any) -> float:
    with eg.no_grad():
        own = loss_of(case, x)
    dist.all_reduce(own)
    return float(own.item())


def gradient(case: Callable[[Any], Any], array: Any) -> Any:
    x = eg.tensor(array, requires_grad=True)
    loss_of(case, x).backward()
    return x.grad.numpy()


def check_gradients_by_differences() -> None:
    for name, case in CASES.items():
        own = inputs()[rank()]
        found = gradient(case, own)
        for owner in range(size()):
            for index in ((0, 0), (1, 2)):
                values = []
                for step in (1e-6, -1e-6):
                    moved = own.copy()
                    if rank() == owner:
                        moved[index] += step
                    values.append(total_loss(case, eg.tensor(moved)))
                expected = (values[0] - values[1]) / 2e-6
                if rank() == owner:
                    assert abs(found[index] - expected) < 1e-6, (name, index, found, expected)


def check_forward_mode_is_the_transpose() -> None:
    """The sum over ranks of <g, J t> is that of <Jᵀ g, t>."""
    random = np.random.default_rng(rank() + 10)
    for name, case in CASES.items():
        x = eg.tensor(inputs()[rank()], requires_grad=True)
        t = eg.tensor(random.standard_normal((2, 3)))
        _, moved = eg.func.jvp(case, (x.detach(),), (t,))
        y = case(x)
        g = eg.tensor(random.standard_normal(tuple(y.shape)))
        (pulled,) = eg.autograd.grad(y, [x], g)
        pair = eg.stack([(moved * g).sum(), (pulled * t).sum()])
        dist.all_reduce(pair)
        a, b = pair.tolist()
        assert abs(a - b) < 1e-10 * max(1, abs(a)), (name, a, b)


def check_compiled_is_eager() -> None:
    for name, case in CASES.items():

        def step(x: Any, case: Callable[[Any], Any] = case) -> Any:
            x = x.detach().requires_grad_()
            loss = loss_of(case, x)
            (grad,) = eg.autograd.grad(loss, [x])
            return loss.detach(), grad

        x = eg.tensor(inputs()[rank()])
        for found, expected in zip(eg.compile(step)(x), step(x), strict=True):
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, err_msg=name)


def check_second_derivatives() -> None:
    x = eg.tensor(inputs()[rank()], requires_grad=True)
    y = (dnn.all_reduce(x * x) ** 2).sum()
    (first,) = eg.autograd.grad(y, [x], create_graph=True)
    (second,) = eg.autograd.grad(first.sum(), [x])
    total = sum(a * a for a in inputs())
    own, everyone = inputs()[rank()], inputs()
    # d/dx_r of sum over s of 4 N S x_s, with S the sum of squares.
    expected = 4 * size() * total + 8 * size() * own * sum(everyone)
    np.testing.assert_allclose(second.numpy(), expected, rtol=1e-10)


def check_vmap() -> None:
    x = eg.tensor(inputs()[rank()])
    found = eg.func.vmap(lambda row: dnn.all_reduce(row))(x)
    np.testing.assert_allclose(found.numpy(), sum(inputs()), rtol=1e-12)
    gathered = eg.func.vmap(lambda row: eg.stack(dnn.all_gather(row)))(x)
    assert tuple(gathered.shape) == (2, size(), 3)


def check_in_place_forms_inside_a_compiled_function() -> None:
    @eg.compile
    def step(x: Any) -> Any:
        y, joined = x * 2, eg.zeros(size() * 2, 3, dtype=eg.float64)
        dist.all_reduce(y)
        top = x.clone()
        dist.all_reduce(top, ReduceOp.MAX)
        dist.all_gather_into_tensor(joined, x)
        part = eg.zeros(2, 3, dtype=eg.float64)
        dist.reduce_scatter_tensor(part, joined)
        first = x.clone()
        dist.broadcast(first, 1)
        return y, top, joined, part, first

    for _ in range(2):
        y, top, joined, part, first = step(eg.tensor(inputs()[rank()]))
        np.testing.assert_allclose(y.numpy(), 2 * sum(inputs()))
        assert top.tolist() == np.max(inputs(), axis=0).tolist()
        assert joined.tolist() == np.concatenate(inputs()).tolist()
        np.testing.assert_allclose(part.numpy(), size() * inputs()[rank()])
        assert first.tolist() == inputs()[1].tolist()


def check_a_constant_is_reduced_when_the_program_runs() -> None:
    @eg.compile
    def step(x: Any) -> Any:
        return x + dnn.all_reduce(eg.ones(3))

    assert [step(eg.zeros(3)).tolist() for _ in range(3)] == [[size()] * 3] * 3


def check_a_result_that_one_rank_ignores() -> None:
    """A compiled collective is called on every rank, whether its result is used there or not."""

    @eg.compile
    def step(x: Any) -> Any:
        total = dnn.all_reduce(x * 2)
        in_place = x.clone()
        dist.all_reduce(in_place)
        top = x.clone()
        dist.reduce(top, 0)
        if rank() == 0:
            return total + in_place + top
        return x * 3

    for _ in range(2):
        found = step(eg.ones(2)).tolist()
        assert found == ([4 * size()] * 2 if rank() == 0 else [3, 3])


def check_equal_collectives_are_not_merged() -> None:
    @eg.compile
    def step(x: Any) -> Any:
        return dnn.all_reduce(x) + dnn.all_reduce(x), dnn.all_gather(x), dnn.all_gather(x)

    x = eg.ones(2)
    step(x)
    before = dict(dist.group.WORLD.traffic)
    assert step(x)[0].tolist() == [2 * size()] * 2
    sent = {k: dist.group.WORLD.traffic[k] - before[k] for k in ("all_reduce", "all_gather")}
    assert sent == {"all_reduce": 16, "all_gather": 16}


def check_programs_of_ranks_may_differ_between_collectives() -> None:
    """Fused loops and reordered nodes differ; collectives have the order of the program."""

    @eg.compile
    def step(x: Any) -> Any:
        y = x.exp()
        if rank() == 0:
            y = (y.sum() * y + y.mean()) / y.max()
        first = dnn.all_reduce(y.sum(0))
        z = y * 2 if rank() else (y - y.mean(0)).cos() + first
        second = dnn.all_reduce(z.sum(1))
        third = dnn.all_gather(z.sum().reshape(1))
        return second.sum() + first.sum() + sum(third)

    expected = step.function(eg.ones(3, 4))
    for _ in range(2):
        found = step(eg.ones(3, 4))
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)


def check_a_compiled_step_that_fails_can_be_called_again() -> None:
    """An error between the start of a reduction and its wait: when it is raised, nothing writes to
    the memory of the program any more."""
    net = nn.parallel.DistributedDataParallel(nn.Linear(300, 300, bias=False))
    matrix = eg.eye(2)

    def hook(state: Any, bucket: Any) -> Any:
        work = dist.all_reduce(bucket.buffer() * 1, async_op=True)
        factor = eg.linalg.inv(matrix)[0, 0]
        return work.get_future().then(lambda future: future.value()[0] * factor)

    net.register_comm_hook(None, hook)

    @eg.compile
    def step(x: Any) -> Any:
        net(x).sum().backward()
        found = net.module.weight.grad.clone()
        net.zero_grad()
        return found

    x = eg.ones(1, 300)
    for scale in (1.0, 0.0, 2.0, 0.0, 1.0):
        with eg.no_grad():
            matrix.copy_(eg.eye(2) * scale)
        if scale:
            assert (step(x) == size() / scale).all()
        else:
            refused(lambda: step(x), "singular")
            assert not _in_flight
