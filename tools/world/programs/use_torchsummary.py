"""Tables of layers with their shapes and parameters."""

import contextlib
import io
import json

import torch
from torchsummary import summary

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Linear(8 * 7 * 7, 10),
)
text = io.StringIO()
with contextlib.redirect_stdout(text):
    summary(model, (3, 16, 16), device="cpu")
lines = text.getvalue().splitlines()
numbers = [
    float(w.replace(",", ""))
    for line in lines
    for w in line.split()
    if w.replace(",", "").isdigit()
]
print(json.dumps(numbers))
