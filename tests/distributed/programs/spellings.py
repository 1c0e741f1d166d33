"""A program for PyTorch's launcher in the spellings of PyTorch's own tests: each case gives what it
finds on every rank. It runs on PyTorch with gloo and on evergrad, and both find the same."""

import dataclasses

import torch
import torch.distributed as dist
from spelled import RANK, SIZE, filled, main, weights
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as default
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817


def net():
    return filled(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))


def grads(model):
    return [None if p.grad is None else p.grad for p in model.parameters()]


# -- reductions ---------------------------------------------------------------------------------


def case_reductions():
    found = {}
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8"):
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            x = (torch.tensor([1, 2, 3, 0]) + RANK).to(getattr(torch, dtype))
            dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
            found[f"{dtype} {op}"] = x
    for op in ("BAND", "BOR", "BXOR"):
        x = torch.tensor([1, 2, 3, 12]) + RANK
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        found[op] = x
    for dtype in ("complex64", "complex128"):
        x = torch.tensor([1 + 2j, 3 - 1j], dtype=getattr(torch, dtype)) * (RANK + 1)
        dist.all_reduce(x)
        found[dtype] = x
    x = torch.tensor([float("nan") if RANK else 1.0, 2.0, float("inf")])
    dist.all_reduce(x)
    found["nan"] = [bool(v) for v in x.isnan()] + [bool(x[2].isinf())]
    return found


def case_empty_and_scalar():
    empty, scalar = torch.zeros(0, 3), torch.tensor(RANK + 1.0)
    dist.all_reduce(empty)
    dist.all_reduce(scalar)
    dist.broadcast(empty, 0)
    parts = [torch.zeros(()) for _ in range(SIZE)]
    dist.all_gather(parts, torch.tensor(float(RANK)))
    return list(empty.shape), scalar, parts


def case_rooted():
    found = []
    for root in range(SIZE):
        x = torch.full((2,), float(RANK))
        dist.broadcast(x, src=root)
        y = torch.ones(3) * (RANK + 1)
        dist.reduce(y, dst=root, op=dist.ReduceOp.SUM)
        parts = [torch.zeros(2) for _ in range(SIZE)] if root == RANK else None
        dist.gather(torch.full((2,), RANK + 0.5), gather_list=parts, dst=root)
        z = torch.zeros(2)
        given = [torch.full((2,), 10.0 * r) for r in range(SIZE)] if root == RANK else None
        dist.scatter(z, scatter_list=given, src=root)
        found.append([x, y if root == RANK else 0, parts or 0, z])
    return found


def case_gather_and_scatter():
    out = torch.zeros(SIZE * 2, 3)
    dist.all_gather_into_tensor(out, torch.full((2, 3), float(RANK)))
    parts = [torch.zeros(2, dtype=torch.bool) for _ in range(SIZE)]
    dist.all_gather(parts, torch.tensor([bool(RANK), True]))
    exchanged = torch.zeros(SIZE, 2)
    dist.all_to_all_single(exchanged, torch.arange(2.0 * SIZE).reshape(SIZE, 2) + 100 * RANK)
    uneven = torch.zeros(SIZE * (RANK + 1))
    dist.all_to_all_single(
        uneven, torch.arange(float(sum(range(1, SIZE + 1)))) + 10 * RANK,
        output_split_sizes=[RANK + 1] * SIZE, input_split_sizes=list(range(1, SIZE + 1)),
    )  # fmt: skip
    reduced = torch.zeros(2)
    dist.reduce_scatter(reduced, [torch.full((2,), r + RANK + 1.0) for r in range(SIZE)])
    return out, parts, exchanged, uneven, reduced


def case_handles():
    x = torch.ones(3)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    halved = future.then(lambda fut: fut.value()[0] / SIZE)
    both = torch.futures.collect_all([halved])
    return x, work.is_completed(), halved.wait(), len(both.wait())


