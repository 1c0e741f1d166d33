"""Attributions of captum for a small network."""

import json

import torch
from captum.attr import DeepLift, IntegratedGradients, LayerGradCam, Saliency

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
)
x = torch.randn(2, 1, 8, 8)
target = torch.tensor([0, 2])
found = [
    IntegratedGradients(net).attribute(x, target=target, n_steps=8),
    Saliency(net).attribute(x.clone().requires_grad_(), target=target),
    DeepLift(net).attribute(x, target=target, baselines=torch.zeros_like(x)),
    LayerGradCam(net, net[0]).attribute(x, target=target),
]
print(json.dumps([value.detach().flatten().tolist() for value in found]))
