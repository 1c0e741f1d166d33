"""Training programs for PyTorch's launcher on two ranks; see :mod:`spelled`."""

import contextlib
import dataclasses
import io

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchrun_messages
from spelled import RANK, SIZE, data, filled, main, mlp, params, weights
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817
from torch.utils.checkpoint import checkpoint


def case_uneven_join_with_allreduce_inside():
    model = DDP(mlp(), gradient_as_bucket_view=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    with model.join():
        for step in range(3 + 2 * RANK):
            opt.zero_grad()
            x, y = data(4, step=step)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
    return losses, params(model)


def case_join_disabled_and_no_sync():
    model = DDP(mlp())
    out = []
    with model.join(enable=False):
        for step in range(2):
            x, y = data(4, step=step)
            F.mse_loss(model(x), y).backward()
    out.append([p.grad for p in model.parameters()])
    model.zero_grad()
    with model.join(divide_by_initial_world_size=False):
        for step in range(4 + RANK):
            x, y = data(4, step=step)
            ctx = model.no_sync() if step % 2 == 0 else contextlib.nullcontext()
            with ctx:
                F.mse_loss(model(x), y).backward()
            if step % 2:
                out.append([p.grad.clone() for p in model.parameters()])
                model.zero_grad()
    return out


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(3, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 2) for _ in range(4)])
        self.never = nn.Linear(4, 2)
        self.gate = nn.Parameter(torch.tensor(0.5))

    def forward(self, x, step):
        h = torch.relu(self.trunk(x))
        k = (step * 3 + RANK * (step % 2)) % 4
        out = self.heads[k](h)
        if step % 3 == 0:
            out = out * self.gate
        return out, k


def case_branches_that_differ_per_step():
    out = []
    for views in (False, True):
        model = DDP(filled(Branches()), find_unused_parameters=True, gradient_as_bucket_view=views)
        opt = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
        for step in range(6):
            opt.zero_grad(set_to_none=step % 2 == 0)
            y, _ = model(data(4, step=step)[0], step)
            y.pow(2).mean().backward()
            out.append(
                [None if p.grad is None else p.grad.sum().item() for p in model.parameters()]
            )
            opt.step()
        out.append(params(model))
    return out


def case_accumulate_and_clip():
    model = DDP(mlp())
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    norms = []
    for it in range(4):
        opt.zero_grad()
        for micro in range(3):
            x, y = data(4, step=it * 3 + micro)
            with model.no_sync() if micro < 2 else contextlib.nullcontext():
                (F.mse_loss(model(x), y) / 3).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05))
        opt.step()
        sched.step()
    return norms, params(model)


class TiedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.rnn = nn.GRU(6, 6, batch_first=True)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.emb.weight
        self.frozen = nn.Linear(6, 6)
        for p in self.frozen.parameters():
            p.requires_grad_(False)

    def forward(self, t):
        h, _ = self.rnn(self.emb(t))
        return self.head(self.norm(h + self.frozen(h)))


def case_tied_language_model():
    m = TiedLM()
    filled(m)
    model = DDP(m, bucket_cap_mb=0.0002)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    tokens = (torch.arange(20).reshape(2, 10) * 3 + RANK * 5) % 11
    losses = []
    for _ in range(4):
        opt.zero_grad()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 11), tokens[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return (
        losses,
        len(list(model.parameters())),
        sorted(model.state_dict()),
        model.module.head.weight is model.module.emb.weight,
        params(model),
    )


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.w = nn.Parameter(weights(3, 3))

    def forward(self, x):
        x = self.a(x).tanh() @ self.w
        x = self.a(x).tanh() @ self.w.t()
        return x * self.w.diagonal()


def case_parameters_used_twice_with_checkpointing():
    out = []
    model = DDP(filled(Twice()))
    model(data(4)[0]).sum().backward()
    out.append([p.grad for p in model.parameters()])

    class Ck(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = filled(Twice())

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = DDP(Ck())
    model(data(4)[0]).sum().backward()
    out.append([p.grad for p in model.parameters()])
    model = DDP(Ck(), static_graph=True)
    for s in range(3):
        model.zero_grad()
        (model(data(4, step=s)[0]).sum() + model(data(4, step=s + 1)[0]).sum()).backward()
    out.append([p.grad for p in model.parameters()])
    return out


def case_gradient_hooks():
    calls = []
    m = mlp()
    for i, p in enumerate(m.parameters()):
        p.register_hook(lambda g, i=i: (calls.append(i), g * 2)[1])
    m[0].register_full_backward_hook(lambda mod, gi, go: calls.append("full"))
    model = DDP(m)
    seen = []
    m[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(float(p.grad.abs().sum())))
    model(data(4)[0].requires_grad_()).sum().backward()
    return (sorted(map(str, calls)), len(seen), [p.grad for p in model.parameters()])


def case_compression():
    model = DDP(mlp())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for s in range(3):
        opt.zero_grad()
        x, y = data(4, step=s)
        F.mse_loss(model(x), y).backward()
        opt.step()
    return [float(f"{v:.2g}") for p in model.parameters() for v in p.detach().flatten().tolist()]


def case_power_sgd():
    losses = []
    for kw in (
        {"use_error_feedback": False},
        {"warm_start": False},
        {"orthogonalization_epsilon": 1e-06},
    ):
        torch.manual_seed(0)
        model = DDP(filled(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))))
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=8, start_powerSGD_iter=3, min_compression_rate=0.5, **kw
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        opt = torch.optim.SGD(model.parameters(), lr=0.05)
        for s in range(6):
            opt.zero_grad()
            x = weights(4, 8, scale=1.0) + RANK + s * 0.1
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            losses.append(float(f"{loss.item():.2g}"))
        losses.append(state.iter)
    return losses


