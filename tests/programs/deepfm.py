"""DeepFM: factorized pairs of categorical features beside a network."""

import torch
from torch import nn

FIELDS = (5, 7, 3)


class DeepFM(nn.Module):
    def __init__(self, rank=4):
        super().__init__()
        total = sum(FIELDS)
        self.register_buffer("offsets", torch.tensor([0, *FIELDS[:-1]]).cumsum(0))
        self.linear = nn.EmbeddingBag(total, 1, mode="sum")
        self.vectors = nn.Embedding(total, rank)
        self.deep = nn.Sequential(
            nn.Linear(len(FIELDS) * rank, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(16, 1),
        )

    def forward(self, x):
        x = x + self.offsets
        vectors = self.vectors(x)
        square = vectors.sum(1).pow(2) - vectors.pow(2).sum(1)
        pairs = 0.5 * square.sum(-1, keepdim=True)
        return (self.linear(x) + pairs + self.deep(vectors.flatten(1))).squeeze(-1)


def train(steps=10):
    torch.manual_seed(17)
    model, criterion = DeepFM(), nn.BCEWithLogitsLoss(pos_weight=torch.tensor(1.5))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        x = torch.stack([torch.randint(n, (24,)) for n in FIELDS], 1)
        y = ((x[:, 0] + x[:, 1]) % 2 == 0).to(torch.get_default_dtype())
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
