"""argus: a model with its loss and optimizer, trained, saved and loaded."""

import json
import logging
import tempfile
from pathlib import Path

import argus
import torch
from torch.utils.data import DataLoader, TensorDataset

logging.disable(logging.CRITICAL)


class Net(torch.nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 2)
        )

    def forward(self, x):
        return self.layers(x)


class Classifier(argus.Model):
    nn_module = Net
    optimizer = torch.optim.SGD
    loss = torch.nn.CrossEntropyLoss


torch.manual_seed(0)
x = torch.randn(32, 4)
y = (x.sum(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=8)
model = Classifier({
    "nn_module": {"inputs": 4, "hidden": 8}, "optimizer": {"lr": 0.1}, "device": "cpu",
})  # fmt: skip
before = model.validate(loader)
model.fit(loader, val_loader=loader, num_epochs=3)
after = model.validate(loader)
assert after["val_loss"] < before["val_loss"]
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.pth"
    model.save(path)
    loaded = argus.load_model(path, device="cpu")
assert torch.equal(loaded.predict(x), model.predict(x))
print(json.dumps([before["val_loss"], after["val_loss"], model.predict(x[:3]).flatten().tolist()]))
