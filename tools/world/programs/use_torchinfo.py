"""A summary by torchinfo."""

import json

import torch
from torchinfo import summary

net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(144, 3),
)  # fmt: skip
found = summary(net, input_size=(2, 1, 8, 8), verbose=0)
assert "Conv2d" in str(found)
print(json.dumps([found.total_params, found.total_mult_adds, found.total_output_bytes]))