def case_own_hook_quantized():
    def hook(state, bucket):
        g = bucket.buffer()
        scale = g.abs().max().reshape(1)
        dist.all_reduce(scale, op=dist.ReduceOp.MAX)
        q = (g / scale * 127).round().to(torch.int8)
        parts = [torch.empty_like(q) for _ in range(SIZE)]
        fut = dist.all_gather(parts, q, async_op=True).get_future()

        def dec(f):
            total = torch.zeros_like(g)
            for p in parts:
                total += p.float() * scale / 127
            return total / SIZE

        return fut.then(dec)

    model = DDP(mlp(), bucket_cap_mb=5e-05)
    model.register_comm_hook(None, hook)
    x, y = data(4)
    for _ in range(2):
        model.zero_grad()
        F.mse_loss(model(x), y).backward()
    return [p.grad for p in model.parameters()]


def case_buffers_and_broadcast():
    class Buf(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 2)
            self.register_buffer("count", torch.tensor(10 * RANK, dtype=torch.long))
            self.register_buffer("mean", torch.full((2,), float(RANK)))

        def forward(self, x):
            with torch.no_grad():
                self.count += 1
                self.mean.mul_(0.9).add_(x.mean() * 0.1)
            return self.lin(x) + self.mean

    out = []
    for bb in (True, False):
        model = DDP(filled(Buf()), broadcast_buffers=bb)
        for s in range(2):
            model(data(4, step=s)[0]).sum().backward()
        out.append([model.module.count, model.module.mean])
    return out


def case_parameters_differ_at_start():
    torch.manual_seed(100 + RANK)
    m = nn.Linear(3, 2)
    with torch.no_grad():
        m.weight.fill_(RANK + 1.0)
        m.bias.fill_(RANK - 1.0)
    model = DDP(m)
    return params(model)


def case_zero_groups_and_state():
    model = DDP(mlp())
    ps = list(model.parameters())
    opt = ZeroRedundancyOptimizer(ps[:2], torch.optim.Adam, lr=0.01)
    opt.add_param_group({"params": ps[2:], "lr": 0.002})
    for s in range(3):
        opt.zero_grad()
        x, y = data(4, step=s)
        F.mse_loss(model(x), y).backward()
        opt.step()
    opt.consolidate_state_dict(to=0)
    found = None
    if RANK == 0:
        sd = opt.state_dict()
        found = [
            sorted(sd["state"]),
            [g["lr"] for g in sd["param_groups"]],
            [sd["state"][k]["exp_avg"] for k in sorted(sd["state"])],
        ]
    return found, params(model)


def case_compiled_step():
    model = DDP(mlp())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    f = (
        torch.compile(model, backend="eager")
        if torch.__version__ and (not hasattr(torch, "as_torch"))
        else torch.compile(model)
    )
    out = []
    for s in range(4):
        opt.zero_grad()
        x, y = data(4, step=s)
        loss = F.mse_loss(f(x), y)
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out, params(model)


def case_forward_before_no_sync():
    """The pass that is reduced is the first backward after a forward outside."""
    model = DDP(mlp())
    model(data(4)[0])
    with model.no_sync():
        model(data(4, step=1)[0]).sum().backward()
    return [p.grad for p in model.parameters()]


def case_outputs_as_dataclass_and_kwargs():
    @dataclasses.dataclass
    class Out:
        loss: torch.Tensor
        logits: torch.Tensor = None

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 2)
            self.b = nn.Linear(3, 2)

        def forward(self, x=None, labels=None, *, use_b=False):
            logits = self.b(x) if use_b else self.a(x)
            return Out(loss=F.cross_entropy(logits, labels), logits=logits)

    model = DDP(filled(M()), find_unused_parameters=True)
    out = []
    for s in range(4):
        model.zero_grad()
        r = model(x=data(4, step=s)[0], labels=torch.tensor([0, 1, 1, 0]), use_b=bool(s % 2))
        r.loss.backward()
        out.append([None if p.grad is None else p.grad for p in model.parameters()])
    return out


