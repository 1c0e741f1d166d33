"""Dictionaries of tensors with a batch size, and modules over their keys."""

import json

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

torch.manual_seed(0)
data = TensorDict(
    {"a": torch.arange(12.0).reshape(3, 4), "b": {"c": torch.ones(3, 2)}}, batch_size=[3]
)
found = [data["a"].sum().item(), data[1]["b", "c"].sum().item(), data.reshape(3, 1).batch_size[1]]
s = torch.stack([data, data], 0)
found += [s["a"].sum().item(), s.batch_size[0]]
seq = TensorDictSequential(
    TensorDictModule(nn.Linear(4, 5), in_keys=["a"], out_keys=["h"]),
    TensorDictModule(nn.Tanh(), in_keys=["h"], out_keys=["y"]),
)
optimizer = torch.optim.SGD(seq.parameters(), 0.1)
for _ in range(3):
    out = seq(data.clone())
    loss = (out["y"] ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
p = TensorDict.from_module(seq)
found.append(sum(v.sum().item() for v in p.values(True, True)))
with p.data.apply(torch.zeros_like).to_module(seq):
    found.append(seq(data.clone())["y"].sum().item())
found.append(data.apply(lambda x: x + 1)["a"].sum().item())
print(json.dumps(found))
