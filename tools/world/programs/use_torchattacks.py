"""Adversarial examples."""

import json

import torch
import torchattacks

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
).eval()
x, y = torch.rand(4, 1, 8, 8), torch.randint(3, (4,))
found = []
for attack in (
    torchattacks.FGSM(model, eps=0.1), torchattacks.PGD(model, eps=0.1, alpha=0.02, steps=3),
    torchattacks.CW(model, steps=3), torchattacks.DeepFool(model, steps=3),
    torchattacks.MIFGSM(model, eps=0.1, alpha=0.02, steps=3), torchattacks.BIM(model, steps=3),
    torchattacks.APGD(model, eps=0.1, steps=3), torchattacks.Square(model, n_queries=20),
):  # fmt: skip
    changed = attack(x, y)
    found += [(changed - x).abs().sum().item(), changed.square().mean().item()]
print(json.dumps(found))
