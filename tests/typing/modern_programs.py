# ruff: noqa: B007, B905, E741, F841, RUF009, RUF059
"""Programs in a modern typed style: a type checker says nothing about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypedDict,
    TypeVar,
)

import numpy as np
import numpy.typing as npt

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import (
    Tensor,
    amp,
    autograd,
    fft,
    func,
    linalg,
    memory,
    nn,
    optim,
    special,
)
from evergrad import (
    distributions as D,
)
from evergrad.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters
from evergrad.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from evergrad.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    SequentialLR,
)
from evergrad.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    random_split,
)

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Config:
    width: int = 16
    heads: int = 2
    dtype: eg.dtype = eg.float32
    device: eg.device = eg.device("cpu")
    shape: eg.Size = field(default_factory=lambda: eg.Size([2, 3]))


class Batch(NamedTuple):
    x: Tensor
    y: Tensor


class Out(TypedDict):
    loss: Tensor
    logits: Tensor


class Loss(Protocol):
    def __call__(self, a: Tensor, b: Tensor, /) -> Tensor: ...


LOSS: Final[Loss] = F.mse_loss


class Attention(nn.Module):
    scale: float
    mask: Tensor

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.qkv = nn.Linear(c.width, 3 * c.width, bias=False, device=c.device, dtype=c.dtype)
        self.out = nn.Linear(c.width, c.width)
        self.heads = c.heads
        self.scale = c.width**-0.5
        self.register_buffer("mask", eg.ones(8, 8).tril().bool(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, self.heads, w // self.heads).transpose(1, 2) for z in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * self.scale
        att = att.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1)
        return self.out((att @ v).transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    blocks: ClassVar[int] = 0

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention(c) for _ in range(2)])
        self.named = nn.ModuleDict({"a": nn.GELU(), "b": nn.Identity()})
        self.ps = nn.ParameterList([nn.Parameter(eg.zeros(3))])
        self.gain = nn.Parameter(eg.tensor(1.0), requires_grad=True)

    def forward(self, x: Tensor, *, last: bool = False) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = x + layer(x)
        for name, act in self.named.items():
            x = act(x)
        return x[:, -1] if last else x * self.gain


class Squares(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return eg.tensor([float(i)]), i


class Lines(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        yield from ("a", "b")


def collate(items: list[tuple[Tensor, int]]) -> Batch:
    xs, ys = zip(*items)
    return Batch(eg.stack(list(xs)), eg.tensor(list(ys)))


def loaders() -> tuple[int, float]:
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(
        Squares(),
        batch_size=2,
        shuffle=True,
        num_workers=0,
        collate_fn=collate,
        drop_last=True,
        generator=eg.Generator().manual_seed(0),
    )
    n = 0
    for batch in loader:
        n += 1
    a, b = random_split(Squares(), [8, 2])
    s = Subset(Squares(), [0, 1])
    return n + len(a) + len(s), float(len(loader))


class Square(autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        result: Tensor = grad * (2 * x)
        return result


def fit(model: nn.Module, data: Iterable[Batch], *, epochs: int = 1) -> list[float]:
    opt: optim.Optimizer = optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=3e-4,
        betas=(0.9, 0.95),
        eps=1e-8,
        fused=True,
    )
    warm = LinearLR(opt, start_factor=0.1, total_iters=5)
    cos = CosineAnnealingLR(opt, T_max=10, eta_min=1e-5)
    sched = SequentialLR(opt, [warm, cos], milestones=[5])
    losses: list[float] = []
    scaler = amp.GradScaler("cpu", enabled=False)
    for _ in range(epochs):
        for batch in data:
            with amp.autocast("cpu", dtype=eg.bfloat16):
                loss = LOSS(model(batch.x), batch.y)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            norm = clip_grad_norm_(model.parameters(), max_norm=1.0)
            scaler.step(opt)
            scaler.update()
            sched.step()
            losses.append(loss.item() + norm.item())
    for group in opt.param_groups:
        group["lr"] *= 0.5
    return losses


def newton(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    g = func.grad(f)(x)
    h = func.hessian(f)(x)
    j = func.jacrev(f)(x)
    v, vjp = func.vjp(f, x)
    p, t = func.jvp(f, (x,), (eg.ones_like(x),))
    b = func.vmap(f, in_dims=0)(x.unsqueeze(0))
    return x - linalg.solve(h, g)


def functional(model: nn.Module, x: Tensor) -> Tensor:
    params = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    out = func.functional_call(model, (params, buffers), (x,))
    assert isinstance(out, Tensor)
    return out


@eg.no_grad()
def evaluate(model: M, x: Tensor) -> M:
    model.eval()
    model(x)
    return model


@eg.compile
def step(x: Tensor, y: Tensor) -> Tensor:
    return ((x - y) ** 2).mean()


def compiled() -> float:
    plan = step.plan(eg.zeros(2), eg.ones(2))
    fast = eg.compile(lambda a: a * 2)
    z = fast(eg.ones(3))
    with memory.steady() as steady:
        step(eg.zeros(2), eg.ones(2))
        steady.step()
    return float(step(eg.zeros(2), eg.ones(2))) + float(z.sum())


def linear_algebra(a: Tensor) -> tuple[Tensor, Tensor]:
    u, s, vh = linalg.svd(a, full_matrices=False)
    w, v = linalg.eigh(a @ a.mT)
    q, r = linalg.qr(a)
    n: Tensor = linalg.norm(a, ord="fro", dim=(-2, -1))
    d = linalg.det(a @ a.mT)
    l = linalg.cholesky(a @ a.T + eg.eye(a.size(0)))
    return u * s @ vh, w.sum() + v.sum() + q.sum() + r.sum() + n + d + l.sum()


def spectra(x: Tensor) -> Tensor:
    f = fft.rfft(x, n=16, dim=-1, norm="ortho")
    return f.abs().square() + fft.irfft(f).sum() + f.real + f.imag + f.angle()


def dist() -> Tensor:
    n = D.Normal(eg.zeros(3), eg.ones(3))
    z = n.rsample((5,))
    c = D.Categorical(logits=eg.randn(4))
    i = D.Independent(n, 1)
    return (
        n.log_prob(z).sum()
        + c.sample().float()
        + c.entropy()
        + D.kl_divergence(n, n).sum()
        + i.log_prob(z).sum()
    )


def numpy_io(a: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    t = eg.from_numpy(a)
    u = eg.as_tensor(a)
    v = eg.tensor(a.tolist(), dtype=eg.float64)
    return (t + u + v).numpy()


def indexing(x: Tensor) -> Tensor:
    a = x[0]
    b = x[..., None]
    c = x[:, 1:3]
    d = x[x > 0]
    e = x[[0, 1]]
    f = x[eg.tensor([0])]
    x[0] = 1.0
    x[..., 0] = a[..., 0]
    x[x < 0] = 0
    i: int = x.argmax().item().__int__()
    return a.sum() + b.sum() + c.sum() + d.sum() + e.sum() + f.sum() + i


def scalars(x: Tensor) -> float:
    if x.sum() > 0:
        return float(x.sum())
    n = int(x.numel())
    return math.sqrt(x.pow(2).sum().item()) + n + x.size(0) + len(x) + x.dim() + x.element_size()


def arith(x: Tensor) -> Tensor:
    y = 1 + x
    y = 2 - x
    y = 3 / (x + 1)
    y = 2**x
    y = x // 2
    y = x % 3
    y = -x
    y = abs(x)
    y = x @ x.T
    y += 1
    y *= 2
    y = y.clamp(min=0).clamp_max(3)
    z = (x > 0) & (x < 1) | ~(x == 2)
    return eg.where(z, x, -x) + y + (x >= 0).float() + eg.logical_not(z)


def reduce(x: Tensor) -> Tensor:
    v, i = x.max(dim=1)
    w = x.min()
    s, p = eg.std_mean(x, dim=0)
    t = x.topk(2)
    o = x.sort(dim=-1, descending=True)
    k = x.kthvalue(1)
    m = x.median(dim=0).values
    q = eg.quantile(x, eg.tensor([0.5]))
    vals, inv, cnt = eg.unique(x, return_inverse=True, return_counts=True)
    return (
        v.sum()
        + i.sum()
        + w
        + s.sum()
        + p.sum()
        + t.values.sum()
        + o.indices.sum()
        + k.values.sum()
        + m.sum()
        + q.sum()
        + vals.sum()
        + inv.sum()
        + cnt.sum()
    )


def shapes(x: Tensor) -> tuple[int, ...]:
    parts = x.split([1, 3], dim=0)
    ch = eg.chunk(x, 2)
    rows = x.unbind(0)
    g, h = eg.meshgrid(eg.arange(2), eg.arange(3), indexing="ij")
    y = eg.cat([*parts], 0)
    y = eg.stack(rows)
    y = y.flatten()
    y = y.unflatten(0, (4, -1))
    y = y.repeat(2, 1)
    y = F.pad(y, (1, 1), mode="constant", value=0.0)
    y = eg.einsum("ij,kj->ik", y, y)
    y = y.squeeze().unsqueeze(-1)
    y = y.roll(1, 0).flip(0).contiguous().movedim(0, 1)
    y = y.expand(2, -1, -1) if y.dim() == 2 else y
    return tuple(y.shape) + tuple(g.shape) + tuple(ch[0].shape) + h.size()


def sequences(xs: Sequence[Tensor]) -> Tensor:
    p = pad_sequence(list(xs), batch_first=True, padding_value=0.0)
    packed = pack_padded_sequence(
        p, eg.tensor([x.size(0) for x in xs]), batch_first=True, enforce_sorted=False
    )
    out, (h, c) = nn.LSTM(4, 4, batch_first=True)(packed)
    y, lengths = pad_packed_sequence(out, batch_first=True)
    gru_out, hn = nn.GRU(4, 4)(p)
    return y.sum() + h.sum() + c.sum() + gru_out.sum() + hn.sum() + lengths.sum()


def state(model: nn.Module, path: Path) -> int:
    sd = model.state_dict()
    eg.save({"model": sd, "step": 3}, path)
    ck = eg.load(path, weights_only=True, map_location="cpu")
    missing, unexpected = model.load_state_dict(ck["model"], strict=False)
    r = model.load_state_dict(sd)
    return len(missing) + len(unexpected) + len(r.missing_keys)


def hooks(model: nn.Module) -> None:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        print(module, output.shape)

    handle = model.register_forward_hook(hook)
    handle.remove()
    p = next(model.parameters())
    p.register_hook(lambda g: g * 2)
    model.apply(lambda m: None).train(True).to(eg.float64).requires_grad_(False)


def init(m: nn.Module) -> None:
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        if m.bias is not None:
            nn.init.zeros_(m.bias)
    elif isinstance(m, nn.Conv2d | nn.Embedding):
        nn.init.normal_(m.weight, mean=0.0, std=0.02)


def grads(x: Tensor) -> Tensor:
    y = (x**3).sum()
    (g,) = autograd.grad(y, x, create_graph=True)
    (h,) = eg.autograd.grad(g.sum(), [x])
    y.backward()
    assert x.grad is not None
    x.grad.zero_()
    return g.detach() + h + x.grad


def losses(a: Tensor, b: Tensor) -> Tensor:
    c = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=-100)
    return (
        c(a, b)
        + F.cross_entropy(a, b, weight=None, reduction="sum")
        + F.binary_cross_entropy_with_logits(a, a)
        + F.nll_loss(F.log_softmax(a, dim=1), b)
        + F.smooth_l1_loss(a, a, beta=0.5)
        + F.kl_div(a, a, log_target=True)
    )


def conv(x: Tensor) -> Tensor:
    net = nn.Sequential(
        nn.Conv2d(3, 8, kernel_size=3, padding="same"),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, (3, 3), stride=(1, 2), padding=(1, 1), groups=2),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(8, 2),
    )
    y: Tensor = net(x)
    first = net[0]
    z, idx = F.max_pool2d(x, 2, return_indices=True)
    return (
        y.sum()
        + F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False).sum()
        + z.sum()
        + idx.sum()
    )


def transformer(x: Tensor) -> Tensor:
    layer = nn.TransformerEncoderLayer(
        16, 2, dim_feedforward=32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    enc = nn.TransformerEncoder(layer, num_layers=2)
    mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
    mha = nn.MultiheadAttention(16, 2, batch_first=True)
    out, w = mha(x, x, x, need_weights=False, attn_mask=mask)
    return enc(x, mask=mask, is_causal=True) + out


def sdpa(q: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(
        q, q, q, attn_mask=None, dropout_p=0.0, is_causal=True, scale=None
    )


def ema(model: M, decay: float = 0.99) -> Mapping[str, Tensor]:
    shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}
    with eg.no_grad():
        for k, v in model.state_dict().items():
            shadow[k].mul_(decay).add_(v, alpha=1 - decay)
            shadow[k].lerp_(v, 0.1)
    return shadow


def vec(model: nn.Module) -> Tensor:
    v = parameters_to_vector(model.parameters())
    vector_to_parameters(v, model.parameters())
    return v


def rng() -> Tensor:
    g = eg.Generator(device="cpu").manual_seed(3)
    state = eg.get_rng_state()
    eg.set_rng_state(state)
    return (
        eg.randn(2, 3, generator=g)
        + eg.rand((2, 3), generator=g)
        + eg.randint(0, 4, (2, 3))
        + eg.randperm(6).view(2, 3)
        + eg.normal(0.0, 1.0, (2, 3))
        + eg.bernoulli(eg.full((2, 3), 0.5))
        + eg.multinomial(eg.ones(3), 2, replacement=True).sum()
    )


def create() -> list[Tensor]:
    return [
        eg.zeros((2, 3)),
        eg.ones(2, 3),
        eg.full((2,), 3.0),
        eg.eye(3),
        eg.arange(0, 10, 2),
        eg.linspace(0, 1, 5),
        eg.empty(0),
        eg.zeros_like(eg.ones(3)),
        eg.tensor([[1, 2], [3, 4]], dtype=eg.long),
        eg.tensor(3.0, requires_grad=True),
        eg.ones(3).new_zeros(2),
        eg.tril(eg.ones(3, 3)),
        eg.complex(eg.ones(2), eg.ones(2)),
        eg.tensor(True),
        eg.tensor(1j),
    ]


def schedule(opt: optim.Optimizer) -> list[float]:
    a = LambdaLR(opt, lr_lambda=lambda s: min(1.0, s / 10))
    b = OneCycleLR(opt, max_lr=0.1, total_steps=100, pct_start=0.3)
    c = optim.lr_scheduler.ReduceLROnPlateau(opt, mode="min", factor=0.5, patience=3)
    c.step(0.5)
    a.step()
    return [float(v) for v in a.get_last_lr()]


def closure(model: nn.Module, x: Tensor) -> None:
    opt = optim.LBFGS(model.parameters(), lr=1, max_iter=5, line_search_fn="strong_wolfe")

    def f() -> Tensor:
        opt.zero_grad()
        loss: Tensor = model(x).sum()
        loss.backward()
        return loss

    opt.step(f)


def dtypes(x: Tensor) -> bool:
    i = eg.finfo(eg.float32)
    j = eg.iinfo(eg.int32)
    return (
        x.dtype.is_floating_point
        and x.dtype == eg.float32
        and i.max > j.max
        and x.is_contiguous()
        and x.requires_grad
        and eg.is_tensor(x)
        and eg.allclose(x, x, atol=1e-6)
        and x.any().item() is True
        and eg.equal(x, x)
    )


def iterate(x: Tensor) -> int:
    n = 0
    for row in x:
        n += row.numel()
    for a, b in zip(x, x, strict=True):
        n += int((a * b).sum())
    return n + sum(p.numel() for p in nn.Linear(2, 2).parameters() if p.requires_grad)


def spec(x: Tensor) -> Tensor:
    return (
        special.erf(x)
        + special.expit(x)
        + special.logsumexp(x, dim=0)
        + special.gammaln(x)
        + eg.lgamma(x)
        + eg.special.i0(x)
    )


def ctx(flag: bool) -> Tensor:
    cm = eg.no_grad() if flag else nullcontext()
    with (
        cm,
        eg.inference_mode(False),
        eg.set_grad_enabled(True),
        eg.autograd.set_detect_anomaly(False),
    ):
        return eg.ones(2)


class Registry(Generic[T]):
    def __init__(self) -> None:
        self.items: dict[str, T] = {}

    def add(self, name: str) -> Callable[[T], T]:
        def put(x: T) -> T:
            self.items[name] = x
            return x

        return put


MODELS: Registry[type[nn.Module]] = Registry()


@MODELS.add("tiny")
class Tiny(nn.Module):
    def forward(self, x: Tensor) -> Out:
        return {"loss": x.sum(), "logits": x}


ACT: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": eg.tanh,
    "sig": eg.sigmoid,
}


def activation(name: Literal["relu", "gelu"]) -> Callable[[Tensor], Tensor]:
    return ACT[name]


def mem(x: Tensor) -> int:
    with memory.track() as t:
        y = x * 2
    return x.nbytes + x.storage_offset() + x.stride()[0] + x.stride(0) + y.data_ptr()


def scatter(x: Tensor, i: Tensor) -> Tensor:
    return (
        x.gather(1, i)
        + x.scatter(1, i, 0.0)
        + x.scatter_add(1, i, x)
        + x.index_select(0, i[0]).sum()
        + eg.take_along_dim(x, i, dim=1)
        + x.index_add(0, i[0], x)
        + F.one_hot(i, num_classes=3).sum()
        + x.masked_select(x > 0).sum()
        + eg.bincount(i.flatten()).sum()
        + eg.cumsum(x, dim=0)
        + x.scatter_reduce(0, i, x, reduce="sum")
    )


def ckpt(m: nn.Module, x: Tensor) -> Tensor:
    from evergrad.utils.checkpoint import checkpoint

    y: Tensor = checkpoint(m, x, use_reentrant=False)
    return y


def emb(i: Tensor) -> Tensor:
    e = nn.Embedding(10, 4, padding_idx=0)
    e.weight.data.uniform_(-0.1, 0.1)
    return e(i) + F.embedding(i, e.weight) + nn.EmbeddingBag(10, 4, mode="mean")(i).sum()


def norms(x: Tensor) -> Tensor:
    return (
        nn.LayerNorm([4])(x)
        + F.layer_norm(x, (4,))
        + nn.RMSNorm(4)(x)
        + F.normalize(x, p=2, dim=-1)
        + nn.GroupNorm(2, 4)(x)
    )


def misc(x: Tensor) -> Tensor:
    y = x.clone(memory_format=eg.contiguous_format).detach().requires_grad_()
    y.data = x
    y.copy_(x, non_blocking=True)
    y = (
        y.type(eg.float64)
        .float()
        .double()
        .half()
        .bfloat16()
        .long()
        .int()
        .bool()
        .to(x)
        .to(x.dtype)
        .cpu()
    )
    return y.type_as(x).view_as(x).expand_as(x).reshape(-1)[:1]


def backward_extra(x: Tensor) -> None:
    x.sum().backward(gradient=None, retain_graph=True)
    eg.autograd.backward([x.sum()], [eg.tensor(1.0)])
    x.retain_grad()
    print(x.grad_fn, x.is_leaf, f"{x:.3f}" if x.dim() == 0 else x, repr(x))


def subclass_loss() -> nn.Module:
    class Focal(nn.CrossEntropyLoss):
        def forward(self, input: Tensor, target: Tensor) -> Tensor:
            return super().forward(input, target) * 2

    return Focal()


def custom_opt() -> type[optim.Optimizer]:
    class Sign(optim.Optimizer):
        def __init__(self, params: Iterable[nn.Parameter], lr: float = 0.1) -> None:
            super().__init__(params, {"lr": lr})

        @eg.no_grad()
        def step(self, closure: Callable[[], float] | None = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.add_(p.grad.sign(), alpha=-group["lr"])
                        self.state[p]["n"] = 1

    return Sign


def nested_tensors(xs: list[Tensor]) -> Tensor:
    nt = eg.nested.nested_tensor(xs)
    return eg.nested.to_padded_tensor(nt, 0.0)


def sparse_(x: Tensor) -> Tensor:
    s = x.to_sparse()
    return (
        eg.sparse.mm(s, x)
        + s.to_dense()
        + eg.sparse_coo_tensor(eg.tensor([[0], [0]]), eg.tensor([1.0]), (4, 4))
        .coalesce()
        .values()
        .sum()
    )


def dataclass_use(c: Config = Config()) -> Tensor:
    return eg.zeros(c.shape, dtype=c.dtype, device=c.device)
