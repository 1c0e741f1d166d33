"""Volume rendering along rays, with an occupancy grid."""

import json

import torch
from nerfacc import render_weight_from_density
from nerfacc.volrend import accumulate_along_rays, render_transmittance_from_alpha

torch.manual_seed(0)
density = torch.rand(4, 8, requires_grad=True)
edges = torch.linspace(0, 1, 9).expand(4, 9)
colours = torch.rand(4, 8, 3)
weights, transmittance, alphas = render_weight_from_density(edges[:, :-1], edges[:, 1:], density)
seen = accumulate_along_rays(weights, colours)
loss = (seen - 0.3).pow(2).sum()
loss.backward()
found = [loss.item(), *density.grad.sum(0).tolist(), transmittance.sum().item()]
passed = render_transmittance_from_alpha(alphas.detach())
found.append(float(passed[0].sum() if isinstance(passed, tuple) else passed.sum()))
print(json.dumps(found))