# -- messages and objects -------------------------------------------------------------------------


def case_messages():
    following, former = (RANK + 1) % SIZE, (RANK - 1 + SIZE) % SIZE
    sent, received = torch.arange(4.0) + RANK, torch.zeros(4)
    ops = [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, received, former)]
    for request in dist.batch_isend_irecv(ops):
        request.wait()
    first, second = torch.zeros(1), torch.zeros(0)
    if RANK == 0:
        dist.send(torch.tensor([7.0]), dst=1, tag=3)
        dist.isend(torch.zeros(0), 1, tag=4).wait()
    elif RANK == 1:
        source = dist.recv(first, src=0, tag=3)
        dist.irecv(second, src=0, tag=4).wait()
        return received, first, source, list(second.shape)
    return [received]


@dataclasses.dataclass
class Thing:
    name: str
    value: object


def case_objects():
    gathered = [None for _ in range(SIZE)]
    dist.all_gather_object(gathered, {"rank": RANK, "t": [RANK] * RANK, "u": "ü" * 3})
    objects = ["foo", 12, {1: 2}] if RANK == 0 else [None, None, None]
    dist.broadcast_object_list(objects, src=0)
    output = [None]
    dist.scatter_object_list(output, [f"to {r}" for r in range(SIZE)] if RANK == 0 else None, src=0)
    collected = [None] * SIZE if RANK == 1 else None
    dist.gather_object(Thing("x", RANK), collected, dst=1)
    names = [[t.name, t.value] for t in collected] if collected else 0
    if RANK == 0:
        dist.send_object_list(["a", {"b": 1}], dst=1)
        passed = 0
    else:
        passed = [None, None]
        dist.recv_object_list(passed, src=0)
    return gathered, objects, output, names, passed


# -- groups ---------------------------------------------------------------------------------------


def case_groups():
    alone = dist.new_group([1])
    pair = dist.new_group(ranks=[1, 0])
    own, every = dist.new_subgroups(group_size=1)
    x = torch.ones(2) * (RANK + 1)
    dist.all_reduce(x, group=pair)
    y = torch.ones(1) * RANK
    if RANK == 1:
        dist.all_reduce(y, group=alone)
        dist.broadcast(y, src=1, group=alone)
        inner = [torch.zeros(1)]
        dist.all_gather(inner, y, group=alone)
    z = torch.ones(1) * RANK
    dist.all_reduce(z, group=own)
    dist.barrier(group=pair)
    dist.monitored_barrier()
    ranks = dist.get_process_group_ranks(pair)
    return (
        x, y, z, ranks, dist.get_rank(pair), dist.get_rank(alone) if RANK == 1 else -1, len(every),
        dist.get_global_rank(pair, 1), dist.get_group_rank(pair, 0),
    )  # fmt: skip


def case_mesh():
    mesh = init_device_mesh("cpu", (SIZE, 1), mesh_dim_names=("dp", "tp"))
    other = DeviceMesh("cpu", torch.arange(SIZE))
    x = torch.ones(1)
    dist.all_reduce(x, group=mesh.get_group("dp"))
    dist.all_reduce(x, group=mesh["tp"].get_group())
    dist.all_reduce(x, group=other.get_group())
    return (
        x, mesh.mesh.tolist(), list(mesh.shape), mesh.ndim, mesh.size(), mesh.size(1),
        list(mesh.get_coordinate()), mesh.get_local_rank("dp"), list(mesh.mesh_dim_names),
        mesh["dp"].size(), mesh["tp"].mesh.tolist(), mesh.get_rank(), other.get_local_rank(),
        len(mesh.get_all_groups()), mesh == init_device_mesh("cpu", (SIZE, 1),
                                                             mesh_dim_names=("dp", "tp")),
    )  # fmt: skip


# -- DistributedDataParallel ----------------------------------------------------------------------


