"""safetensors.torch: tensors and a model with shared weights, saved and loaded."""

import json
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save, save_file, save_model

torch.manual_seed(0)
tensors = {
    "a": torch.randn(3, 4),
    "b": torch.arange(5),
    "c": torch.randn(2, 2).to(torch.bfloat16),
    "d": torch.tensor([True, False]),
    "e": torch.randn(2).half(),
}
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
model[1].weight = model[0].weight
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "t.safetensors"
    save_file(tensors, path, metadata={"kind": "test"})
    again = load_file(path)
    assert all(torch.equal(again[k], v) and again[k].dtype == v.dtype for k, v in tensors.items())
    with safe_open(path, framework="pt") as file:
        part = file.get_slice("a")[1:, :2]
        whole = file.get_tensor("b")
    save_model(model, Path(folder) / "m.safetensors")
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    other[1].weight = other[0].weight
    load_model(other, Path(folder) / "m.safetensors")
out = other(again["a"])
size = len(save(tensors))
print(json.dumps([part.tolist(), whole.tolist(), out.tolist(), size, again["c"].tolist()]))
