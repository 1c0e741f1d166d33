"""A gated linear recurrence by an associative scan."""

import json

import torch
from gateloop_transformer import Transformer

torch.manual_seed(0)
model = Transformer(num_tokens=32, dim=16, depth=1, use_gate_looped_attn=True)
x = torch.randint(0, 32, (2, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = model(x, return_loss=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
