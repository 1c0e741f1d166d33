"""Checks of ZeRO, tensor parallel and pipeline parallel training against one process."""

from __future__ import annotations

import copy
import gc
import math
from typing import Any

import numpy as np

import evergrad as eg
import evergrad.distributed as dist
from evergrad import memory, nn, optim
from evergrad.distributed import fsdp, pipelining
from evergrad.distributed.optim import ZeroRedundancyOptimizer
from evergrad.distributed.tensor import parallel
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.nn import functional as F
from evergrad.nn.parallel import DistributedDataParallel

from .collectives import last, rank, refused, size
from .ddp import batches, close, model, same_on_all, share


def train_alone(net: Any, data: Any, steps: Any = None) -> list[float]:
    optimizer, losses = optim.AdamW(net.parameters(), lr=0.01), []
    for x, y in data:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# -- ZeRO 1 and 2 -------------------------------------------------------------------------------


def check_zero_stages_one_and_two() -> None:
    for stage in (1, 2):
        alone = model()
        train_alone(alone, batches(6))
        net = model()
        net = DistributedDataParallel(net) if stage == 1 else net
        optimizer = ZeroRedundancyOptimizer(net.parameters(), optim.AdamW, lr=0.01, stage=stage)
        for x, y in batches(6):
            optimizer.zero_grad()
            F.mse_loss(net(share(x)), share(y)).backward()
            optimizer.step()
            if stage == 2:
                held = [p.grad is not None for p in net.parameters()]
                owned = [optimizer.owner[id(p)] == rank() for p in net.parameters()]
                assert held == owned
        close(net.module if stage == 1 else net, alone)
        same_on_all(net)
        own = sum(t.nbytes for entry in optimizer.optim.state.values()
                  for t in entry.values() if t.ndim)  # fmt: skip
        assert own == 2 * optimizer._held[rank()]
        assert sum(optimizer._held) == sum(p.nbytes for p in alone.parameters())
        largest = max(p.nbytes for p in alone.parameters())
        assert max(optimizer._held) <= sum(optimizer._held) / size() + largest


def check_zero_state_is_that_of_the_whole_optimizer() -> None:
    data = batches(3)
    alone = model()
    plain = optim.AdamW(alone.parameters(), lr=0.01)
    net = model()
    zero = ZeroRedundancyOptimizer(net.parameters(), optim.AdamW, lr=0.01)
    schedule = optim.lr_scheduler.StepLR(zero, 1, 0.5)
    other = optim.lr_scheduler.StepLR(plain, 1, 0.5)
    for x, y in data:
        for one, optimizer, rate in ((alone, plain, other), (net, zero, schedule)):
            optimizer.zero_grad()
            F.mse_loss(one(x), y).backward()
            optimizer.step()
            rate.step()
    close(net, alone, 1e-6)
    zero.consolidate_state_dict(to=0)
    if rank() == 0:
        found, expected = zero.state_dict(), plain.state_dict()
        assert found["state"].keys() == expected["state"].keys()
        for number, entry in expected["state"].items():
            for key, value in entry.items():
                assert found["state"][number][key].tolist() == value.tolist()
        assert found["param_groups"][0]["params"] == expected["param_groups"][0]["params"]
        assert found["param_groups"][0]["lr"] == expected["param_groups"][0]["lr"]
    else:
        refused(zero.state_dict, "consolidate")
    saved: list[Any] = [zero.state_dict() if rank() == 0 else None]
    dist.broadcast_object_list(saved)
    fresh_net = copy.deepcopy(net)
    fresh = ZeroRedundancyOptimizer(fresh_net.parameters(), optim.AdamW, lr=1.0)
    fresh.load_state_dict(saved[0])
    for one, optimizer in ((net, zero), (fresh_net, fresh)):
        optimizer.zero_grad()
        F.mse_loss(one(data[0][0]), data[0][1]).backward()
        optimizer.step()
    close(fresh_net, net, 0)


# -- ZeRO 3 -------------------------------------------------------------------------------------


