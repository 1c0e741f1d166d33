"""Summaries of tensors."""

import json

import lovely_tensors as lt
import torch

torch.manual_seed(0)
x = torch.randn(3, 4)
text = str(lt.lovely(x))
found = [float(len(text)), float("x∈" in text), x.sum().item()]
print(json.dumps(found))
