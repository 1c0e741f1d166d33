"""The conditional random field of TorchCRF."""

import json

import torch
from TorchCRF import CRF

torch.manual_seed(0)
crf = CRF(4, use_gpu=False)
emit = torch.nn.Linear(5, 4)
x = torch.randn(3, 6, 5)
labels = torch.randint(0, 4, (3, 6))
mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]]).bool()
optimizer = torch.optim.Adam([*crf.parameters(), *emit.parameters()], lr=0.05)
losses = []
for _ in range(6):
    optimizer.zero_grad()
    loss = -crf(emit(x), labels, mask).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
with torch.no_grad():
    best = crf.viterbi_decode(emit(x), mask)
print(json.dumps([losses, best]))