def inputs(step=0):
    return weights(4, 3, scale=1.0) + RANK + 0.1 * step


def case_ddp():
    found = []
    for options in (
        {}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.00001},
        {"find_unused_parameters": True}, {"static_graph": True}, {"broadcast_buffers": False},
    ):  # fmt: skip
        model = DDP(net(), **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            loss = model(inputs(step)).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append(losses)
    found.append(sorted(model.state_dict()))
    return found


def case_no_sync():
    model = DDP(net(), gradient_as_bucket_view=True)
    found = []
    for _ in range(2):
        with model.no_sync():
            model(inputs()).sum().backward()
            model(inputs(1)).sum().backward()
        found.append(grads(model)[0].clone())
        model(inputs(2)).sum().backward()
        found.append(grads(model)[0].clone())
        model.zero_grad(set_to_none=False)
    return found


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x, which, kind="tensor"):
        out = getattr(self, which)(x)
        return {"tensor": out, "dict": {"out": [out, "text"]}, "tuple": (out, None, 3)}[kind]


def case_unused():
    found = []
    for views in (False, True):
        model = DDP(
            filled(TwoBranches()), find_unused_parameters=True, gradient_as_bucket_view=views
        )
        for step, kind in enumerate(("tensor", "dict", "tuple")):
            model.zero_grad()
            out = model(inputs(step), "ab"[(RANK + step) % 2], kind)
            out = out["out"][0] if kind == "dict" else out[0] if kind == "tuple" else out
            out.sum().backward()
            found.append([0 if g is None else g for g in grads(model)])
    return found


def case_unused_without_asking():
    model = DDP(filled(TwoBranches()))
    model(inputs(), "a").sum().backward()
    try:
        model(inputs(), "a").sum().backward()
    except RuntimeError as error:
        return "Expected to have finished reduction in the prior iteration" in str(error)
    return False


class Odd(nn.Module):
    """Shared, frozen, scalar and empty parameters of two dtypes, and a layer used twice."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.empty = nn.Parameter(torch.zeros(0, 2))
        self.wide = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, x):
        x = self.a(self.b(self.a(x))) * self.frozen * self.scale
        return x.double().sum() * self.wide.sum() + self.empty.sum()


def case_odd_parameters():
    found = []
    for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
        model = DDP(filled(Odd()), **options)
        for step in range(2):
            model.zero_grad()
            model(inputs(step)).backward()
        found.append([0 if g is None else g for g in grads(model)])
    return found


def case_two_forwards_then_backward():
    model = DDP(net())
    (model(inputs()).sum() + model(inputs(1)).square().sum()).backward()
    return grads(model)


def case_sparse():
    embedding = nn.Embedding(6, 2, sparse=True)
    model = DDP(filled(nn.Sequential(embedding, nn.Linear(2, 2))))
    model(torch.tensor([RANK, 2, 2, 5])).sum().backward()
    grad = embedding.weight.grad
    return grad.to_dense() if grad.is_sparse else grad


def case_hooks():
    found = []
    for hook in (default.allreduce_hook, default.fp16_compress_hook,
                 default.fp16_compress_wrapper(default.allreduce_hook)):  # fmt: skip
        model = DDP(net())
        model.register_comm_hook(None, hook)
        model(inputs()).sum().backward()
        found.append([float(f"{v:.2g}") for v in grads(model)[2].flatten().tolist()])

    def own(state, bucket):
        state["seen"] += len(bucket.gradients()) + len(bucket.parameters())
        state["last"] |= bucket.is_last() and bucket.index() >= 0
        future = torch.futures.Future()
        future.set_result(bucket.buffer() * 2)
        return future

    def averaged(state, bucket):
        tensor = bucket.buffer().div_(SIZE)
        work = dist.all_reduce(tensor, group=state, async_op=True)
        return work.get_future().then(lambda fut: fut.value()[0])

    state = {"seen": 0, "last": False}
    for hook, given in ((own, state), (averaged, None)):
        model = DDP(net())
        model.register_comm_hook(given, hook)
        model(inputs()).sum().backward()
        found.append(grads(model)[0])
    return found, state


def case_power_sgd():
    """Of full rank the approximation is exact."""
    model = DDP(net())
    state = powerSGD.PowerSGDState(
        process_group=None, matrix_approximation_rank=4, start_powerSGD_iter=2,
        min_compression_rate=0.1,
    )  # fmt: skip
    model.register_comm_hook(state, powerSGD.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(5):
        optimizer.zero_grad()
        loss = model(inputs(step)).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(float(f"{loss.item():.3g}"))
    return losses


# -- uneven inputs --------------------------------------------------------------------------------


def case_join():
    found = []
    for divide in (True, False):
        model = DDP(net())
        with model.join(divide_by_initial_world_size=divide):
            for step in range(2 + 2 * RANK):
                model.zero_grad()
                model(inputs(step)).sum().backward()
                found.append(grads(model)[2].clone())
        found.append(next(model.parameters()))
    return found


class Counter(Joinable):
    """The example of PyTorch's tutorial: counts the inputs of all processes."""

    def __init__(self):
        super().__init__()
        self.count = torch.zeros(1)
        self.most = torch.zeros(1)

    def __call__(self):
        Join.notify_join_context(self)
        one = torch.ones(1)
        dist.all_reduce(one)
        self.count += one

    def join_hook(self, **kwargs):
        return CounterHook(self, kwargs.get("sync_max_count", False))

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


