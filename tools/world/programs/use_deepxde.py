"""A physics-informed network of DeepXDE: a boundary value problem."""

import json
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import torch

dde.config.set_random_seed(0)


def equation(x, y):
    return -dde.grad.hessian(y, x) - torch.sin(torch.pi * x) * torch.pi**2


domain = dde.geometry.Interval(-1, 1)
edge = dde.icbc.DirichletBC(domain, lambda x: 0, lambda _, on_boundary: on_boundary)
data = dde.data.PDE(domain, equation, edge, 16, 2, num_test=20)
network = dde.nn.FNN([1, 16, 16, 1], "tanh", "Glorot uniform")
model = dde.Model(data, network)
model.compile("adam", lr=1e-2)
history, state = model.train(iterations=20, display_every=5, verbose=0)
losses = [float(sum(row)) for row in history.loss_train]
assert losses[-1] < losses[0]
print(json.dumps([losses, model.predict(domain.uniform_points(5)).flatten().tolist()]))
