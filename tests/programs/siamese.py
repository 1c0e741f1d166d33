"""A siamese network learns a space in which signals of one shape are neighbours."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH = 24


class Encoder(nn.Module):
    def __init__(self, width=8, out=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, width, 5, padding="same", padding_mode="circular"),
            nn.GroupNorm(2, width),
            nn.PReLU(width),
            nn.MaxPool1d(2),
            nn.Conv1d(width, width, 3, padding=2, dilation=2, groups=2),
            nn.Mish(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.project = nn.utils.parametrizations.weight_norm(nn.Linear(4 * width, out))

    def forward(self, x):
        return F.normalize(self.project(self.features(x)), dim=-1)


def make_signals(kind):
    """A sine, a square wave or a saw-tooth for each kind, at a random phase."""
    phase = torch.rand(len(kind), 1)
    time = (torch.linspace(0, 2, LENGTH) + phase) % 1
    shapes = torch.stack([torch.sin(2 * math.pi * time), torch.sign(time - 0.5), 2 * time - 1])
    chosen = shapes[kind, torch.arange(len(kind))]
    return (chosen + 0.1 * torch.randn_like(chosen)).unsqueeze(1)  # (B, 1, LENGTH)


def contrastive(distance, same, margin=1.0):
    apart = torch.clamp(margin - distance, min=0.0)
    return torch.where(same, distance.pow(2), apart.pow(2)).mean()


def hardest_negative(anchor, others, anchor_kind, other_kind):
    """For each anchor the nearest signal of another kind."""
    distance = torch.cdist(anchor, others)
    distance = distance.masked_fill(anchor_kind[:, None] == other_kind[None, :], float("inf"))
    return others.index_select(0, distance.topk(1, largest=False).indices.squeeze(1))


def train(steps=15):
    torch.manual_seed(12)
    encoder = Encoder()
    triplet = nn.TripletMarginLoss(margin=0.5, swap=True)
    cosine = nn.CosineEmbeddingLoss(margin=0.2)
    optimizer = torch.optim.Adagrad(encoder.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        kind, other_kind = torch.randint(0, 3, (2, 18)).unbind(0)
        anchor, positive = encoder(make_signals(kind)), encoder(make_signals(kind))
        others = encoder(make_signals(other_kind))
        same = kind == other_kind
        negative = hardest_negative(anchor, others, kind, other_kind)
        loss = triplet(anchor, positive, negative)
        loss = loss + contrastive(F.pairwise_distance(anchor, others), same)
        loss = loss + 0.5 * cosine(anchor, others, torch.where(same, 1, -1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
