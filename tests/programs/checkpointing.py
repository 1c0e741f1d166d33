"""Blocks recomputed in backward, and gradients gathered over several batches before a step."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

ACCUMULATE = 3


class Mixer(nn.Module):
    """Mixes along the sequence, then along the features; dropout must come out the same twice."""

    def __init__(self, length, width):
        super().__init__()
        self.along_sequence = nn.Linear(length, length)
        self.along_features = nn.Linear(width, width)
        self.norm = nn.RMSNorm(width)

    def forward(self, x, strength=1.0):
        x = x + strength * self.along_sequence(self.norm(x).mT).mT
        return x + F.dropout(F.relu(self.along_features(x)), 0.2, self.training)


class MixerNet(nn.Module):
    def __init__(self, length=8, width=12, depth=4):
        super().__init__()
        self.embed = nn.Linear(3, width)
        self.blocks = nn.ModuleList(Mixer(length, width) for _ in range(depth))
        self.tail = nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.1), nn.Linear(width, width), nn.ELU()
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.embed(x)
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, strength=1.0 / (number + 1), use_reentrant=False)
        x = checkpoint_sequential(self.tail, 2, x, use_reentrant=False)
        return self.head(x.mean(dim=1)).squeeze(-1)


def make_batch(size=10, length=8):
    """A cumulative sum hides in the sequence; its last value is to be found."""
    x = torch.randn(size, length, 3)
    return x, torch.cumsum(x[..., 0], dim=1)[:, -1] / length**0.5


def train(steps=8):
    torch.manual_seed(18)
    model = MixerNet()
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        total = 0.0
        for _ in range(ACCUMULATE):
            x, y = make_batch()
            loss = F.huber_loss(model(x), y, delta=0.5) / ACCUMULATE
            loss.backward()
            total += loss.item()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
        losses += [total, norm.item()]
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
