"""Small programs that train models, without mistakes: type checkers say nothing, and they run."""

# Calls of modules and of transformed functions give Any, as in PyTorch.
# mypy: warn-return-any=False

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import Tensor, amp, nn, optim
from evergrad.utils import checkpoint
from evergrad.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    Subset,
    TensorDataset,
    random_split,
)  # fmt: skip


class Residual(nn.Module):
    def __init__(self, width: int, layers: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.named = nn.ModuleDict({"norm": nn.LayerNorm(width), "drop": nn.Dropout(0.1)})
        self.gain = nn.Parameter(eg.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + F.gelu(block(x)) * self.gain
        return self.named["drop"](self.named["norm"](x))


def training_loop() -> float:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), Residual(8), nn.Linear(8, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    x, y = eg.randn(16, 4), eg.randint(3, (16,))
    losses: list[float] = []
    for _epoch in range(2):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    accuracy = (model(x).argmax(dim=-1) == y).float().mean().item()
    return sum(losses) + accuracy


def closures() -> Tensor:
    w = eg.zeros(2, requires_grad=True)
    optimizer = optim.LBFGS([w], lr=1.0, max_iter=5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (w - eg.tensor([1.0, 2.0])).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return w.detach()


def groups_and_schedules() -> list[float]:
    layer = nn.Linear(2, 2)
    optimizer = optim.Adam(
        [{"params": [layer.weight], "lr": 1e-2}, {"params": [layer.bias], "weight_decay": 0.0}],
        lr=1e-3,
    )
    warm = optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    cosine = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    schedule = optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[2])
    rates: list[float] = []
    for _ in range(3):
        optimizer.step()
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
        rates.extend(schedule.get_last_lr())
    by_lambda = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)
    by_lambda.step()
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=1)
    plateau.step(0.5)
    return rates


