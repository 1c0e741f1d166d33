"""azula: a denoiser that is trained, and samplers over its schedule."""

import json

import torch
from azula.denoise import KarrasDenoiser
from azula.noise import CosineSchedule, RectifiedSchedule, VPSchedule
from azula.sample import DDIMSampler, DDPMSampler, HeunSampler


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 16), torch.nn.SiLU(), torch.nn.Linear(16, 2)
        )

    def forward(self, x, t):
        return self.layers(torch.cat([x, t.expand(x.shape[0])[:, None]], -1))


results = []
for schedule in (VPSchedule(), CosineSchedule(), RectifiedSchedule()):
    torch.manual_seed(0)
    denoiser = KarrasDenoiser(Network(), schedule)
    x = torch.randn(32, 2) * 0.3 + 1.0
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        torch.manual_seed(1)
        loss = denoiser.loss(x, torch.rand(32)).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    results.append(losses)
    for sampler in (DDPMSampler, DDIMSampler, HeunSampler):
        torch.manual_seed(2)
        made = sampler(denoiser, start=0.95, steps=4, silent=True)
        with torch.no_grad():
            results.append(made(made.init((2, 2))).flatten().tolist())
print(json.dumps(results))
