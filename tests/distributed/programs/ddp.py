"""Checks of DistributedDataParallel against one process with the whole batch."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np

import evergrad as eg
import evergrad.distributed as dist
from evergrad import memory, nn, optim
from evergrad.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from evergrad.nn import functional as F
from evergrad.nn.parallel import DistributedDataParallel

from .collectives import last, rank, refused, size


def model(seed: int = 0) -> Any:
    eg.manual_seed(seed)
    hidden = [nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh()]
    return nn.Sequential(*hidden, nn.Linear(16, 3))


def batches(steps: int, rows: int = 8) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(1)
    draw = lambda *shape: eg.tensor(random.standard_normal(shape).astype(np.float32))
    return [(draw(rows, 6), draw(rows, 3)) for _ in range(steps)]


def share(x: Any) -> Any:
    part = x.shape[0] // size()
    return x[rank() * part : (rank() + 1) * part]


def train(net: Any, data: Any, parts: bool, lr: float = 0.1) -> list[float]:
    optimizer, losses = optim.SGD(net.parameters(), lr=lr, momentum=0.9), []
    for x, y in data:
        optimizer.zero_grad()
        x, y = (share(x), share(y)) if parts else (x, y)
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if parts:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        found, expected = a.detach().numpy(), b.detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def check_same_as_one_process() -> None:
    for options in (
        {}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.0005},
        {"find_unused_parameters": True}, {"static_graph": True},
        {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True},
    ):  # fmt: skip
        alone = model()
        expected = train(alone, batches(6), False)
        net = DistributedDataParallel(model(seed=rank()), **options)  # rank 0's parameters count
        found = train(net, batches(6), True)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        close(net.module, alone)
        same_on_all(net)


def same_on_all(net: Any) -> None:
    """Parameters are equal to the bit on every rank."""
    for name, parameter in net.named_parameters():
        parts = [eg.zeros_like(parameter) for _ in range(size())]
        dist.all_gather(parts, parameter.detach())
        assert all(part.tolist() == parts[0].tolist() for part in parts), name


def check_two_ranks_are_bitwise_a_sum_in_order() -> None:
    if size() != 2:
        return
    net, alone = DistributedDataParallel(model()), model()
    (x, y), part = batches(1)[0], 4
    F.mse_loss(net(share(x)), share(y)).backward()
    grads = []
    for r in range(2):
        copied = copy.deepcopy(alone)
        rows = slice(r * part, (r + 1) * part)
        F.mse_loss(copied(x[rows]), y[rows]).backward()
        grads.append([p.grad for p in copied.parameters()])
    for p, a, b in zip(net.parameters(), *grads, strict=True):
        assert p.grad.tolist() == ((a + b) / 2).tolist()


def check_buckets_are_rebuilt_in_ready_order() -> None:
    class Crossed(nn.Module):
        """Uses its layers in another order than it registers them."""

        def __init__(self) -> None:
            super().__init__()
            self.late, self.early = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.late(self.early(x))

    net = DistributedDataParallel(Crossed(), bucket_cap_mb=0.0001)
    names = net.reducer.names
    first = [[names[n] for n in b.numbers] for b in net.reducer.buckets]
    for _ in range(2):
        net(eg.ones(2, 4)).sum().backward()
    second = [[names[n] for n in b.numbers] for b in net.reducer.buckets]
    assert first[0][0].startswith("early") and second[0][0].startswith("late"), (first, second)
    assert net.reducer.is_rebuilt


def check_gradients_are_views_of_buckets() -> None:
    net = DistributedDataParallel(model(), gradient_as_bucket_view=True)
    for _ in range(3):
        net.zero_grad(set_to_none=False)
        net(eg.ones(2, 6)).sum().backward()
        storages = {b.flat._storage for b in net.reducer.buckets}
        assert all(p.grad._storage in storages for p in net.parameters())


def check_no_sync_accumulates() -> None:
    for views in (False, True):
        data = batches(4)
        alone, net = model(), DistributedDataParallel(model(), gradient_as_bucket_view=views)
        for _ in range(2):
            for i, (x, y) in enumerate(data):
                F.mse_loss(alone(x), y).backward()
                if i < 3:
                    with net.no_sync():
                        F.mse_loss(net(share(x)), share(y)).backward()
                else:
                    F.mse_loss(net(share(x)), share(y)).backward()
            for p, q in zip(net.parameters(), alone.parameters(), strict=True):
                np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-6)
            net.zero_grad()
            alone.zero_grad()


class Branches(nn.Module):
    """Each rank may use another branch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Any, which: str) -> Any:
        return getattr(self, which)(x)


