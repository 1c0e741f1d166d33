"""Learned and fixed filterbanks of sound."""

import json

import torch
from asteroid_filterbanks import STFTFB, AnalyticFreeFB, Decoder, Encoder, FreeFB, ParamSincFB
from asteroid_filterbanks.transforms import mag

torch.manual_seed(0)
x = torch.randn(2, 1, 800)
found = []
for bank in (FreeFB(16, 16), AnalyticFreeFB(16, 16), ParamSincFB(16, 17), STFTFB(16, 16)):
    encoder = Encoder(bank)
    z = encoder(x)
    found += [z.sum().item(), mag(z).sum().item()]
    decoder = Decoder(bank)
    out = decoder(z)
    loss = out.pow(2).mean()
    if loss.requires_grad:
        loss.backward()
    found.append(loss.item())
print(json.dumps(found))
