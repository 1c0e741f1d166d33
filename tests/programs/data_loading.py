"""Classification from a data set class, split at random and read in shuffled batches."""

import copy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler, random_split


class Moons(Dataset):
    """Two interleaved half circles, made once and given one by one."""

    def __init__(self, size, transform=None):
        angle = torch.pi * torch.rand(size)
        self.label = torch.bernoulli(torch.full((size,), 0.35)).long()
        side = 1 - 2 * self.label
        self.points = torch.stack(
            [side * angle.cos() + self.label, side * angle.sin() + 0.5 * self.label], dim=1
        )
        self.transform = transform

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        point = self.points[index]
        if self.transform is not None:
            point = self.transform(point)
        return point, self.label[index]


def jitter(point):
    return point + 0.1 * torch.randn(2)


def make_model():
    return nn.Sequential(
        nn.Linear(2, 16, bias=False),
        nn.BatchNorm1d(16),
        nn.LeakyReLU(),
        nn.Linear(16, 16),
        nn.GELU(),
        nn.Linear(16, 1),
    )


def run_epoch(model, loader, criterion, optimizer=None):
    """The mean loss of every batch; trains if there is an optimizer."""
    losses = []
    model.train(optimizer is not None)
    with torch.set_grad_enabled(optimizer is not None):
        for points, label in loader:
            loss = criterion(model(points).squeeze(1), label.to(points.dtype))
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
    return losses


def train(epochs=3):
    torch.manual_seed(20)
    data = Moons(120, transform=jitter)
    training, validation = random_split(
        data, [0.75, 0.25], generator=torch.Generator().manual_seed(42)
    )
    loader = DataLoader(training, batch_size=16, shuffle=True, drop_last=True)
    held_out = DataLoader(validation, batch_size=30)
    model = make_model()
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(1.5))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses, best, kept = [], float("inf"), None
    for _ in range(epochs):
        losses += run_epoch(model, loader, criterion, optimizer)
        (found,) = run_epoch(model, held_out, criterion)
        losses.append(found)
        if found < best:
            best, kept = found, copy.deepcopy(model.state_dict())

    model.load_state_dict(kept)
    weights = torch.where(data.label == 1, 3.0, 1.0)
    sampler = WeightedRandomSampler(weights, num_samples=40, replacement=True)
    balanced = DataLoader(TensorDataset(data.points, data.label), batch_size=20, sampler=sampler)
    return losses + run_epoch(model, balanced, criterion)


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
