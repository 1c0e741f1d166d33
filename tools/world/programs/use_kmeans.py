"""K-means by kmeans-pytorch and fast-pytorch-kmeans."""

import json

import numpy as np
import torch
from fast_pytorch_kmeans import KMeans
from kmeans_pytorch import kmeans, kmeans_predict

np.random.seed(0)
torch.manual_seed(0)
x = torch.cat([torch.randn(20, 3) + 4 * i for i in range(3)])
ids, centers = kmeans(X=x, num_clusters=3, distance="euclidean", device=torch.device("cpu"))
found = [
    ids.tolist(),
    centers.flatten().tolist(),
    kmeans_predict(x[:5], centers, distance="euclidean", device=torch.device("cpu")).tolist(),
]
model = KMeans(n_clusters=3, mode="euclidean", verbose=0)
labels = model.fit_predict(x)
found += [labels.tolist(), model.centroids.flatten().tolist()]
print(json.dumps(found))
