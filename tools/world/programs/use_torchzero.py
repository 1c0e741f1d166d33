"""Optimizers made of modules: torchzero."""

import json

import torch
import torchzero as tz

found = []
for parts in (
    lambda: [tz.m.Adam(), tz.m.LR(0.05)],
    lambda: [tz.m.NAG(0.9), tz.m.LR(0.05)],
    lambda: [tz.m.LBFGS(), tz.m.Backtracking()],
):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = torch.randn(16, 4)
    make = getattr(tz, "Optimizer", None) or tz.Modular
    optimizer = make(model.parameters(), *parts())

    def closure(backward=True, model=model, x=x, optimizer=optimizer):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        if backward:
            optimizer.zero_grad()
            loss.backward()
        return loss

    for _ in range(3):
        found.append(float(optimizer.step(closure)))
print(json.dumps(found))
