"""Classification and regression metrics over batches, as functions and as modules."""

import json

import torch
import torchmetrics
from torchmetrics.functional import mean_squared_error, pairwise_cosine_similarity

torch.manual_seed(0)
metrics = torchmetrics.MetricCollection(
    {
        "accuracy": torchmetrics.classification.MulticlassAccuracy(num_classes=4),
        "f1": torchmetrics.classification.MulticlassF1Score(num_classes=4, average="macro"),
        "auroc": torchmetrics.classification.MulticlassAUROC(num_classes=4),
        "confusion": torchmetrics.classification.MulticlassConfusionMatrix(num_classes=4),
    }
)
mean = torchmetrics.MeanMetric()
for _ in range(3):
    scores, target = torch.randn(32, 4).softmax(-1), torch.randint(0, 4, (32,))
    metrics.update(scores, target)
    mean.update(scores[:, 0])
found = {name: value.tolist() for name, value in metrics.compute().items()}
found["mean"] = mean.compute().item()
found["mse"] = mean_squared_error(scores[:, 0], scores[:, 1]).item()
found["cosine"] = pairwise_cosine_similarity(scores[:5]).tolist()
print(json.dumps(found))
