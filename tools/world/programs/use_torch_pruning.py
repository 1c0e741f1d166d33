"""Half of a network's channels removed by magnitude."""

import json

import torch
import torch_pruning as tp

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.Conv2d(8, 8, 3),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(8, 2),
)
x = torch.randn(1, 3, 8, 8)
pruner = tp.pruner.MagnitudePruner(
    model,
    x,
    importance=tp.importance.MagnitudeImportance(p=2),
    pruning_ratio=0.5,
    ignored_layers=[model[6]],
)
pruner.step()
count = tp.utils.count_ops_and_params(model, x)[1]
print(json.dumps([model(x).sum().item(), float(model[0].out_channels), count]))
