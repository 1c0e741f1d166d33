"""Attacks of CleverHans and Foolbox."""

import json

import foolbox
import numpy as np
import torch
from cleverhans.torch.attacks.fast_gradient_method import fast_gradient_method
from cleverhans.torch.attacks.projected_gradient_descent import projected_gradient_descent

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
).eval()
x = torch.rand(4, 3, 2, 2)
found = [
    fast_gradient_method(model, x, 0.1, np.inf).sum().item(),
    projected_gradient_descent(model, x, 0.1, 0.02, 5, np.inf, rand_init=False).sum().item(),
]
wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
labels = model(x).argmax(1)
for attack in (
    foolbox.attacks.LinfFastGradientAttack(),
    foolbox.attacks.L2DeepFoolAttack(steps=5),
    foolbox.attacks.LinfPGD(steps=3, random_start=False),
):
    raw, clipped, success = attack(wrapped, x, labels, epsilons=[0.05])
    found += [clipped[0].sum().item(), success.float().sum().item()]
print(json.dumps(found))
