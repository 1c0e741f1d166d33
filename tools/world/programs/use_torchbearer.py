"""Torchbearer's trial."""

import json

import torch
from torchbearer import Trial

torch.manual_seed(0)
x, y = torch.randn(64, 5), torch.randint(0, 3, (64,))
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
trial = Trial(
    model,
    torch.optim.SGD(model.parameters(), 0.1),
    torch.nn.CrossEntropyLoss(),
    metrics=["acc", "loss"],
)
trial = trial.with_train_data(x, y, batch_size=16, shuffle=False).with_val_data(
    x, y, batch_size=16, shuffle=False
)
history = trial.run(epochs=2, verbose=0)
print(
    json.dumps(
        [
            [float(h[k]) for k in sorted(h) if k not in ("train_steps", "validation_steps")]
            for h in history
        ]
    )
)
