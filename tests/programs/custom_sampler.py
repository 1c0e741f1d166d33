"""A dataset of files' worth of rows, a balancing sampler, and a collate function that pads."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler, WeightedRandomSampler, random_split


class Walks(Dataset):
    def __init__(self, count=40):
        self.lengths = torch.randint(3, 8, (count,)).tolist()
        self.labels = (torch.rand(count) < 0.25).long()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        steps = torch.full((self.lengths[i], 1), float(self.labels[i]) - 0.5)
        return (steps + 0.1 * i / len(self)).cumsum(0), self.labels[i]


class ByLength(Sampler):
    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        return iter(sorted(range(len(self.lengths)), key=self.lengths.__getitem__))

    def __len__(self):
        return len(self.lengths)


def pad(rows):
    walks, labels = zip(*rows, strict=True)
    return pad_sequence(walks, batch_first=True), torch.stack(labels)


def train():
    torch.manual_seed(28)
    data = Walks()
    chosen, held = random_split(data, [30, 10])
    weights = [3.0 if data.labels[i] else 1.0 for i in chosen.indices]
    loaders = [
        DataLoader(chosen, 10, sampler=WeightedRandomSampler(weights, 30), collate_fn=pad),
        DataLoader(data, 8, sampler=ByLength(data.lengths), collate_fn=pad, drop_last=True),
    ]
    model, head = nn.RNN(1, 6, batch_first=True, nonlinearity="relu"), nn.Linear(6, 2)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for loader in loaders:
        for walks, labels in loader:
            loss = nn.functional.cross_entropy(head(model(walks)[1][-1]), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses + [float(len(held))]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
