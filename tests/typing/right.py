"""A program without mistakes: a type checker says nothing about it."""

from __future__ import annotations

import numpy as np

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import Tensor, nn, optim
from evergrad.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.norm = nn.LayerNorm(width)
        self.rnn = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.scale = nn.Parameter(eg.ones(width))
        self.register_buffer("seen", eg.zeros(1, dtype=eg.int64))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x)) * self.scale
        h, _ = self.rnn(self.norm(h).unsqueeze(1))
        return F.softmax(h.squeeze(1), dim=-1)


def train() -> float:
    eg.manual_seed(0)
    model = Net()
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    data = TensorDataset(eg.randn(16, 4), eg.randint(0, 8, (16,)))
    total = 0.0
    for inputs, labels in DataLoader(data, batch_size=4, shuffle=True):
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
    return total


def shapes(x: Tensor) -> tuple[int, int]:
    B, T = x.shape
    y = x.view(B, T, 1).expand(-1, -1, 3).permute(0, 2, 1).reshape(B * 3, -1)
    z = eg.cat([y, y], dim=0).to(eg.float64).to("cpu").to(device="cpu", dtype=eg.float32)
    values, indices = z.max(dim=1)
    top = z.topk(2, dim=-1).values
    total: Tensor = z.sum(axis=0, keepdims=True) + 1.5 - top.mean() / 2
    mask = (z > 0) & ~(z == 1) | z.isnan()
    z[mask] = 0
    z.add_(1).mul_(2.0).clamp_(min=0, max=1)
    where: Tensor = eg.where(mask, z, 0.0)
    pairs = eg.nonzero(mask, as_tuple=True)
    out = eg.empty(3)
    eg.add(eg.ones(3), 2, out=out)
    arr = out.numpy()
    back = eg.from_numpy(np.asarray(arr)).float().long().bool()
    length: int = x.size(0) + x.stride(-1) + len(pairs) + indices.numel()
    u, s, vh = eg.linalg.svd(eg.randn(3, 3))
    u = u + eg.fft.rfft(eg.randn(8), norm="ortho").abs()
    made = [
        eg.zeros_like(values, dtype=eg.bfloat16),
        eg.zeros(2, 3, dtype=eg.float32),
        eg.zeros((2, 3)),
        eg.randn(size=(2, 3)),
    ]
    ok = bool(total.any()) and eg.equal(where, where) and back.dtype is eg.bool
    e = eg.einsum("ij,jk->ik", u, vh) @ s.diag() ** 2
    made += [1 - e, 2 / e, 3 * e, -e, abs(e), e[0], e[..., None], e.T, np.float32(2) * e]
    with eg.no_grad(), eg.autocast("cpu"):
        again = eg.compile(shapes)
    return length + len(made), int(ok) + again(x)[0]


def pooled(x: Tensor, w: Tensor) -> Tensor:
    y = F.conv2d(x, w, stride=(2, 2), padding="same" if w.shape[-1] == 1 else 1)
    values, places = F.max_pool2d(y, 2, return_indices=True)
    return F.max_unpool2d(values, places, 2) + F.adaptive_avg_pool2d(F.max_pool2d(x, 2), (1, None))
