"""Low-rank adapters: a frozen network is fine-tuned, then the adapters are merged."""

import torch
from torch import nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    def __init__(self, weight, rank=2, alpha=4.0):
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, weight.shape[1]) * 0.1)
        self.b = nn.Parameter(torch.zeros(weight.shape[0], rank))
        self.scale = alpha / rank

    def forward(self, weight):
        return weight + self.scale * self.b @ self.a


def train(steps=10):
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 3))
    model.requires_grad_(False)
    for layer in model:
        if isinstance(layer, nn.Linear):
            parametrize.register_parametrization(layer, "weight", LowRank(layer.weight))
    trained = [p for name, p in model.named_parameters() if name.endswith((".a", ".b"))]
    optimizer = torch.optim.AdamW(trained, lr=2e-2)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 6)
        loss = (model(x) - x[:, :3].tanh()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    x = torch.randn(4, 6)
    before = model(x)
    for layer in model[::2]:
        parametrize.remove_parametrizations(layer, "weight")
    assert torch.allclose(before, model(x), atol=1e-6)
    return [*losses, float(sum(p.numel() for p in trained))]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
