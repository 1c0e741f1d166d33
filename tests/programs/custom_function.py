"""Functions with derivatives of their own: a straight-through code book and a reversed gradient."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class NearestCode(Function):
    """The nearest row of a code book; the gradient passes as if nothing had been chosen."""

    @staticmethod
    def forward(ctx, x, codes):
        distance = (x.unsqueeze(1) - codes.unsqueeze(0)).pow(2).sum(-1)
        nearest = distance.argmin(dim=1)
        ctx.save_for_backward(nearest)
        ctx.rows = codes.size(0)
        ctx.mark_non_differentiable(nearest)
        return codes[nearest], nearest

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        (nearest,) = ctx.saved_tensors
        to_x = to_codes = None
        if ctx.needs_input_grad[0]:
            to_x = grad.clone()
        if ctx.needs_input_grad[1]:
            to_codes = grad.new_zeros(ctx.rows, grad.size(1)).index_add_(0, nearest, grad)
        return to_x, to_codes


class ReverseGradient(Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.strength, None


class Softclip(Function):
    """log(1 + exp(x)) - log(1 + exp(x - 1)), with the derivative that does not cancel."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.softplus(x) - F.softplus(x - 1)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (torch.sigmoid(x) - torch.sigmoid(x - 1))


class Quantised(nn.Module):
    def __init__(self, inputs=6, width=4, codes=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, 12), nn.Tanh(), nn.Linear(12, width))
        self.codes = nn.Parameter(0.5 * torch.randn(codes, width))
        self.decoder = nn.Sequential(nn.Linear(width, 12), nn.Tanh(), nn.Linear(12, inputs))
        self.domain = nn.Linear(width, 2)

    def forward(self, x):
        z = self.encoder(x)
        chosen, index = NearestCode.apply(z, self.codes)
        domain = self.domain(ReverseGradient.apply(z, 0.3))
        return Softclip.apply(self.decoder(chosen)), z, index, domain


def make_batch(size=24):
    domain = torch.randint(0, 2, (size,))
    x = torch.rand(size, 2) @ torch.rand(2, 6) / 2
    return x + 0.1 * domain.unsqueeze(1), domain


def train(steps=20):
    torch.manual_seed(19)
    model = Quantised()
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        x, domain = make_batch()
        decoded, z, index, guess = model(x)
        commitment = F.mse_loss(z, model.codes[index].detach())
        loss = F.mse_loss(decoded, x) + 0.25 * commitment + 0.1 * F.cross_entropy(guess, domain)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    point = torch.linspace(-2, 2, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Softclip.apply, (point,))
    assert torch.autograd.gradgradcheck(Softclip.apply, (point,))
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