def check_unused_parameters() -> None:
    eg.manual_seed(0)
    net = DistributedDataParallel(Branches(), find_unused_parameters=True)
    for _ in range(3):
        net.zero_grad()
        net(eg.ones(2, 3), "a" if last() else "b").sum().backward()
        assert net.module.a.weight.grad is not None and net.module.b.weight.grad is not None
        assert net.module.a.weight.grad[0, 0].item() == 2 / size()
        assert net.module.c.weight.grad is None
    same_on_all(net)


def check_unused_parameters_without_asking() -> None:
    net = DistributedDataParallel(Branches())
    net(eg.ones(2, 3), "a").sum().backward()
    refused(lambda: net(eg.ones(2, 3), "a"), "no gradient: b.weight", "find_unused_parameters")


def check_a_different_model_is_refused() -> None:
    layer = nn.Linear(3, 4 if last() else 2)
    refused(
        lambda: DistributedDataParallel(layer), "parameter 0 is", "weight", f"rank {size() - 1}"
    )


def check_a_rank_without_a_backward_pass() -> None:
    """A rank that skips a backward pass and goes on to a barrier: both are named."""
    net = DistributedDataParallel(nn.Linear(2, 1))

    def step() -> None:
        out = net(eg.ones(1, 2))
        if last():
            dist.barrier()
        else:
            out.sum().backward()

    refused(step, "barrier", r"bucket 0 \(weight, bias\)|bucket 0 \(bias, weight\)")


def check_a_rank_without_a_compiled_step() -> None:
    net = DistributedDataParallel(nn.Linear(2, 1))

    @eg.compile
    def step(x: Any) -> Any:
        net(x).sum().backward()
        return net.module.weight.grad

    step(eg.ones(1, 2))
    call = dist.barrier if last() else lambda: step(eg.ones(1, 2))
    refused(call, "barrier", r"bucket 0 \((weight, bias|bias, weight)\)")
    dist.barrier()


def check_an_error_inside_backward() -> None:
    """Of one rank: the others get an error that names the bucket. Of all: reductions that were
    started are complete before their buckets are filled again."""
    net = DistributedDataParallel(model(), bucket_cap_mb=1e-6)

    def fail(grad: Any) -> Any:
        raise ValueError("in backward")

    def step() -> None:
        net(eg.ones(2, 6)).sum().backward()
        dist.barrier()

    handle = net.module[0].weight.register_hook(fail) if last() else None
    if last():
        refused(step, "in backward")
        refused(dist.barrier, "barrier", "bucket [0-9]+ .0.weight")
    else:
        refused(step, "barrier", "bucket [0-9]+ .0.weight")
    if handle is not None:
        handle.remove()
    dist.barrier()
    net = DistributedDataParallel(model(), bucket_cap_mb=1e-6)
    handle = net.module[0].weight.register_hook(fail)
    refused(step, "in backward")
    handle.remove()
    refused(step, "Expected to have finished reduction")
    net.zero_grad()
    step()
    expected = copy.deepcopy(net.module)
    expected.zero_grad()
    expected(eg.ones(2, 6)).sum().backward()
    for p, q in zip(net.parameters(), expected.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-6)


def check_nan_of_one_rank_is_seen_by_all() -> None:
    for options in ({}, {"gradient_as_bucket_view": True}):
        net = DistributedDataParallel(nn.Linear(2, 1, bias=False), **options)
        net(eg.full((1, 2), float("nan") if last() else 1.0)).sum().backward()
        assert net.module.weight.grad.isnan().all()


