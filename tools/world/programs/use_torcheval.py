"""Metrics of torcheval."""

import json

import torch
from torcheval import metrics as M
from torcheval.metrics import functional as F

torch.manual_seed(0)
found = []
made = [
    M.MulticlassAccuracy(),
    M.MulticlassF1Score(num_classes=4, average="macro"),
    M.MulticlassAUROC(num_classes=4),
    M.MulticlassConfusionMatrix(4),
    M.MulticlassAUPRC(num_classes=4),
]
for _ in range(3):
    scores, target = torch.randn(32, 4).softmax(-1), torch.randint(0, 4, (32,))
    for metric in made:
        metric.update(scores, target)
found += [metric.compute().tolist() for metric in made]
mean = M.MeanSquaredError()
mean.update(scores[:, 0], scores[:, 1])
found.append(mean.compute().item())
found += [
    F.r2_score(scores[:, 0], scores[:, 1]).item(),
    F.binary_auroc(scores[:, 0], (target > 1).long()).item(),
    F.perplexity(torch.randn(1, 8, 4), torch.randint(0, 4, (1, 8))).item(),
    F.hit_rate(scores, target, k=2).tolist(),
    F.retrieval_precision(scores[:, 0], ((target > 1).long()).long().long(), k=3).item(),
]
state = made[0].state_dict()
other = M.MulticlassAccuracy()
other.load_state_dict(state)
found.append(other.compute().item())
print(json.dumps(found))
