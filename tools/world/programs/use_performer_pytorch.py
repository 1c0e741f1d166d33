"""A reversible Performer that learns to copy its tokens."""

import json

import torch
from performer_pytorch import PerformerLM

torch.manual_seed(0)
model = PerformerLM(
    num_tokens=50, max_seq_len=16, dim=32, depth=2, heads=4, causal=False, reversible=True
)
x = torch.randint(0, 50, (2, 16))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
found = []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(x).transpose(1, 2), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
