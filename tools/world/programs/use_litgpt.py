"""LitGPT's model: a training step and a cached decode."""

import json

import torch
from litgpt.config import Config
from litgpt.model import GPT

found = []
for settings in (
    {},
    {
        "n_query_groups": 1,
        "norm_class_name": "RMSNorm",
        "mlp_class_name": "LLaMAMLP",
        "intermediate_size": 64,
    },
):
    torch.manual_seed(0)
    config = Config(
        block_size=32,
        vocab_size=40,
        n_layer=2,
        n_head=2,
        n_embd=16,
        padded_vocab_size=40,
        **settings,
    )
    model = GPT(config)
    tokens = torch.randint(0, 40, (2, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            model(tokens)[:, :-1].transpose(1, 2), tokens[:, 1:]
        )
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    model.set_kv_cache(batch_size=1)
    with torch.no_grad():
        logits = model(tokens[:1, :4], torch.arange(4))
        found.append(logits.sum().item())
        found.append(model(tokens[:1, 4:5], torch.tensor([4])).sum().item())
print(json.dumps(found))