class CounterHook(JoinHook):
    def __init__(self, counter, sync_max_count):
        self.counter, self.sync_max_count = counter, sync_max_count

    def main_hook(self):
        dist.all_reduce(torch.zeros(1))

    def post_hook(self, is_last_joiner):
        if self.sync_max_count:
            rank = torch.tensor(RANK if is_last_joiner else -1)
            dist.all_reduce(rank, op=dist.ReduceOp.MAX)
            self.counter.most = self.counter.count.clone()
            dist.broadcast(self.counter.most, src=int(rank.item()))


def case_join_of_own_classes():
    counter = Counter()
    with Join([counter], sync_max_count=True):
        for _ in range(5 * (RANK + 1)):
            counter()
    try:
        with Join([Counter()], throw_on_early_termination=True) as _:
            thrown = Counter()
            with Join([thrown], throw_on_early_termination=True):
                for _ in range(RANK + 1):
                    thrown()
        failed = False
    except RuntimeError:
        failed = True
    return counter.count, counter.most, failed


def case_join_of_model_and_optimizer():
    model = DDP(net(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.01, momentum=0.9)
    losses = []
    with Join([model, optimizer]):
        for step in range(3 + RANK):
            optimizer.zero_grad(set_to_none=False)
            loss = model(inputs(step)).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, list(model.parameters())


# -- errors ---------------------------------------------------------------------------------------


def kind_of(call):
    try:
        call()
    except Exception as error:
        names = [k.__name__ for k in type(error).__mro__]
        return next(n for n in names if n in ("ValueError", "TypeError", "RuntimeError"))
    return "no error"


def case_errors():
    x = torch.ones(2)
    return [
        kind_of(lambda: dist.init_process_group("gloo")),
        kind_of(lambda: dist.new_group([0, SIZE])),
        kind_of(lambda: dist.broadcast_object_list([], src=SIZE)),
        kind_of(lambda: dist.P2POp(dist.broadcast, x, 0)),
        kind_of(lambda: dist.batch_isend_irecv([1])),
        kind_of(lambda: DDP(nn.ReLU())),
        kind_of(lambda: init_device_mesh("cpu", (SIZE + 1,))),
        kind_of(lambda: Join([])),
        kind_of(lambda: DDP(net()).register_comm_hook(None, 1)),
    ]


if __name__ == "__main__":
    main(globals())
