"""Optimizers of optimi: decoupled weight decay, Kahan summation for bfloat16, gradient release."""

import json

import optimi
import torch


def train(make, kind=torch.float32):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    model.to(kind)
    optimizer = make(model)
    x = torch.randn(32, 4).to(kind)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(10):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return losses


results = [
    train(lambda m, n=name: getattr(optimi, n)(m.parameters(), lr=1e-2))
    for name in ("AdamW", "Adam", "Lion", "SGD", "StableAdamW", "RAdam", "Ranger", "Adan")
]
results.append(train(lambda m: optimi.AdamW(m.parameters(), lr=1e-2, foreach=True)))
low = train(lambda m: optimi.AdamW(m.parameters(), lr=1e-2, kahan_sum=True), torch.bfloat16)


def released():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = optimi.AdamW(model.parameters(), lr=1e-2, gradient_release=True)
    optimi.prepare_for_gradient_release(model, optimizer)
    x = torch.randn(16, 4)
    losses = []
    for _ in range(6):
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    optimi.remove_gradient_release(model)
    return losses


print(json.dumps([results, [round(v, 1) for v in low], released()]))
