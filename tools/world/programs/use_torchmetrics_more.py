"""Metrics of regression, retrieval, text, images, audio and segmentation; wrappers and trackers."""

import json

import torch
from torchmetrics import audio, classification, regression, retrieval, wrappers
from torchmetrics.image import (
    PeakSignalNoiseRatio,
    StructuralSimilarityIndexMeasure,
    TotalVariation,
)
from torchmetrics.text import BLEUScore, CharErrorRate, Perplexity, WordErrorRate

torch.manual_seed(0)
x, y = torch.randn(40), torch.randn(40)
found = {}
for metric in (
    regression.R2Score(),
    regression.PearsonCorrCoef(),
    regression.SpearmanCorrCoef(),
    regression.KendallRankCorrCoef(),
    regression.MeanAbsoluteError(),
    regression.LogCoshError(),
    regression.ExplainedVariance(),
    regression.ConcordanceCorrCoef(),
):
    metric.update(x[:20], y[:20])
    metric.update(x[20:], y[20:])
    found[type(metric).__name__] = metric.compute().tolist()
scores, target = torch.rand(40), torch.randint(0, 2, (40,))
for metric in (
    classification.BinaryAveragePrecision(),
    classification.BinaryCalibrationError(),
    classification.BinaryMatthewsCorrCoef(),
    classification.BinaryCohenKappa(),
    classification.BinaryHingeLoss(),
    classification.BinaryJaccardIndex(),
    classification.BinaryAUROC(thresholds=10),
):
    found[type(metric).__name__] = metric(scores, target).tolist()
groups = torch.arange(40) // 10
for metric in (
    retrieval.RetrievalMAP(),
    retrieval.RetrievalMRR(),
    retrieval.RetrievalNormalizedDCG(),
):
    found[type(metric).__name__] = metric(scores, target, indexes=groups).tolist()
a, b = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)
for metric in (
    PeakSignalNoiseRatio(data_range=1.0),
    StructuralSimilarityIndexMeasure(data_range=1.0),
):
    found[type(metric).__name__] = metric(a, b).tolist()
found["tv"] = TotalVariation()(a).item()
for metric in (WordErrorRate(), CharErrorRate()):
    found[type(metric).__name__] = metric(["the cat sat"], ["the cat sits"]).item()
found["bleu"] = BLEUScore(2)(["the cat is on the mat"], [["there is a cat on the mat"]]).item()
found["perplexity"] = Perplexity()(torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))).item()
for metric in (audio.SignalNoiseRatio(), audio.ScaleInvariantSignalDistortionRatio()):
    found[type(metric).__name__] = metric(x, y).item()
boot = wrappers.BootStrapper(
    regression.MeanSquaredError(), num_bootstraps=3, quantile=torch.tensor([0.1])
)
torch.manual_seed(1)
boot.update(x, y)
found["minmax"] = {
    k: v.item() for k, v in wrappers.MinMaxMetric(regression.MeanSquaredError())(x, y).items()
}
tracker = wrappers.MetricTracker(classification.MulticlassAccuracy(3), maximize=True)
for seed in range(3):
    torch.manual_seed(seed)
    tracker.increment()
    tracker.update(torch.randn(20, 3), torch.randint(0, 3, (20,)))
found["tracked"] = [float(tracker.best_metric()), tracker.compute_all().tolist()]
print(json.dumps(found))
