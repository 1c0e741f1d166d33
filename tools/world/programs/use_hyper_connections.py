"""Several residual streams."""

import json

import torch
from hyper_connections import get_init_and_expand_reduce_stream_functions

torch.manual_seed(0)
init, expand, reduce = get_init_and_expand_reduce_stream_functions(2)
branch = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
model = init(dim=8, branch=branch)
x = torch.randn(2, 4, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
found = []
for _ in range(3):
    loss = reduce(model(expand(x))).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
