"""Forward, backward and tensor hooks watch and change a training run."""

import torch
from torch import nn


def train(steps=6):
    torch.manual_seed(26)
    model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2))
    seen = []
    handles = [
        model[0].register_forward_hook(lambda m, args, out: seen.append(out.std().item())),
        model[2].register_forward_pre_hook(lambda m, args: (args[0] * 1.5,)),
        model[1].register_full_backward_hook(
            lambda m, given, out: seen.append(out[0].abs().sum().item())
        ),
        model[2].weight.register_hook(lambda g: g.clamp(-0.05, 0.05)),
    ]
    optimizer = torch.optim.Rprop(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        if step == steps - 1:
            for handle in handles:
                handle.remove()
        x = torch.randn(10, 4)
        out = model(x)
        out.retain_grad()
        loss = (out - x[:, :2].abs()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.item(), out.grad.norm().item()]
    return losses + seen


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
