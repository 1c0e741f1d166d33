"""Ensembles of networks: voting, bagging, snapshots, fast geometric."""

import json
import logging

import torch
from torchensemble import (
    BaggingRegressor,
    FusionRegressor,
    SnapshotEnsembleRegressor,
    VotingClassifier,
)  # fmt: skip

logging.disable(logging.CRITICAL)


class Net(torch.nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, outputs)
        )

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
x = torch.randn(32, 4)
y = x.sum(1, keepdim=True)
rows = torch.utils.data.TensorDataset(x, y)
results = []
for make in (FusionRegressor, BaggingRegressor, SnapshotEnsembleRegressor):
    torch.manual_seed(1)
    options = {} if make is SnapshotEnsembleRegressor else {"n_jobs": 1}
    model = make(estimator=Net, n_estimators=2, cuda=False, **options)
    model.set_criterion(torch.nn.MSELoss())
    model.set_optimizer("Adam", lr=1e-2)
    loader = torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True)
    model.fit(loader, epochs=4, save_model=False)
    results.append([model.evaluate(loader), *model.predict(x[:3]).flatten().tolist()])
torch.manual_seed(1)
model = VotingClassifier(
    estimator=Net, estimator_args={"outputs": 2}, n_estimators=2, n_jobs=1, cuda=False
)
model.set_criterion(torch.nn.CrossEntropyLoss())
model.set_optimizer("SGD", lr=0.1)
labels = torch.utils.data.TensorDataset(x, (y[:, 0] > 0).long())
loader = torch.utils.data.DataLoader(labels, batch_size=16)
model.fit(loader, epochs=4, save_model=False)
results.append([model.evaluate(loader), *model.predict(x[:2]).flatten().tolist()])
print(json.dumps(results))
