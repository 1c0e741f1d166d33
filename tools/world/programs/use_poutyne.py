"""Poutyne: a model with fit, evaluate and checkpoints."""

import json

import numpy as np
import torch
from poutyne import Model, ModelCheckpoint, set_seeds

set_seeds(0)
x = np.random.randn(64, 5).astype("float32")
y = (x[:, 0] > 0).astype("int64")
net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
model = Model(net, "adam", "cross_entropy", batch_metrics=["accuracy"], epoch_metrics=["f1"])
logs = model.fit(
    x,
    y,
    epochs=3,
    batch_size=16,
    verbose=False,
    callbacks=[ModelCheckpoint("poutyne.ckpt", monitor="loss", save_best_only=True, mode="min")],
)
found = [[float(log["loss"]), float(log["acc"])] for log in logs]
model.load_weights("poutyne.ckpt")
loss, (acc, f1) = model.evaluate(x, y, batch_size=32, verbose=False)
print(
    json.dumps(
        [
            found,
            float(loss),
            float(acc),
            float(f1),
            float(model.predict(x, batch_size=32, verbose=False).sum()),
        ]
    )
)
