"""A range test of learning rates."""

import contextlib
import io
import json

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch_lr_finder import LRFinder

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,))), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
with contextlib.redirect_stdout(io.StringIO()):
    finder = LRFinder(model, optimizer, torch.nn.CrossEntropyLoss(), device="cpu")
    finder.range_test(loader, end_lr=1, num_iter=10)
found = finder.history["lr"] + finder.history["loss"]
finder.reset()
found.append(model(torch.ones(1, 4)).sum().item())
print(json.dumps(found))