def check_buffers_are_those_of_the_first_rank() -> None:
    net = DistributedDataParallel(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    for _ in range(2):
        net(eg.randn(4, 3) + rank()).sum().backward()
    with eg.no_grad():
        net(eg.zeros(4, 3))
    mean = net.module[1].running_mean
    parts = [eg.zeros(3) for _ in range(size())]
    dist.all_gather(parts, mean)
    assert all(part.tolist() == parts[0].tolist() for part in parts)


def check_communication_hooks() -> None:
    data = batches(5)
    alone = model()
    expected = train(alone, data, False)
    for hook, state, tolerance in (
        (default_hooks.allreduce_hook, None, 1e-5),
        (default_hooks.fp16_compress_hook, None, 1e-2),
        (default_hooks.bf16_compress_hook, None, 3e-2),
        (powerSGD_hook.powerSGD_hook,
         powerSGD_hook.PowerSGDState(matrix_approximation_rank=16, start_powerSGD_iter=2,
                                     min_compression_rate=0.1), 1e-4),
    ):  # fmt: skip
        net = DistributedDataParallel(model(), bucket_cap_mb=0.001)
        net.register_comm_hook(state, hook)
        found = train(net, data, True)
        np.testing.assert_allclose(found, expected, rtol=tolerance)
        same_on_all(net)
        refused(lambda net=net: net.register_comm_hook(None, default_hooks.allreduce_hook), "once")


def check_bfloat16_halves_the_bytes() -> None:
    group = dist.group.WORLD
    sent = []
    for hook in (None, default_hooks.bf16_compress_hook):
        net = DistributedDataParallel(model())
        if hook is not None:
            net.register_comm_hook(None, hook)
        before = group.traffic["all_reduce"]
        net(eg.ones(2, 6)).sum().backward()
        sent.append(group.traffic["all_reduce"] - before)
    count = sum(p.numel() for p in model().parameters())
    assert sent == [4 * count, 2 * count]


def check_power_sgd_learns_with_little_traffic() -> None:
    net = DistributedDataParallel(nn.Linear(64, 64, bias=False))
    state = powerSGD_hook.PowerSGDState(matrix_approximation_rank=2, start_powerSGD_iter=2)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = optim.SGD(net.parameters(), lr=0.02)
    eg.manual_seed(3 + rank())
    x = eg.randn(128, 64)
    eg.manual_seed(9)
    target = x @ eg.randn(64, 64) * 0.1
    losses = []
    for step in range(60):
        optimizer.zero_grad()
        before = dist.group.WORLD.traffic["all_reduce"]
        loss = ((net(x) - target) ** 2).sum() / 128
        loss.backward()
        if step > 3:
            assert dist.group.WORLD.traffic["all_reduce"] - before == 4 * 2 * (64 + 64)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0], losses


def check_join() -> None:
    for keeps in (True, False):
        eg.manual_seed(0)
        net = DistributedDataParallel(nn.Linear(2, 1, bias=False), bucket_cap_mb=1)
        count = 3 if last() else 5
        grads = []
        with net.join(divide_by_initial_world_size=keeps):
            for _ in range(count):
                net.zero_grad()
                net(eg.ones(1, 2)).sum().backward()
                grads.append(net.module.weight.grad[0, 0].item())
        alone = (size() - 1) / size() if keeps else 1.0
        expected = [1.0] * 3 + [alone] * (count - 3)
        np.testing.assert_allclose(grads, expected, rtol=1e-6)
        same_on_all(net)
    net = DistributedDataParallel(nn.Linear(2, 1))

    def uneven() -> None:
        with net.join(throw_on_early_termination=True):
            for _ in range(1 if last() else 2):
                net(eg.ones(1, 2)).sum().backward()

    refused(uneven, "throw_on_early_termination")


def check_backward_twice_reduces_twice() -> None:
    net = DistributedDataParallel(nn.Linear(2, 1), bucket_cap_mb=1e-6)
    loss = net(eg.ones(1, 2)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert net.module.weight.grad.tolist() == [[2, 2]]


def check_inside_a_compiled_step() -> None:
    data = batches(5)
    alone = model()
    expected = train(alone, data, False)
    net = DistributedDataParallel(model())
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @eg.compile
    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        return mean

    found = [step(share(x), share(y)).item() for x, y in data]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    close(net.module, alone)
    same_on_all(net)


def check_a_reduction_completes_while_backward_runs() -> None:
    """Before the gradient of the first layer is computed, that of the last is averaged, without a
    wait of the program."""
    net = DistributedDataParallel(model(), bucket_cap_mb=0.0001)
    works: list[Any] = []

    def hook(state: Any, bucket: Any) -> Any:
        works.append(dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, async_op=True))
        return works[-1].get_future()

    def wait_for_the_first(grad: Any) -> None:
        end = time.monotonic() + 120
        while not works[0]._task.is_done:
            assert time.monotonic() < end, "nothing has progressed in the background"
            time.sleep(1e-3)

    def watch(module: Any, given: Any, out: Any) -> None:
        out.register_hook(wait_for_the_first)

    net.register_comm_hook(None, hook)
    net.module[0].register_forward_hook(watch)
    for _ in range(2):
        works.clear()
        net(eg.ones(4, 6) * (rank() + 1)).sum().backward()
        assert len(works) == len(net.reducer.buckets) > 1
    same_on_all(net)


