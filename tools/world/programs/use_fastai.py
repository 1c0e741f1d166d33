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
    before = list(map(float, learner.validate()))
    learner.fit_one_cycle(3, 1e-2)
    after = list(map(float, learner.validate()))
    predictions, _ = learner.get_preds()
assert after[0] < before[0]
print(json.dumps([before, after, predictions.flatten().tolist()]))