def check_fully_shard_is_one_process() -> None:
    alone = model()
    expected = train_alone(alone, batches(5))
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fsdp.fully_shard(layer)
    fsdp.fully_shard(net)
    assert sum(p.numel() for p in net.parameters()) < sum(p.numel() for p in alone.parameters())
    optimizer, losses = optim.AdamW(net.parameters(), lr=0.01), []
    for x, y in batches(5):
        optimizer.zero_grad()
        loss = F.mse_loss(net(share(x)), share(y))
        loss.backward()
        assert all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters())
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    whole = fsdp.full_state_dict(net)
    for name, value in alone.state_dict().items():
        np.testing.assert_allclose(whole[name].numpy(), value.numpy(), atol=1e-5, err_msg=name)


def check_fully_shard_frees_what_it_gathered() -> None:
    width, depth = 256, 6
    part = 4 * width * width // size()
    net = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(depth)])
    for layer in net:
        fsdp.fully_shard(layer)
    x = eg.ones(1, width)
    net(x).sum().backward()
    net.zero_grad()
    before = memory.stats()["live"]
    memory.reset_peak()
    loss = net(x).sum()
    kept = memory.stats()["live"] - before
    assert kept < 4 * width * width, kept  # nothing that is gathered outlives its layer
    loss.backward()
    peak = memory.stats()["peak"] - before
    # Gradients of all parts, and of one layer: weights, cotangents, their copies.
    assert peak < depth * part + 7 * 4 * width * width, (peak, depth * part)
    for layer in net:
        assert not layer._fsdp_unit.whole and not layer._fsdp_unit.again


def check_fully_shard_of_a_gpt() -> None:
    config = GPTConfig(vocabulary=31, context=8, layers=2, heads=2, width=16)
    eg.manual_seed(0)
    alone = GPT(config)
    net = copy.deepcopy(alone)
    for block in net.blocks:
        fsdp.fully_shard(block)
    fsdp.fully_shard(net)
    tokens = eg.randint(0, 31, (2 * size(), 8))
    F.cross_entropy(alone(tokens).flatten(0, 1), tokens.flatten()).backward()
    own = share(tokens)
    F.cross_entropy(net(own).flatten(0, 1), own.flatten()).backward()
    for (name, p), q in zip(net.named_parameters(), alone.parameters(), strict=True):
        rows = p.shape[0]
        expected = q.grad[rank() * rows : (rank() + 1) * rows]
        found = p.grad[: expected.shape[0]]
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5, err_msg=name)


def sharded(net: Any) -> Any:
    """A model whose layers are gathered one by one, and what is left at the end."""
    for layer in net:
        if any(True for _ in layer.parameters()):
            fsdp.fully_shard(layer)
    return fsdp.fully_shard(net)


def check_fully_shard_in_a_compiled_step() -> None:
    alone, data = model(), batches(6)
    expected = train_alone(alone, data)
    net = sharded(model())
    optimizer = optim.AdamW(net.parameters(), lr=0.01)

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
    whole = fsdp.full_state_dict(net)
    for name, value in alone.state_dict().items():
        np.testing.assert_allclose(whole[name].numpy(), value.numpy(), atol=1e-5, err_msg=name)


def check_a_compiled_step_has_one_gathered_layer_at_a_time() -> None:
    width, depth = 64, 6
    net = sharded(nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(depth)]))
    optimizer = optim.Adam(net.parameters(), lr=0.1)

    @eg.compile
    def step(x: Any) -> None:
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    plan = step.plan(eg.ones(2, width))
    gathered = [b for b in plan.buffers if "all_gather" in b.label]
    assert len(gathered) == 2 * depth - 1  # the first layer is not read by backward
    live = [sum(b.first <= wave <= b.last for b in gathered) for wave in range(plan.waves)]
    assert max(live) == 1
    # All parts of gradients, and weights of one layer: gathered, their gradient and a copy.
    assert plan.peak < depth * 4 * width * width // size() + 4 * 4 * width * width, plan


