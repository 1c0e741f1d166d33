"""Evaluation of explanations by Quantus."""

import json

import numpy as np
import quantus
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
).eval()
x = np.random.default_rng(0).random((4, 1, 8, 8)).astype(np.float32)
y = np.array([0, 1, 2, 0])
a = np.random.default_rng(1).random((4, 1, 8, 8)).astype(np.float32)
metric = quantus.PixelFlipping(features_in_step=8, disable_warnings=True)
scores = metric(model=model, x_batch=x, y_batch=y, a_batch=a, device="cpu")
print(json.dumps(np.asarray(scores, np.float64).tolist()))
