"""Reading and writing activations with nnsight."""

import json

import torch
from nnsight import NNsight

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
model = NNsight(net)
x = torch.rand(1, 4)
with model.trace(x):
    hidden = model[0].output.save()
    model[1].output[:] = 0
    out = model.output.save()
print(json.dumps([hidden.flatten().tolist(), out.flatten().tolist()]))
