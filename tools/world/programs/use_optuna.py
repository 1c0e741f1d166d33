"""A search by optuna over the learning rate of a PyTorch program."""

import json

import optuna
import torch

optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    x = torch.randn(16, 3)
    rate = trial.suggest_float("rate", 1e-3, 1.0, log=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(5):
        loss = (net(x) - x.sum(-1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(objective, n_trials=12)
print(json.dumps([study.best_value, study.best_params["rate"]]))
