"""What programs for PyTorch's launcher share: models and data that are functions of their place,
and the loop over the cases. Each case gives what it finds on every rank, which is the same on
PyTorch with gloo and on evergrad."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def weights(*shape, scale=0.1):
    count = 1
    for n in shape:
        count *= n
    return ((torch.arange(count, dtype=torch.float32) * 0.7).sin() * scale).reshape(shape)


def filled(module):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(weights(*p.shape))
    return module


def shown(value):
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.is_complex():
            value = torch.view_as_real(value)
        return shown(value.to(torch.float64).tolist())
    if isinstance(value, dict):
        return {str(k): shown(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def data(rows, width=3, step=0):
    """Inputs of this rank and their targets."""
    x = weights(rows, width, scale=1.0) + 0.3 * RANK + 0.1 * step
    return x, (x.sum(1, keepdim=True) * 2).sin()


def mlp(width=3, hidden=5, out=1):
    return filled(nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, out)))


def params(model):
    return [p.detach().clone() for p in model.parameters()]


def main(names):
    """Write the results of all ranks to the file given, from functions named ``case_...``."""
    dist.init_process_group("gloo")
    found = {k: shown(case()) for k, case in list(names.items()) if k.startswith("case_")}
    results = [None] * SIZE
    dist.all_gather_object(results, found)
    if RANK == 0:
        with open(sys.argv[1], "w") as file:
            json.dump(results, file)
    dist.destroy_process_group()
