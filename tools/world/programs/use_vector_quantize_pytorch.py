"""A vector-quantized bottleneck: codes, commitment loss, straight-through gradients."""

import json

import torch
from vector_quantize_pytorch import FSQ, VectorQuantize

torch.manual_seed(0)
quantize = VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0)
encoder = torch.nn.Linear(4, 8)
x = torch.randn(2, 12, 4)
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
losses = []
for _ in range(5):
    codes, indices, commitment = quantize(encoder(x))
    loss = codes.pow(2).mean() + commitment.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
scalar, places = FSQ(levels=[8, 5, 5])(torch.randn(1, 6, 3))
print(json.dumps([losses, indices.flatten().tolist(), scalar.flatten().tolist(), places.tolist()]))
