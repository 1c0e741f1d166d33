"""RWKV's pipeline utilities on sampled logits."""

import json
import os

os.environ["RWKV_JIT_ON"] = "0"
os.environ["RWKV_V7_ON"] = "0"
import tempfile

import torch
from rwkv.model import RWKV

torch.manual_seed(0)
n, layers, vocab = 16, 2, 11
w = {
    "emb.weight": torch.randn(vocab, n),
    "head.weight": torch.randn(vocab, n),
    "ln_out.weight": torch.ones(n),
    "ln_out.bias": torch.zeros(n),
}
for i in range(layers):
    for ln in ("ln1", "ln2") + (("ln0",) if i == 0 else ()):
        w[f"blocks.{i}.{ln}.weight"], w[f"blocks.{i}.{ln}.bias"] = torch.ones(n), torch.zeros(n)
    for k in ("att.time_decay", "att.time_first"):
        w[f"blocks.{i}.{k}"] = torch.randn(n)
    for k in (
        "att.time_mix_k",
        "att.time_mix_v",
        "att.time_mix_r",
        "ffn.time_mix_k",
        "ffn.time_mix_r",
    ):
        w[f"blocks.{i}.{k}"] = torch.rand(1, 1, n)
    for k in ("att.key", "att.value", "att.receptance", "att.output", "ffn.receptance"):
        w[f"blocks.{i}.{k}.weight"] = torch.randn(n, n) / 4
    w[f"blocks.{i}.ffn.key.weight"] = torch.randn(4 * n, n) / 4
    w[f"blocks.{i}.ffn.value.weight"] = torch.randn(n, 4 * n) / 8
path = os.path.join(tempfile.mkdtemp(), "m")
torch.save(w, path + ".pth")
model = RWKV(model=path, strategy="cpu fp32")
out, state = model.forward([1, 2, 3], None)
found = out.tolist()
out, state = model.forward([4], state)
found += out.tolist()
print(json.dumps(found))
