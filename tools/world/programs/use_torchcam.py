"""Class activation maps of a small network."""

import json

import torch
from torchcam.methods import CAM, GradCAM, GradCAMpp, LayerCAM, ScoreCAM

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(4, 6, 3, padding=1),
    torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(6, 3),
).eval()  # fmt: skip
x = torch.randn(1, 1, 8, 8)
results = []
for method in (GradCAM, GradCAMpp, LayerCAM, ScoreCAM):
    with method(model, target_layer="2", input_shape=(1, 8, 8)) as extract:
        scores = model(x)
        found = extract(int(scores.argmax()), scores)
        results.append(found[0].flatten().tolist())
with CAM(model, target_layer="3", fc_layer="6", input_shape=(1, 8, 8)) as extract:
    scores = model(x)
    results.append(extract(1, scores)[0].flatten().tolist())
print(json.dumps([results, scores.flatten().tolist()]))
