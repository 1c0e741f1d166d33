"""An ensemble trained at once: stacked parameters, vmap and functional gradients."""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap


def train(steps=8, members=3):
    torch.manual_seed(34)
    models = [nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(members)]
    parameters, buffers = stack_module_state(models)

    def loss_of(parameters, buffers, x, y):
        found = functional_call(models[0], (parameters, buffers), (x,))
        return (found.squeeze(-1) - y).pow(2).mean()

    step = vmap(grad_and_value(loss_of), in_dims=(0, 0, None, None))
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 2)
        y = x[:, 0] * x[:, 1]
        slopes, values = step(parameters, buffers, x, y)
        parameters = {name: p.detach() - 0.1 * slopes[name] for name, p in parameters.items()}
        losses += values.tolist()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
