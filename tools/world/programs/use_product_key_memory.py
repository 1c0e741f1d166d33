"""A layer of product key memories among others."""

import json

import torch
from product_key_memory import PKM, fetch_optimizer_parameters

torch.manual_seed(0)
layer = PKM(dim=16, heads=2, dim_head=8, num_keys=8, topk=4)
head = torch.nn.Linear(16, 3)
x = torch.randn(4, 6, 16)
y = torch.randint(0, 3, (4, 6))
model = torch.nn.ModuleList([layer, head])
optimizer = torch.optim.Adam(fetch_optimizer_parameters(model), lr=1e-2)
losses = []
for _ in range(8):
    optimizer.zero_grad()
    logits = head(x + layer(x))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(json.dumps([losses, logits[0].tolist()]))
