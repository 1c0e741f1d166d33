"""Programs for PyTorch's launcher on four ranks: meshes, groups, shards; see :mod:`spelled`."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as DF
import torch.nn.functional as F
from spelled import RANK, SIZE, data, filled, main, mlp, params, weights
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817


def case_mesh_2x2():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = torch.ones(1) * (RANK + 1)
    a, b = x.clone(), x.clone()
    dist.all_reduce(a, group=mesh.get_group("dp"))
    dist.all_reduce(b, group=mesh["tp"].get_group())
    flat = mesh["dp", "tp"]._flatten("all")
    c = x.clone()
    dist.all_reduce(c, group=flat.get_group())
    places = mesh.get_coordinate(), mesh["tp"].get_local_rank(), mesh.get_local_rank("dp")
    return a, b, c, places, mesh["dp"].mesh, mesh.size(0), flat.size()


def case_hybrid_ddp_over_mesh():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = DDP(mlp(), device_mesh=mesh["replicate"])
    for s in range(2):
        model.zero_grad()
        model(data(4, step=s)[0]).sum().backward()
    g = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(g, op=dist.ReduceOp.SUM, group=mesh.get_group("shard"))
    return g


def case_groups_overlapping():
    gs = [dist.new_group(r) for r in ([0, 1, 2], [1, 3], [0, 2, 3], [2])]
    out = []
    for i, g in enumerate(gs):
        if g is not dist.GroupMember.NON_GROUP_MEMBER:
            x = torch.ones(2) * (RANK + 1 + i)
            dist.all_reduce(x, group=g)
            root = dist.get_global_rank(g, 0)
            b = torch.full((2,), float(RANK))
            dist.broadcast(b, src=root, group=g)
            parts = [torch.zeros(1) for _ in range(dist.get_world_size(g))]
            dist.all_gather(parts, torch.tensor([float(RANK)]), group=g)
            m = torch.tensor([RANK])
            dist.reduce(m, dst=root, op=dist.ReduceOp.MAX, group=g)
            reduced = m if root == RANK else 0
            out.append([x, b, parts, reduced, dist.get_rank(g), dist.get_group_rank(g, RANK)])
    return out


def case_subgroup_objects_scatter():
    evens, odds = (dist.new_group([0, 2]), dist.new_group([1, 3]))
    own = evens if RANK % 2 == 0 else odds
    got = [None, None]
    dist.all_gather_object(got, RANK * 11, group=own)
    root = RANK % 2
    o = [None]
    dist.scatter_object_list(
        o, [f"a{RANK}", f"b{RANK}"] if root == RANK else None, src=root, group=own
    )
    t = torch.zeros(2)
    dist.scatter(
        t, [torch.ones(2) * i for i in (5, 6)] if root == RANK else None, src=root, group=own
    )
    ga = [torch.zeros(2) for _ in range(2)] if root == RANK else None
    dist.gather(t + RANK, ga, dst=root, group=own)
    bl = [RANK, "x"]
    dist.broadcast_object_list(bl, src=root + 2, group=own)
    return got, o, t, ga, bl


def case_p2p_pairs_in_groups():
    g = dist.new_group([1, 2, 3])
    x = torch.zeros(2)
    if RANK == 3:
        dist.send(torch.tensor([1.0, 2.0]), dst=1, group=g)
    if RANK == 1:
        dist.recv(x, src=3, group=g)
    ops = []
    bufs = [torch.zeros(1) for _ in range(SIZE)]
    for r in range(SIZE):
        if r != RANK:
            ops += [
                dist.P2POp(dist.isend, torch.tensor([10.0 * RANK + r]), r),
                dist.P2POp(dist.irecv, bufs[r], r),
            ]
    for w in dist.batch_isend_irecv(ops):
        w.wait()
    return x, bufs


def case_uneven_join_four():
    model = DDP(mlp())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with model.join():
        for s in range(2 + RANK):
            opt.zero_grad()
            x, y = data(3, step=s)
            F.mse_loss(model(x), y).backward()
            opt.step()
    return params(model)


def case_join_unused_branches():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.Linear(3, 2), nn.Linear(3, 2))

        def forward(self, x, w):
            return self.a(x) if w else self.b(x)

    model = DDP(filled(M()), find_unused_parameters=True)
    out = []
    for s in range(3):
        model.zero_grad()
        model(data(3, step=s)[0], (s + RANK) % 3 == 0).sum().backward()
        out.append([None if p.grad is None else p.grad for p in model.parameters()])
    return out


def case_zero_overlap_unequal():
    model = DDP(
        filled(nn.Sequential(nn.Linear(3, 17), nn.ReLU(), nn.Linear(17, 2), nn.LayerNorm(2)))
    )
    opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01, weight_decay=0.1)
    out = []
    for s in range(4):
        opt.zero_grad()
        loss = model(data(4, step=s)[0]).square().mean()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out, params(model)


def case_subgroups():
    own, every = dist.new_subgroups(2)
    x = torch.ones(1) * RANK
    dist.all_reduce(x, group=own)
    own2, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    y = torch.ones(1) * RANK
    dist.all_reduce(y, group=own2)
    return x, y, len(every)


def case_tp_by_hand():
    w1, w2 = (weights(8, 4), weights(4, 8))
    a = w1[RANK * 2 : (RANK + 1) * 2].clone().requires_grad_()
    b = w2[:, RANK * 2 : (RANK + 1) * 2].clone().requires_grad_()
    x = weights(3, 4, scale=1.0)
    h = torch.relu(x @ a.t()) @ b.t()
    y = DF.all_reduce(h)
    (y.square().sum() / SIZE).backward()
    return y, a.grad, b.grad


def case_autograd_functions():
    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.n = x.shape[0]
            out = [torch.empty_like(x) for _ in range(SIZE)]
            dist.all_gather(out, x.contiguous())
            return torch.cat(out)

        @staticmethod
        def backward(ctx, g):
            g = g.contiguous()
            dist.all_reduce(g)
            return g[RANK * ctx.n : (RANK + 1) * ctx.n]

    x = (weights(2, 3, scale=1.0) + RANK).requires_grad_()
    z = F.normalize(Gather.apply(x), dim=1)
    logits = z @ z.t() / 0.5
    F.cross_entropy(logits, torch.arange(2 * SIZE).roll(1)).backward()
    return x.grad


def case_dtypes():
    out = []
    for name in ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float64"):
        dt = getattr(torch, name)
        x = (torch.arange(7) + RANK).to(dt)
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        y = (torch.arange(7) + RANK).to(dt)
        dist.all_reduce(y)
        out.append([x, y])
    b = torch.tensor([True, RANK == 1])
    parts = [torch.zeros(2, dtype=torch.bool) for _ in range(SIZE)]
    dist.all_gather(parts, b)
    return out, parts


def case_tensor_parallel_api():
    mesh = init_device_mesh("cpu", (SIZE,))
    m = filled(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    m = parallelize_module(m, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    y = m(weights(3, 4, scale=1.0))
    y.sum().backward()
    return y.detach()


def case_fully_shard():
    m = filled(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    mesh = init_device_mesh("cpu", (SIZE,))
    for layer in (m[0], m[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(m, mesh=mesh)
    opt = torch.optim.Adam(m.parameters(), lr=0.01)
    out = []
    for s in range(3):
        opt.zero_grad()
        loss = m(weights(3, 4, scale=1.0) + RANK + s).square().mean()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out


if __name__ == "__main__":
    main(globals())
