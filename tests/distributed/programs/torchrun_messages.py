"""Messages of programs for PyTorch's launcher, cases of :mod:`torchrun_training`."""

import collections

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as DF
from spelled import RANK, SIZE, weights
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


def case_async_handles_out_of_order():
    xs = [torch.full((n + 1,), float(RANK + n)) for n in range(5)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    b = torch.arange(4.0) * (RANK + 1)
    works.append(dist.broadcast(b, 1, async_op=True))
    parts = [torch.zeros(2) for _ in range(SIZE)]
    works.append(dist.all_gather(parts, torch.full((2,), RANK + 1.0), async_op=True))
    for i in (6, 0, 3, 5, 1, 4, 2):
        works[i].wait()
    return xs, b, parts, [w.is_completed() for w in works]


def case_all_to_all_single_moe():
    tokens = weights(6, 4, scale=1.0) + RANK
    expert = torch.tensor([0, 1, 1, 0, 1, 1]) if RANK == 0 else torch.tensor([1, 0, 0, 0, 1, 0])
    order = expert.argsort(stable=True)
    counts = torch.bincount(expert, minlength=SIZE)
    incoming = torch.empty_like(counts)
    dist.all_to_all_single(incoming, counts)
    recv = torch.empty(int(incoming.sum()), 4)
    dist.all_to_all_single(recv, tokens[order].contiguous(), incoming.tolist(), counts.tolist())
    processed = recv * (RANK + 1)
    back = torch.empty(6, 4)
    dist.all_to_all_single(back, processed, counts.tolist(), incoming.tolist())
    out = torch.empty_like(back)
    out[order] = back
    return incoming, out


def case_differentiable_all_to_all():
    x = (weights(4, 3) + RANK).requires_grad_()
    y = DF.all_to_all_single(torch.empty(4, 3), x, group=dist.group.WORLD)
    z = DF.all_reduce((y * (RANK + 1)).sum())
    g = torch.cat(DF.all_gather(x))
    (z + g.square().sum()).backward()
    return x.grad


def case_p2p_ring_and_tags():
    a = torch.arange(3.0) + 10 * RANK
    out = []
    right, left = ((RANK + 1) % SIZE, (RANK - 1) % SIZE)
    for _ in range(3):
        b = torch.empty_like(a)
        reqs = dist.batch_isend_irecv(
            [dist.P2POp(dist.irecv, b, left), dist.P2POp(dist.isend, a, right)]
        )
        for r in reqs:
            r.wait()
        a = b + 1
        out.append(b)
    if RANK == 0:
        hs = [dist.isend(torch.full((2,), float(t)), 1, tag=t) for t in range(4)]
        for h in hs:
            h.wait()
    else:
        bufs = {t: torch.zeros(2) for t in range(4)}
        hs = [dist.irecv(bufs[t], 0, tag=t) for t in (3, 1, 0, 2)]
        for h in hs:
            h.wait()
        out.append(bufs)
    any_ = torch.zeros(1)
    if RANK == 1:
        dist.send(torch.tensor([5.0]), 0)
    else:
        out.append(dist.recv(any_))
        out.append(any_)
    return out


class Squares(Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, i):
        return (torch.tensor([float(i)]), torch.tensor([float(i * i)]))


def case_sampler():
    out = []
    for kw in (
        {"shuffle": False},
        {"shuffle": False, "drop_last": True},
        {"shuffle": True, "seed": 5},
    ):
        s = DistributedSampler(Squares(), **kw)
        for epoch in range(2):
            s.set_epoch(epoch)
            idx = list(s)
            out.append([len(s), len(idx), 0 if kw["shuffle"] else idx])
            if kw["shuffle"]:
                everyone = [None] * SIZE
                dist.all_gather_object(everyone, idx)
                out.append(sorted({i for each in everyone for i in each}))
    dl = DataLoader(Squares(), batch_size=2, sampler=DistributedSampler(Squares(), shuffle=False))
    out.append([x.flatten() for x, _ in dl])
    return out


def case_objects():
    objs = [None] * SIZE
    dist.all_gather_object(
        objs, {"t": torch.arange(3) + RANK, "s": {1, 2}, "c": collections.OrderedDict(a=RANK)}
    )
    lst = [torch.ones(2) * 3, b"bytes", (1, 2)] if RANK == 1 else [None] * 3
    dist.broadcast_object_list(lst, src=1)
    return (
        objs[0]["t"],
        objs[1]["t"],
        sorted(objs[1]["s"]),
        objs[1]["c"]["a"],
        lst[0],
        lst[1].decode(),
        lst[2],
    )
