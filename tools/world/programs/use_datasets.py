"""A dataset of datasets, formatted as tensors and loaded in batches."""

import json

import torch
from datasets.table import InMemoryTable

from datasets import Dataset

columns = {"x": [[float(i), i / 2] for i in range(10)], "y": list(range(10))}
data = Dataset(InMemoryTable.from_pydict(columns), fingerprint="numbers")
data = data.map(lambda row: {"z": row["y"] * 2}, new_fingerprint="doubled").with_format("torch")
assert isinstance(data[0]["x"], torch.Tensor)
loader = torch.utils.data.DataLoader(data, batch_size=4)
batches = [{name: value.tolist() for name, value in batch.items()} for batch in loader]
print(json.dumps([batches, data["y"][2:4].tolist()]))