class Shared(nn.Module):
    """A weight of two layers, a number, an empty parameter, and one of another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.scale, self.empty = nn.Parameter(eg.tensor(2.0)), nn.Parameter(eg.zeros(0, 3))
        self.shift = nn.Parameter(eg.ones(4, dtype=eg.bfloat16))

    def forward(self, x: Any) -> Any:
        hidden = self.embed(x) * self.scale + self.shift.float()
        return self.head(hidden).square().mean() + self.empty.sum()


def check_fully_shard_of_shared_and_odd_parameters() -> None:
    eg.manual_seed(0)
    alone = Shared()
    net = fsdp.fully_shard(copy.deepcopy(alone))
    assert net.head.weight is net.embed.weight
    tokens = eg.arange(7)
    alone(tokens).backward()
    for run in (lambda: net(tokens).backward(), eg.compile(lambda: net(tokens).backward())):
        net.zero_grad()
        run()
        for (name, part), q in zip(net.named_parameters(), alone.parameters(), strict=True):
            assert part.dtype is q.dtype and part.grad.dtype is q.dtype
            rows = part.shape[0]
            expected = q.grad.float().reshape(-1 if q.ndim < 2 else q.shape[0], *q.shape[1:])
            expected = expected[rank() * rows : (rank() + 1) * rows].numpy()
            found = part.grad.float().numpy()[: len(expected)]
            tolerance = 1e-5 if q.dtype is eg.float32 else 1e-2
            np.testing.assert_allclose(found, expected, tolerance, tolerance, err_msg=name)
    whole = fsdp.full_state_dict(net)
    assert all(whole[name].tolist() == v.tolist() for name, v in alone.state_dict().items())
    other = Shared()
    fsdp.fully_shard(other.embed)
    refused(lambda: fsdp.fully_shard(other), "shared with a module that is sharded already")


def check_fully_shard_with_frozen_layers_and_partial_gradients() -> None:
    eg.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    net[1].requires_grad_(False)
    sharded(net)
    x = eg.ones(2, 4)
    net(x).sum().backward()
    assert net[0].weight.grad is not None and net[1].weight.grad is None
    first = net[0].weight.grad.clone()
    eg.autograd.grad(net(x).sum(), net[2].weight)
    assert not any(layer._fsdp_unit.again for layer in net)
    with eg.no_grad():
        net[1].weight.mul_(2)
    net[0].zero_grad()
    net(x).sum().backward()
    np.testing.assert_allclose(net[0].weight.grad.numpy(), 2 * first.numpy(), rtol=1e-5)


def check_zero_in_a_compiled_step() -> None:
    """A schedule changes the learning rate between calls."""
    for stage in (1, 2):
        losses = []
        for wrap in (lambda f: f, eg.compile):
            net = DistributedDataParallel(model()) if stage == 1 else model()
            zero = ZeroRedundancyOptimizer(net.parameters(), optim.AdamW, lr=0.01, stage=stage)
            schedule = optim.lr_scheduler.StepLR(zero, 2, 0.3)

            def step(x: Any, y: Any, net: Any = net, zero: Any = zero) -> Any:
                loss = F.mse_loss(net(x), y)
                loss.backward()
                zero.step()
                zero.zero_grad()
                return loss.detach()

            run = wrap(step)
            losses.append([])
            for x, y in batches(6):
                losses[-1].append(run(share(x), share(y)).item())
                schedule.step()
            same_on_all(net)
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def check_disagreement_names_the_parameters() -> None:
    """One rank calls a barrier where the others gather, reduce or send parameters."""
    net = sharded(model())
    refused(dist.barrier if last() else lambda: net(eg.ones(1, 6)), r"of Linear \(weight, bias\)")
    net = DistributedDataParallel(model())
    zero = ZeroRedundancyOptimizer(net.parameters(), optim.SGD, lr=0.1)
    net(eg.ones(1, 6)).sum().backward()
    refused(dist.barrier if last() else zero.step, r"of updated parameters \d")
    alone = nn.Linear(2, 1, bias=False)
    zero = ZeroRedundancyOptimizer(alone.parameters(), optim.SGD, lr=0.1, stage=2)

    def step() -> None:
        alone(eg.ones(1, 2)).sum().backward()
        zero.step()

    refused(dist.barrier if last() else step, "of parameter 0")


# -- tensor parallel ------------------------------------------------------------------------------


def check_tensor_parallel_layers() -> None:
    eg.manual_seed(0)
    alone = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))
    net = copy.deepcopy(alone)
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    parallel.parallelize_module(net, None, plan)
    x = eg.randn(3, 6)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [one(given) for one, given in zip((alone, net), inputs, strict=True)]
    np.testing.assert_allclose(results[1].detach().numpy(), results[0].detach().numpy(), atol=1e-6)
    for result in results:
        (result**2).sum().backward()
    np.testing.assert_allclose(inputs[1].grad.numpy(), inputs[0].grad.numpy(), atol=1e-5)
    rows = slice(rank() * 8 // size(), (rank() + 1) * 8 // size())
    pairs = (
        (net[0].weight.grad, alone[0].weight.grad[rows]),
        (net[0].bias.grad, alone[0].bias.grad[rows]),
        (net[2].weight.grad, alone[2].weight.grad[:, rows]),
        (net[2].bias.grad, alone[2].bias.grad),
    )
    for found, expected in pairs:
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5)
    refused(lambda: parallel.parallelize_module(nn.Linear(2, 7), None, parallel.ColwiseParallel()),
            "does not divide")  # fmt: skip


def check_tensor_parallel_gpt() -> None:
    for options in ({}, {"positions": "rotary", "feed_forward": "swiglu", "tie": False}):
        config = GPTConfig(vocabulary=32, context=8, layers=2, heads=4, width=16, **options)
        eg.manual_seed(0)
        alone = GPT(config)
        net = parallel.parallelize_gpt(copy.deepcopy(alone))
        tokens = eg.randint(0, 32, (2, 8))
        optimizers = [optim.SGD(m.parameters(), lr=0.1) for m in (alone, net)]
        losses: list[list[float]] = [[], []]
        for _ in range(3):
            for i, (one, optimizer) in enumerate(zip((alone, net), optimizers, strict=True)):
                optimizer.zero_grad()
                loss = F.cross_entropy(one(tokens).flatten(0, 1), tokens.flatten())
                loss.backward()
                optimizer.step()
                losses[i].append(loss.item())
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def check_tensor_parallel_gpt_compiled() -> None:
    config = GPTConfig(vocabulary=32, context=8, layers=1, heads=4, width=16)
    eg.manual_seed(0)
    net = parallel.parallelize_gpt(GPT(config))
    nets = [net, copy.deepcopy(net)]
    tokens = eg.randint(0, 32, (2, 8))
    losses = []
    for net, wrap in zip(nets, (lambda f: f, eg.compile), strict=True):
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any, net: Any = net, optimizer: Any = optimizer) -> Any:
            loss = F.cross_entropy(net(x).flatten(0, 1), x.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        run = wrap(step)
        losses.append([run(tokens).item() for _ in range(3)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


# -- pipeline parallel --------------------------------------------------------------------------


def check_pipeline_is_one_process() -> None:
    for schedule_class in (pipelining.Schedule1F1B, pipelining.ScheduleGPipe):
        data = batches(3)
        alone = model()
        expected = []
        optimizer = optim.SGD(alone.parameters(), lr=0.1)
        for x, y in data:
            optimizer.zero_grad()
            loss = F.mse_loss(alone(x), y)
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
        stages = pipelining.split_sequential(model(), size())
        assert sum(len(stage) for stage in stages) == len(alone)
        stage = pipelining.PipelineStage(stages[rank()], rank(), size())
        schedule = schedule_class(stage, 4, F.mse_loss)
        optimizer = optim.SGD([*stage.submod.parameters(), eg.zeros(1).requires_grad_()], lr=0.1)
        for number, (x, y) in enumerate(data):
            optimizer.zero_grad()
            losses: list[Any] = []
            args = (x,) if rank() == 0 else ()
            out = schedule.step(*args, target=y if rank() == size() - 1 else None, losses=losses)
            if rank() == size() - 1:
                found = sum(loss.item() for loss in losses) / 4
                assert math.isclose(found, expected[number], rel_tol=1e-4)
                assert out.shape == y.shape
            else:
                assert out is None
            optimizer.step()
        is_last = rank() == size() - 1
        most = 4 if schedule_class is pipelining.ScheduleGPipe else size() - rank()
        assert schedule.most_kept == most, (schedule.most_kept, is_last)


# -- memory ---------------------------------------------------------------------------------------


def held() -> dict[str, int]:
    gc.collect()
    return dict(memory.stats()["by_category"])


def check_memory_of_each_stage_is_that_of_the_formula() -> None:
    """Bytes by the ledger after a step, of P bytes of parameters: DDP P, P, 2P; each stage of ZeRO
    divides one more by the number of ranks."""
    width, layers = 64, 2 * size()
    whole = 4 * width * width * layers
    share = whole // size()
    expected = {
        "ddp": (whole, whole, 2 * whole),
        "zero 1": (whole, whole, 2 * share),
        "zero 2": (whole, share, 2 * share),
        "zero 3": (share, share, 2 * share),
    }
    for name, (parameters, gradients, moments) in expected.items():
        before = held()
        net, optimizer = trained(name, width, layers, optim.Adam)
        net(eg.ones(2, width)).sum().backward()
        optimizer.step()
        now = held()
        grown = {key: now[key] - before[key] for key in ("parameter", "gradient", "optimizer")}
        assert grown["parameter"] == parameters, (name, grown)
        assert grown["gradient"] == gradients, (name, grown)
        counts = 4 * layers  # Adam counts steps in a float32 for each parameter it updates
        assert moments <= grown["optimizer"] <= moments + counts, (name, grown)
        del net, optimizer


def check_memory_of_compiled_steps_is_that_of_the_plan() -> None:
    """Before the first step: parameters and moments by the formula, and what the program takes by
    its plan. The ledger's peak over the steps is their sum, to the byte."""
    width, layers = 64, 2 * size()
    whole = 4 * width * width * layers
    share = whole // size()
    kinds = {
        "ddp": (whole, 2 * whole),
        "zero 1": (whole, 2 * share),
        "zero 2": (whole, 2 * share),
        "zero 3": (share, 2 * share),
    }
    peaks = {}
    for name, (parameters, moments) in kinds.items():
        before = held()
        net, optimizer = trained(name, width, layers, optim.Adam)

        @eg.compile
        def step(x: Any, net: Any = net, optimizer: Any = optimizer) -> None:
            net(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        x = eg.ones(2, width)
        plan = step.plan(x)
        now, live = held(), memory.stats()["live"]
        assert now["parameter"] - before["parameter"] == parameters, name
        assert 0 <= now["optimizer"] - before["optimizer"] - moments <= 4 * layers, name
        memory.reset_peak()
        for _ in range(3):
            step(x)
        assert memory.stats()["peak"] - live == plan.peak, name
        assert held()["gradient"] == before["gradient"], name
        peaks[name] = parameters + moments + plan.peak
        del net, optimizer, step, x, plan
    assert peaks["zero 3"] < peaks["zero 2"] < peaks["ddp"], peaks


def trained(name: str, width: int, layers: int, optimizer_class: Any) -> tuple[Any, Any]:
    """Layers and their optimizer under DDP or a stage of ZeRO."""
    net: Any = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)])
    if name == "zero 3":
        for layer in net:
            fsdp.fully_shard(layer)
    elif name != "zero 2":
        net = DistributedDataParallel(net, gradient_as_bucket_view=True)
    if name in ("zero 1", "zero 2"):
        stage = int(name[-1])
        return net, ZeroRedundancyOptimizer(net.parameters(), optimizer_class, lr=0.1, stage=stage)
    return net, optimizer_class(net.parameters(), lr=0.1)


def check_traffic_of_each_stage_is_that_of_the_formula() -> None:
    """Payload of a step: P reduced by DDP, P reduced and P sent by ZeRO, P / N gathered twice and P
    scattered by stage 3."""
    width, layers = 32, size()
    whole = 4 * width * width * layers
    expected = {
        "ddp": {"all_reduce": whole},
        "zero 1": {"all_reduce": whole, "broadcast": whole},
        "zero 2": {"reduce": whole, "broadcast": whole},
        "zero 3": {"all_gather": 2 * whole // size(), "reduce_scatter": whole},
    }
    traffic = dist.group.WORLD.traffic
    for name, formula in expected.items():
        net, optimizer = trained(name, width, layers, optim.SGD)
        x = eg.ones(2, width).requires_grad_()
        before = dict(traffic)
        net(x).sum().backward()
        optimizer.step()
        sent = {k: n - before.get(k, 0) for k, n in traffic.items() if n != before.get(k, 0)}
        assert sent == formula, (name, sent, formula)
