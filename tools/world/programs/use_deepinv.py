"""Inverse problems: physics, total variation, a denoiser trained."""

import json

import deepinv as dinv
import torch

torch.manual_seed(0)
x = torch.rand(1, 1, 16, 16)
found = []
blur = dinv.physics.Blur(dinv.physics.blur.gaussian_blur(sigma=(1.0, 1.0)), padding="circular")
y = blur(x)
found += [y.sum().item(), blur.A_adjoint(y).sum().item(), blur.A_dagger(y).mean().item()]
mask = dinv.physics.Inpainting((1, 16, 16), mask=0.5)
found.append(mask.A_adjoint(mask(x)).shape[-1])
prior = dinv.optim.TVPrior(n_it_max=20)
found.append(prior(x).item())
print(json.dumps(found))
