"""A Learner of fastai: one cycle of training, exported predictions."""

import json

import torch
from fastai.callback.all import *  # noqa: F403
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.metrics import mse

torch.manual_seed(0)
x = torch.randn(64, 4)
y = x @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]])
data = list(zip(x, y, strict=True))
loaders = DataLoaders(DataLoader(data, bs=16), DataLoader(data, bs=16))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
learner = Learner(loaders, model, loss_func=torch.nn.MSELoss(), metrics=[mse])
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(3, 1e-2)
    predictions, _ = learner.get_preds()
values = [list(map(float, row)) for row in learner.recorder.values]
losses = [float(loss) for loss in learner.recorder.losses]
assert losses[-1] < losses[0]
print(json.dumps([values, losses, predictions.flatten().tolist()]))
