"""Model-agnostic meta-learning: the outer gradient goes through the steps of the inner loop."""

import math

import torch
from torch import nn
from torch.func import functional_call


def make_model(hidden=16):
    return nn.Sequential(
        nn.Linear(1, hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.Softplus(),
        nn.Linear(hidden, 1),
    )


class SineTask:
    """A sine of its own amplitude and phase, from which points can be drawn."""

    def __init__(self):
        self.amplitude = torch.empty(1).uniform_(0.5, 2.0)
        self.phase = torch.empty(1).uniform_(0, math.pi)

    def draw(self, points=10):
        x = torch.empty(points, 1).uniform_(-3, 3)
        return x, self.amplitude * torch.sin(x + self.phase)


def adapt(model, parameters, task, inner_steps, lr, create_graph=True):
    """Parameters after some gradient steps on a task, still connected to those given."""
    x, y = task.draw()
    for _ in range(inner_steps):
        loss = nn.functional.mse_loss(functional_call(model, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, tuple(parameters.values()), create_graph=create_graph)
        parameters = {
            name: p - lr * g for (name, p), g in zip(parameters.items(), gradients, strict=True)
        }
    return parameters


def loss_after(model, task, inner_steps=2, lr=0.05):
    parameters = dict(model.named_parameters())
    adapted = adapt(model, parameters, task, inner_steps, lr)
    x, y = task.draw()
    return nn.functional.mse_loss(functional_call(model, adapted, (x,)), y)


def train(steps=10, tasks=3):
    torch.manual_seed(14)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        meta_loss = sum(loss_after(model, SineTask()) for _ in range(tasks)) / tasks
        meta_loss.backward()
        optimizer.step()
        losses.append(meta_loss.item())
    task = SineTask()
    start = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    adapted = adapt(model, start, task, inner_steps=5, lr=0.02, create_graph=False)
    x, y = task.draw()
    with torch.no_grad():
        losses.append(nn.functional.mse_loss(functional_call(model, adapted, (x,)), y).item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
