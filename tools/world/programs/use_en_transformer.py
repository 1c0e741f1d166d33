"""An equivariant transformer: coordinates turn with the input."""

import json

import torch
from en_transformer import EnTransformer

torch.manual_seed(0)
model = EnTransformer(dim=8, depth=2, dim_head=32, heads=2, num_tokens=5, neighbors=4)
tokens = torch.randint(0, 5, (2, 6))
places = torch.randn(2, 6, 3)
mask = torch.ones(2, 6).bool()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
target = places.roll(1, 1)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    features, moved = model(tokens, places, mask=mask)
    loss = (moved - target).square().mean() + features.square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
turn = torch.linalg.qr(torch.randn(3, 3))[0]
with torch.no_grad():
    _, a = model(tokens, places @ turn, mask=mask)
    _, b = model(tokens, places, mask=mask)
print(json.dumps([losses, (a - b @ turn).abs().max().item(), b.flatten().tolist()]))
