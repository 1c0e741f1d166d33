"""Fisher matrices."""

import json

import torch
from nngeometry.metrics import FIM
from nngeometry.object import PMatDiag, PMatKFAC

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
data = torch.utils.data.TensorDataset(torch.randn(16, 4), torch.randint(0, 3, (16,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
found = []
for kind in (PMatDiag, PMatKFAC):
    fisher = FIM(
        model=model, loader=loader, representation=kind, device="cpu", variant="classif_logits"
    )
    found.append(fisher.trace().item())
print(json.dumps(found))
