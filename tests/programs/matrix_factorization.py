"""Ratings from the product of user and item vectors, with biases, in mini-batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Factors(nn.Module):
    def __init__(self, users, items, rank=4):
        super().__init__()
        self.user, self.item = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)

    def forward(self, user, item):
        inner = (self.user(user) * self.item(item)).sum(-1)
        return inner + self.user_bias(user).squeeze(-1) + self.item_bias(item).squeeze(-1)


def train(epochs=3):
    torch.manual_seed(16)
    taste = torch.randn(12, 3) @ torch.randn(3, 10)
    user, item = torch.meshgrid(torch.arange(12), torch.arange(10), indexing="ij")
    seen = torch.rand(12, 10) < 0.6
    data = TensorDataset(user[seen], item[seen], taste[seen])
    model = Factors(12, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-2, weight_decay=1e-4)
    losses = []
    for _ in range(epochs):
        for users, items, ratings in DataLoader(data, batch_size=24, shuffle=True):
            loss = nn.functional.mse_loss(model(users, items), ratings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