def check_compiled_reductions_start_before_backward_ends() -> None:
    """Kernels of the first layers stand between the start of the last layers' reduction and the
    wait for it."""
    net = DistributedDataParallel(model(), bucket_cap_mb=0.0005)

    @eg.compile
    def step(x: Any) -> Any:
        net(x).sum().backward()
        return [p.grad for p in net.parameters()]

    x = eg.ones(4, 6)
    step(x)
    program = step.compiled_for((x,), {})[0].program
    calls = [i.eqn.op.name if i.kernel is None else "kernel" for i in program.instructions]
    starts = [n for n, name in enumerate(calls) if name == "all_reduce_start"]
    waits = [n for n, name in enumerate(calls) if name == "all_reduce_wait"]
    assert len(starts) == len(waits) == len(net.reducer.buckets) > 1
    assert max(starts) < min(waits), calls
    assert "kernel" in calls[starts[0] : starts[-1]], calls


def losses_of_hook(hook: Any, state: Any, wrap: Any, eager_steps: int) -> tuple[list[float], int]:
    """Losses of steps, compiled but for the first, and the bytes that were reduced."""
    net = DistributedDataParallel(model(), bucket_cap_mb=0.001)
    net.register_comm_hook(state, hook)
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run, before = wrap(step), dist.group.WORLD.traffic["all_reduce"]
    data = [(share(x), share(y)) for x, y in batches(7)]
    losses = [(step if i < eager_steps else run)(x, y).item() for i, (x, y) in enumerate(data)]
    same_on_all(net)
    return losses, dist.group.WORLD.traffic["all_reduce"] - before


def check_communication_hooks_in_a_compiled_step() -> None:
    for hook, options, eager_steps in (
        (default_hooks.allreduce_hook, None, 0),
        (default_hooks.bf16_compress_hook, None, 0),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None, 0),
        (powerSGD_hook.powerSGD_hook, {"matrix_approximation_rank": 2}, 4),
        (powerSGD_hook.powerSGD_hook,
         {"matrix_approximation_rank": 3, "use_error_feedback": False}, 4),
        (powerSGD_hook.batched_powerSGD_hook, {"matrix_approximation_rank": 4}, 4),
    ):  # fmt: skip
        found = []
        for wrap in (lambda f: f, eg.compile):
            state = options and powerSGD_hook.PowerSGDState(
                start_powerSGD_iter=2, min_compression_rate=0.1, **options
            )
            found.append(losses_of_hook(hook, state, wrap, eager_steps))
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-5)
        assert found[1][1] == found[0][1], hook


def check_a_compiled_step_refuses_what_it_would_not_repeat() -> None:
    for options in ({"start_powerSGD_iter": 9}, {"start_powerSGD_iter": 2, "warm_start": False}):
        state = powerSGD_hook.PowerSGDState(**options)
        refused(
            lambda state=state: losses_of_hook(powerSGD_hook.powerSGD_hook, state, eg.compile, 4),
            "PowerSGD inside a compiled function", "uncompiled",
        )  # fmt: skip


class Scale:
    value = 1.0


def check_a_compiled_step_notices_what_a_hook_reads() -> None:
    """Attributes of its state are guarded, also if the hook is wrapped; so are reductions of
    several buckets that overlap backward."""

    def scaled(state: Any, bucket: Any) -> Any:
        work = dist.all_reduce(bucket.buffer() * state.value, async_op=True)
        return work.get_future().then(lambda future: future.value()[0] / size())

    for hook in (scaled, default_hooks.bf16_compress_wrapper(scaled)):
        net = DistributedDataParallel(nn.Linear(2, 1, bias=False))
        state = Scale()
        net.register_comm_hook(state, hook)

        @eg.compile
        def step(x: Any, net: Any = net) -> Any:
            net(x).sum().backward()
            found = net.module.weight.grad.clone()
            net.zero_grad()
            return found

        for value in (1.0, 3.0, 3.0, 1.0):
            state.value = value
            assert step(eg.ones(1, 2)).tolist() == [[value, value]]
    x = eg.ones(1, 2)
    program = step.compiled_for((x,), {})[0].program
    calls = [i.eqn.op.name for i in program.instructions if i.kernel is None]
    assert calls == ["all_reduce_start", "all_reduce_wait"], calls


# -- row-sparse gradients -----------------------------------------------------------------------


