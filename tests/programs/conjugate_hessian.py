"""Newton steps by conjugate gradients on Hessian-vector products, in double precision."""

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def train(steps=3):
    torch.manual_seed(35)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    x = torch.randn(20, 3, dtype=torch.float64)
    y = x.sin().sum(-1, keepdim=True)
    parameters = list(model.parameters())
    losses = []
    for _ in range(steps):
        loss = (model(x) - y).pow(2).mean()
        slopes = torch.autograd.grad(loss, parameters, create_graph=True)
        slope = parameters_to_vector(slopes)

        def times(v, slope=slope):
            found = torch.autograd.grad(slope @ v, parameters, retain_graph=True)
            return parameters_to_vector(found) + 0.5 * v

        change, rest = torch.zeros_like(slope), -slope.detach()
        way, size = rest.clone(), rest @ rest
        for _ in range(6):
            curved = times(way)
            length = size / (way @ curved)
            change += length * way
            rest = rest - length * curved
            size, former = rest @ rest, size
            way = rest + size / former * way
        with torch.no_grad():
            vector_to_parameters(parameters_to_vector(parameters) + change, parameters)
        losses += [loss.item(), change.norm().item()]
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
