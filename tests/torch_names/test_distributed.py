"""Programs for several processes in a world of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import evergrad
import evergrad.distributed as dist
from evergrad import nn, optim
from evergrad.distributed.optim import ZeroRedundancyOptimizer
from evergrad.nn.parallel import DistributedDataParallel


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("gloo", rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_without_a_world() -> None:
    assert dist.is_available() and not dist.is_initialized()
    for call in (
        dist.get_rank, dist.get_world_size, dist.get_backend, dist.barrier,
        lambda: dist.all_reduce(evergrad.ones(1)),
        lambda: DistributedDataParallel(nn.Linear(1, 1)),
        lambda: ZeroRedundancyOptimizer([evergrad.ones(1)], optim.SGD, lr=0.1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="init_process_group"):
            call()


def test_a_world_is_made_once(world: None) -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "gloo")
    assert dist.group.WORLD is not None and dist.group.WORLD.size() == 1
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group("gloo", rank=0, world_size=1)
    dist.destroy_process_group()
    assert not dist.is_initialized() and dist.group.WORLD is None


def test_a_launcher_says_who_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="WORLD_SIZE expected"):
        dist.init_process_group("gloo")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(NotImplementedError, match="2 processes"):
        dist.init_process_group("gloo")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="rank 1"):
        dist.init_process_group("gloo")
    assert not dist.is_initialized()
    monkeypatch.setenv("RANK", "0")
    dist.init_process_group()
    assert dist.get_backend() == "gloo"
    dist.destroy_process_group()


def test_reductions_keep_the_value(world: None) -> None:
    for op in dist.ReduceOp:
        x = evergrad.arange(3.0)
        assert dist.all_reduce(x, op=op) is None
        assert dist.reduce(x, 0, op) is None and dist.broadcast(x, 0) is None
        assert x.tolist() == [0, 1, 2]
    work = dist.all_reduce(evergrad.ones(1), async_op=True)
    assert isinstance(work, dist.Work) and work.wait() and work.is_completed()


def test_gathers_copy_the_value(world: None) -> None:
    x = evergrad.arange(3.0)
    for call in (
        lambda out: dist.all_gather([out], x),
        lambda out: dist.gather(x, [out], 0),
        lambda out: dist.scatter(out, [x], 0),
        lambda out: dist.reduce_scatter(out, [x]),
        lambda out: dist.reduce_scatter_tensor(out, x),
        lambda out: dist.all_gather_into_tensor(out, x),
        lambda out: dist.all_to_all([out], [x]),
        lambda out: dist.all_to_all_single(out, x),
    ):
        out = evergrad.zeros(3)
        call(out)
        assert out.tolist() == [0, 1, 2]


def test_objects(world: None) -> None:
    for call in (
        lambda out: dist.all_gather_object(out, "it"),
        lambda out: dist.gather_object("it", out, 0),
        lambda out: dist.scatter_object_list(out, ["it"], 0),
    ):
        out: list[Any] = [None]
        call(out)
        assert out == ["it"]
    dist.broadcast_object_list(["it"], 0)
    dist.barrier()
    dist.monitored_barrier()


def test_others_do_not_exist(world: None) -> None:
    x = evergrad.ones(1)
    with pytest.raises(RuntimeError, match="2 entries"):
        dist.all_gather([x, x], x)
    with pytest.raises(RuntimeError, match="only rank 0"):
        dist.broadcast(x, 1)
    for call in (dist.send, dist.recv):
        with pytest.raises(ValueError, match="no other"):
            call(x, 0)
    with pytest.raises(ValueError, match="gather_list"):
        dist.gather(x)


def test_groups(world: None) -> None:
    group = dist.new_group([0])
    assert dist.get_rank(group) == 0 and dist.get_process_group_ranks(group) == [0]
    assert dist.get_global_rank(group, 0) == dist.get_group_rank(group, 0) == 0
    assert dist.new_group([]) is dist.GroupMember.NON_GROUP_MEMBER
    with pytest.raises(ValueError, match="not all"):
        dist.new_group([0, 1])
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    assert dist.Backend("GLOO") == dist.Backend.GLOO


def test_a_wrapped_module_trains_as_it_is(world: None) -> None:
    plain = nn.Linear(2, 1)
    wrapped = DistributedDataParallel(plain, device_ids=None)
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    with wrapped.no_sync():
        assert not wrapped.require_backward_grad_sync
        wrapped(evergrad.ones(3, 2)).sum().backward()
    assert wrapped.require_backward_grad_sync and plain.weight.grad.tolist() == [[3, 3]]
    with pytest.raises(RuntimeError, match="not needed"):
        DistributedDataParallel(nn.ReLU())


def test_a_shared_out_optimizer_is_the_optimizer(world: None) -> None:
    weights = [nn.Parameter(evergrad.ones(2)) for _ in range(2)]
    plain = optim.Adam([weights[0]], lr=0.1)
    shared = ZeroRedundancyOptimizer([weights[1]], optimizer_class=optim.Adam, lr=0.1)
    schedules = [optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (plain, shared)]
    for _ in range(5):
        for weight, optimizer in zip(weights, (plain, shared), strict=True):
            optimizer.zero_grad()
            (weight**2).sum().backward()
            optimizer.step()
        for schedule in schedules:
            schedule.step()
    assert weights[0].tolist() == weights[1].tolist()
    with pytest.raises(RuntimeError, match="consolidate"):
        shared.state_dict()
    shared.consolidate_state_dict()
    assert shared.state_dict()["param_groups"] == plain.state_dict()["param_groups"]
    fresh = ZeroRedundancyOptimizer([nn.Parameter(evergrad.ones(2))], optim.Adam, lr=1.0)
    fresh.load_state_dict(shared.state_dict())
    assert fresh.param_groups[0]["lr"] == shared.param_groups[0]["lr"]
    fresh.add_param_group({"params": [nn.Parameter(evergrad.ones(1))]})
    assert len(fresh.optim.param_groups) == 2


def test_one_device_takes_the_whole_batch() -> None:
    module, x = nn.Linear(2, 1), evergrad.ones(3, 2)
    expected = module(x).tolist()
    assert nn.DataParallel(module)(x).tolist() == expected
    assert nn.parallel.data_parallel(module, x).tolist() == expected
    (part,) = nn.parallel.scatter(x, [0])
    (copy,) = nn.parallel.replicate(module, [0])
    (result,) = nn.parallel.parallel_apply([copy], [part])
    assert nn.parallel.gather([result], 0).tolist() == expected
    joined = nn.parallel.gather([{"a": x[:1]}, {"a": x[1:]}], 0)
    assert tuple(joined["a"].shape) == (3, 2)
    with pytest.raises(RuntimeError, match="2 devices"):
        nn.parallel.scatter(x, [0, 1])
