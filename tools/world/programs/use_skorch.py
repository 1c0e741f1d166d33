"""A classifier of skorch, fitted, scored, pickled."""

import json
import pickle

import numpy as np
import torch
from skorch import NeuralNetClassifier

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2), torch.nn.Softmax(-1)
        )

    def forward(self, x):
        return self.layers(x)


x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
net = NeuralNetClassifier(
    Net, max_epochs=4, lr=0.5, batch_size=16, verbose=0, optimizer=torch.optim.SGD
)
net.fit(x, y)
again = pickle.loads(pickle.dumps(net))
losses = net.history[:, "train_loss"]
assert losses[-1] < losses[0]
print(json.dumps([losses, net.history[:, "valid_loss"], again.predict_proba(x[:8]).tolist()]))
