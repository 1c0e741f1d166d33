"""Logistic regression by L-BFGS on all data, in double precision of its own."""

import torch
from torch.nn import functional as F


def train(steps=5):
    torch.manual_seed(32)
    x = torch.randn(60, 4, dtype=torch.float64)
    y = (x @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64) > 0.3).double()
    weight = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], lr=0.5, max_iter=4, history_size=5)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(x @ weight + bias, y) + 1e-2 * weight.pow(2).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(optimizer.step(closure).item())
    return losses + weight.tolist()


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
