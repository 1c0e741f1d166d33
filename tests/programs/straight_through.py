"""Binary weights with a straight-through gradient, and a custom second derivative."""

import torch
from torch import nn
from torch.autograd import Function


class Sign(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1)


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0] ** 2


def train(steps=10):
    torch.manual_seed(27)
    weight = nn.Parameter(torch.randn(6, 4) * 0.5)
    scale = nn.Parameter(torch.ones(6))
    head = nn.Linear(6, 1)
    optimizer = torch.optim.Adam([weight, scale, *head.parameters()], lr=2e-2)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 4).requires_grad_()
        out = head(Cube.apply(nn.functional.linear(x, Sign.apply(weight)) * scale * 0.3))
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = (out.squeeze(-1) - x.detach().sum(-1)).pow(2).mean() + 0.01 * slope.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
