"""k-means on batches."""

import json

import torch
from torch_kmeans import KMeans

torch.manual_seed(0)
x = torch.randn(2, 30, 3)
result = KMeans(n_clusters=3, seed=5, verbose=False, num_init=2, max_iter=20)(x)
found = [result.inertia.sum().item(), *[float(v) for v in result.labels.flatten()]]
print(json.dumps(found))
