"""TabTransformer and FT-Transformer over categories and numbers."""

import json

import torch
from tab_transformer_pytorch import FTTransformer, TabTransformer

results = []
for make in (TabTransformer, FTTransformer):
    torch.manual_seed(0)
    options = {"mlp_act": torch.nn.ReLU()} if make is TabTransformer else {}
    model = make(
        categories=(4, 3), num_continuous=3, dim=8, depth=1, heads=2, dim_head=4, dim_out=1,
        **options,
    )  # fmt: skip
    groups = torch.stack([torch.randint(0, 4, (16,)), torch.randint(0, 3, (16,))], 1)
    numbers = torch.randn(16, 3)
    y = (numbers.sum(1) > 0).float()[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        logits = model(groups, numbers)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    results.append(losses)
print(json.dumps(results))