class Tables(nn.Module):
    """Two tables with row-sparse gradients, one of them of bags, and a dense layer."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        eg.manual_seed(0)
        self.words: Any = nn.Embedding(rows, 4, sparse=True)
        self.bags: Any = nn.EmbeddingBag(rows, 4, sparse=True, mode="sum")
        self.out: Any = nn.Linear(4, 1)

    def forward(self, index: Any) -> Any:
        return self.out(self.words(index).sum(1) + self.bags(index))


def numbers(step: int, rows: int) -> Any:
    """Eight bags of three rows; some rows are those of several ranks, some of one alone."""
    return eg.tensor(np.random.default_rng(step).integers(0, rows, (8, 3)))


def check_row_sparse_gradients_are_those_of_one_process() -> None:
    for optimizer in (optim.SGD, optim.SparseAdam, optim.Adagrad):
        for options in ({}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}):
            whole, net = Tables(30), Tables(30)
            parallel = DistributedDataParallel(net, **options)
            tables = [[m.words.weight, m.bags.weight] for m in (whole, net)]
            steppers = [optimizer(given, lr=0.1) for given in tables]
            for step in range(4):
                index = numbers(step, 30)
                whole(index).square().mean().backward()
                parallel(share(index)).square().mean().backward()
                for expected, table in zip(*tables, strict=True):
                    assert table.grad.is_sparse and table.grad.is_coalesced()
                    found, wanted = (x.grad.to_dense().numpy() for x in (table, expected))
                    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
                    places = set(table.grad.indices()[0].tolist())
                    assert places == set(expected.grad.coalesce().indices()[0].tolist())
                np.testing.assert_allclose(net.out.weight.grad, whole.out.weight.grad, rtol=1e-4)
                for stepper, given in zip(steppers, (whole, net), strict=True):
                    stepper.step()
                    given.zero_grad()
            close(net, whole)


def check_row_sparse_gradients_follow_the_rows() -> None:
    """A table of 200,000 rows takes 51 MB; a step that touches 24 of them nothing of the kind,
    eager or compiled, and both have the same losses."""
    losses: list[list[float]] = []
    for wrap in (lambda step: step, eg.compile):
        eg.manual_seed(0)
        table = nn.Embedding(200_000, 64, sparse=True)
        net = DistributedDataParallel(nn.Sequential(table, nn.Linear(64, 1)))
        optimizer = optim.SGD(net.parameters(), lr=0.01)

        def step(index: Any, net: Any = net, optimizer: Any = optimizer) -> Any:
            loss = net(index).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        run: Any = wrap(step)
        losses.append([])
        for number in range(6):
            with memory.track() as tracked:
                losses[-1].append(run(share(numbers(number % 2, 200_000))).item())
            is_program = run is not step and number in (3, 5)  # others are traced, too
            if is_program or run is step:
                assert tracked.peak - tracked.live_at_start < 1 << 20, tracked.peak
    assert losses[0][4] < losses[0][0]
    np.testing.assert_allclose(*losses, rtol=1e-4)


def check_row_sparse_gradients_accumulate_and_may_be_missing() -> None:
    whole, net = Tables(9), Tables(9)
    parallel = DistributedDataParallel(net, find_unused_parameters=True)
    with parallel.no_sync():
        parallel(share(numbers(0, 9))).sum().backward()
    parallel(share(numbers(1, 9))).sum().backward()
    for step in (0, 1):
        whole(numbers(step, 9)).sum().backward()
    for table, expected in ((net.words, whole.words), (net.bags, whole.bags)):
        found, wanted = (x.weight.grad.to_dense() for x in (table, expected))
        np.testing.assert_allclose(found * size(), wanted, rtol=1e-5)
    # One rank looks nothing up, and the tables of one rank alone get gradients.
    net.zero_grad()
    index = numbers(2, 9) if last() else numbers(2, 9)[:0]
    parallel(index).sum().backward()
    whole.zero_grad()
    whole(numbers(2, 9)).sum().backward()
    found, wanted = (x.words.weight.grad.to_dense() for x in (net, whole))
    np.testing.assert_allclose(found * size(), wanted, rtol=1e-5)


def check_row_sparse_gradients_beside_dense_ones_and_join() -> None:
    net = DistributedDataParallel(Tables(9))
    module: Any = net.module
    scores = net(share(numbers(0, 9))).sum()
    if last():
        scores = scores + module.words.weight.sum()  # a dense gradient on one rank alone
    scores.backward()
    assert not module.words.weight.grad.is_sparse and module.bags.weight.grad.is_sparse
    same_on_all_gradients(module.words.weight.grad)
    net = DistributedDataParallel(Tables(9))
    with net.join():
        for step in range(1 + rank()):
            net(share(numbers(step, 9))).sum().backward()


def same_on_all_gradients(grad: Any) -> None:
    parts = [eg.empty_like(grad) for _ in range(size())]
    dist.all_gather(parts, grad)
    assert all(eg.equal(part, parts[0]) for part in parts)