def case_eval_and_no_grad_between():
    model = DDP(nn.Sequential(filled(nn.Linear(3, 3)), nn.Dropout(0.0), filled(nn.Linear(3, 1))))
    out = []
    for s in range(3):
        model.train()
        model.zero_grad()
        model(data(4, step=s)[0]).sum().backward()
        model.eval()
        with torch.no_grad():
            total = model(data(2, step=s)[0]).sum()
        dist.all_reduce(total)
        out.append(total)
    return out, [p.grad for p in model.parameters()]


def case_grad_scaler_like_inf_step():
    model = DDP(mlp())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scales = []
    for s in range(4):
        opt.zero_grad()
        x, y = data(4, step=s)
        if s == 1 and RANK == 1:
            x = x * float("inf")
        loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, params(model)


def case_autocast():
    model = DDP(mlp())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(model(data(4)[0]).float(), data(4)[1])
    loss.backward()
    return (
        [p.grad.dtype == torch.float32 for p in model.parameters()],
        [float(f"{v:.1g}") for v in list(model.parameters())[3].grad.flatten().tolist()],
    )


def case_checkpoint_state_dicts():
    model = DDP(mlp())
    opt = torch.optim.Adam(model.parameters(), lr=0.05)

    def step(m, o, s):
        o.zero_grad()
        x, y = data(4, step=s)
        loss = F.mse_loss(m(x), y)
        loss.backward()
        o.step()
        return loss.item()

    first = [step(model, opt, s) for s in range(2)]
    buf = io.BytesIO()
    torch.save({"m": model.state_dict(), "o": opt.state_dict()}, buf)
    obj = [buf.getvalue() if RANK == 0 else None]
    dist.broadcast_object_list(obj, src=0)
    later = [step(model, opt, s) for s in (2, 3)]
    m2 = DDP(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)))
    o2 = torch.optim.Adam(m2.parameters(), lr=1.0)
    ck = torch.load(io.BytesIO(obj[0]), map_location="cpu")
    m2.load_state_dict(ck["m"])
    o2.load_state_dict(ck["o"])
    again = [step(m2, o2, s) for s in (2, 3)]
    return first, later, again == later, list(ck["m"])


def case_ddp_subgroup():
    g = dist.new_group([0]) if True else None
    g1 = dist.new_group([1])
    own = g if RANK == 0 else g1
    model = DDP(mlp(), process_group=own)
    model(data(4)[0]).sum().backward()
    return [p.grad for p in model.parameters()], dist.get_world_size(own)


def case_ignored_parameters():
    m = mlp()
    DDP._set_params_and_buffers_to_ignore_for_model(m, ["0.weight"])
    model = DDP(m)
    for s in range(2):
        model.zero_grad()
        model(data(4, step=s)[0]).sum().backward()
    return [p.grad for p in model.parameters()]


def case_multiple_ddp_models_gan():
    g, d = (
        DDP(filled(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3)))),
        DDP(filled(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1)))),
    )
    og, od = (
        torch.optim.Adam(g.parameters(), lr=0.01, betas=(0.5, 0.9)),
        torch.optim.Adam(d.parameters(), lr=0.01),
    )
    out = []
    for s in range(3):
        z = weights(4, 2, scale=1.0) + RANK + s
        real = data(4, step=s)[0]
        od.zero_grad()
        fake = g(z)
        ld = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
        ld.backward()
        od.step()
        og.zero_grad()
        for p in d.parameters():
            p.requires_grad_(False)
        lg = F.softplus(-d(fake)).mean()
        lg.backward()
        og.step()
        for p in d.parameters():
            p.requires_grad_(True)
        out.append([ld.item(), lg.item()])
    return out


def case_weight_norm_and_spectral():
    m = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 1)
    )
    filled(m)
    with torch.no_grad():
        for p in m.parameters():
            p.add_(0.5)
    model = DDP(m)
    for s in range(2):
        model.zero_grad()
        model(data(4, step=s)[0]).sum().backward()
    return ([p.grad for p in model.parameters()], sorted((n for n, _ in model.named_parameters())))


def case_forward_in_no_sync_backward_outside():
    model = DDP(mlp())
    with model.no_sync():
        a = model(data(4)[0]).sum()
    a.backward()
    g = [p.grad.clone() for p in model.parameters()]
    model(data(4, step=1)[0]).sum().backward()
    return g, [p.grad for p in model.parameters()]


def case_forward_outside_backward_in_no_sync():
    model = DDP(mlp())
    a = model(data(4)[0]).sum()
    with model.no_sync():
        a.backward()
    return [p.grad.clone() for p in model.parameters()]


def case_eval_between():
    model = DDP(mlp())
    with model.no_sync():
        a = model(data(4)[0]).sum()
    with torch.no_grad():
        model(data(4)[0])
    a.backward()
    return [p.grad.clone() for p in model.parameters()]


if __name__ == "__main__":
    main({**vars(torchrun_messages), **globals()})