class Squares(Dataset[tuple[Tensor, int]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return eg.tensor(float(index)), index**2


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        for i in range(4):
            yield eg.full((2,), float(i))


class EveryOther(Sampler[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(0, self.count, 2))

    def __len__(self) -> int:
        return self.count // 2


def datasets() -> int:
    data = Squares(10)
    seen = 0
    for x, label in DataLoader(data, batch_size=5, shuffle=True, drop_last=True):
        seen += x.shape[0] + int(label.sum())
    for batch in DataLoader(Stream(), batch_size=2):
        seen += batch.numel()
    loader = DataLoader(
        data, sampler=EveryOther(10), collate_fn=lambda rows: len(rows), batch_size=2
    )
    for count in loader:
        seen += count
    train, held_out = random_split(data, [8, 2], generator=eg.Generator().manual_seed(0))
    first: Tensor = train[0][0]
    subset = Subset(data, [1, 2])
    pairs = TensorDataset(eg.zeros(3, 2), eg.ones(3))
    a, b = pairs[0]
    return seen + len(held_out) + len(subset) + len(loader) + int(first) + a.numel() + b.numel()


class Encoder(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.position = nn.Parameter(eg.zeros(1, 16, width))
        layer = nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", eg.ones(16, 16).tril() == 0, persistent=False)
        self.mask: Tensor

    def forward(
        self, tokens: Tensor, targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        B, T = tokens.shape
        h = self.embed(tokens) + self.position[:, :T]
        h = self.encoder(h, mask=self.mask[:T, :T])
        h = h + self.attention(h, h, h, need_weights=False)[0]
        h = F.scaled_dot_product_attention(h, h, h, is_causal=True)
        logits = self.head(h)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(B * T, -1), targets.reshape(-1), ignore_index=-1)


def language_model() -> float:
    model = Encoder(11, 8)
    tokens = eg.randint(0, 11, (2, 5))
    _, loss = model(tokens[:, :-1], tokens[:, 1:])
    assert loss is not None
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return float(norm) + count


def images() -> Tensor:
    model = nn.Sequential(
        OrderedDict([
            ("conv", nn.Conv2d(3, 8, kernel_size=3, padding=1, stride=(2, 2))),
            ("norm", nn.BatchNorm2d(8)), ("act", nn.SiLU(inplace=True)),
            ("pool", nn.AdaptiveAvgPool2d((1, 1))), ("flat", nn.Flatten()),
        ])
    )  # fmt: skip
    x = eg.rand(2, 3, 8, 8)
    y = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    y = F.pad(y, (1, 1, 1, 1), mode="reflect")
    y = F.avg_pool2d(F.max_pool2d(y, 2), kernel_size=2, stride=2)
    up = nn.ConvTranspose2d(3, 3, 2, stride=2)(x)
    columns = F.unfold(x, kernel_size=2)
    model.eval()
    return (
        model(x).sum()
        + y.sum()
        + up.sum()
        + columns.sum()
        + F.grid_sample(
            x,
            F.affine_grid(eg.eye(2, 3)[None].expand(2, -1, -1), [2, 3, 4, 4], align_corners=False),
            align_corners=False,
        ).sum()
    )


def recurrent() -> Tensor:
    lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
    output, (h, c) = lstm(eg.randn(2, 5, 3))
    gru = nn.GRU(3, 4)
    rows, last = gru(eg.randn(5, 2, 3), eg.zeros(1, 2, 4))
    cell = nn.LSTMCell(3, 4)
    hx, cx = cell(eg.randn(2, 3))
    packed = nn.utils.rnn.pack_padded_sequence(
        eg.randn(2, 5, 3), [5, 3], batch_first=True, enforce_sorted=True
    )
    found, _ = lstm(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(found, batch_first=True)
    return (
        output.sum()
        + h.sum()
        + c.sum()
        + rows.sum()
        + last.sum()
        + hx.sum()
        + cx.sum()
        + (padded.sum() + lengths.sum())
    )


def losses() -> Tensor:
    x, y = eg.randn(4, 3), eg.randint(3, (4,))
    total = F.nll_loss(F.log_softmax(x, dim=1), y) + nn.MSELoss()(x, eg.zeros(4, 3))
    total = total + F.binary_cross_entropy_with_logits(x, eg.ones(4, 3), reduction="sum")
    total = total + F.smooth_l1_loss(x, x * 2) + nn.HuberLoss(delta=0.5)(x, x * 2)
    total = total + F.kl_div(F.log_softmax(x, -1), F.softmax(x, -1), reduction="batchmean")
    total = total + nn.CosineEmbeddingLoss()(x, x, eg.ones(4)) + F.cosine_similarity(x, x).sum()
    total = total + F.triplet_margin_loss(x, x + 1, x - 1) + nn.TripletMarginLoss()(x, x + 1, x - 1)
    return total + F.one_hot(y, num_classes=3).float().sum()


def saving(folder: Path) -> None:
    model, optimizer = nn.Linear(2, 2), optim.Adam([eg.zeros(1, requires_grad=True)])
    path = folder / "model.pt"
    eg.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    content = eg.load(path, map_location="cpu", weights_only=True)
    missing, unexpected = model.load_state_dict(content["model"], strict=True)
    optimizer.load_state_dict(content["optimizer"])
    epoch: int = content["epoch"]
    assert epoch == 3 and not missing and not unexpected


def hooks() -> list[str]:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    seen: list[str] = []

    def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append(f"{type(module).__name__} {tuple(output.shape)}")

    handles = [layer.register_forward_hook(note) for layer in model]
    x = eg.randn(1, 2, requires_grad=True)
    handle = x.register_hook(lambda grad: grad * 2)
    model(x).sum().backward()
    for h in [*handles, handle]:
        h.remove()
    model.register_full_backward_hook(lambda module, inputs, outputs: None)
    for name, module in model.named_modules():
        seen.append(f"{name}: {module.__class__.__name__}")
    return seen


def mixed_precision() -> float:
    model = nn.Linear(4, 4)
    optimizer = optim.AdamW(model.parameters())
    scaler = amp.GradScaler("cpu", enabled=False)
    with eg.autocast("cpu", dtype=eg.bfloat16):
        loss = model(eg.randn(2, 4)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale()


def checkpointing() -> Tensor:
    layer = nn.Linear(3, 3)
    x = eg.randn(2, 3, requires_grad=True)
    y: Tensor = checkpoint.checkpoint(layer, x, use_reentrant=False)
    y.sum().backward()
    assert x.grad is not None
    return x.grad


@dataclass
class Batch:
    inputs: Tensor
    labels: Tensor
    weight: float = 1.0


class Outcome(NamedTuple):
    loss: Tensor
    size: int


def compiled_steps() -> float:
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @eg.compile
    def step(batch: Batch) -> Outcome:
        loss = F.mse_loss(model(batch.inputs), batch.labels) * batch.weight
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return Outcome(loss.detach(), batch.inputs.shape[0])

    outcome = step(Batch(eg.ones(3, 2), eg.zeros(3, 1)))
    fast = eg.compile(model, fullgraph=True)
    loss: Tensor = outcome.loss
    return loss.item() + outcome.size + float(fast(eg.ones(1, 2)).sum())


class Polynomial(nn.Module):
    coefficients: Tensor

    def __init__(self, degree: int) -> None:
        super().__init__()
        self.degree = degree
        self.register_parameter("bias", None)
        self.coefficients = nn.Parameter(eg.randn(degree + 1))

    def forward(self, x: Tensor) -> Tensor:
        total = eg.zeros_like(x)
        for i, c in enumerate(self.coefficients):
            total = total + c * x**i
        return total

    def extra_repr(self) -> str:
        return f"degree={self.degree}"


def module_methods() -> int:
    model = Polynomial(2).double().train().requires_grad_(True).to("cpu").float()
    copies = [p.detach().clone() for p in model.parameters()]
    names: Sequence[str] = [name for name, _ in model.named_parameters()]
    model.apply(lambda m: None)
    for child in model.children():
        child.eval()
    state = model.state_dict()
    model.load_state_dict(OrderedDict(state))
    found = model.get_parameter("coefficients")
    model.zero_grad(set_to_none=True)
    return (
        len(copies) + len(names) + found.numel() + len(list(model.buffers())) + int(model.training)
    )


class Clipped(optim.Optimizer):
    def __init__(self, params: Sequence[Tensor], lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @eg.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    p.add_(p.grad.clamp(-1, 1), alpha=-group["lr"])


def own_optimizer() -> float:
    w = eg.ones(2, requires_grad=True)
    optimizer = Clipped([w])
    (w * 3).sum().backward()
    optimizer.step()
    average = optim.swa_utils.AveragedModel(nn.Linear(1, 1))
    return float(w.sum()) + len(list(average.parameters()))


def containers() -> Tensor:
    params = nn.ParameterList([nn.Parameter(eg.ones(2)), nn.Parameter(eg.ones(2))])
    table = nn.ParameterDict({"a": nn.Parameter(eg.ones(2))})
    total = eg.zeros(2)
    for p in params:
        total = total + p
    for name, p in table.items():
        total = total + p * len(name)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.append(nn.Linear(2, 1))
    head, tail = model[0], model[1:]
    return tail(head(total)).sum() + len(model)


def main() -> None:
    eg.manual_seed(0)
    for program in (
        training_loop,
        closures,
        groups_and_schedules,
        datasets,
        language_model,
        images,
        recurrent,
        losses,
        hooks,
        mixed_precision,
        checkpointing,
        compiled_steps,
        module_methods,
        own_optimizer,
        containers,
    ):
        program()
    with tempfile.TemporaryDirectory() as folder:
        saving(Path(folder))


if __name__ == "__main__":
    main()
