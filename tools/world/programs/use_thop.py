"""Operations counted by hooks on the layers."""

import json

import torch
from thop import clever_format, profile

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(8, 10),
)
macs, params = profile(model, inputs=(torch.randn(1, 3, 16, 16),), verbose=False)
assert clever_format([macs, params], "%.3f")
gru, p2 = profile(torch.nn.GRU(4, 5), inputs=(torch.randn(3, 1, 4),), verbose=False)
print(json.dumps([macs, params, gru, p2]))
