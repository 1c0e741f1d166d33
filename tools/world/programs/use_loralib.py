"""Low-rank updates of layers, merged in evaluation."""

import json

import loralib as lora
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    lora.Embedding(10, 8, r=2), lora.Linear(8, 8, r=2, lora_alpha=4, lora_dropout=0.1),
    lora.MergedLinear(8, 12, r=2, enable_lora=[True, False, True]), torch.nn.Flatten(),
    torch.nn.Linear(36, 2),
)  # fmt: skip
lora.mark_only_lora_as_trainable(model, bias="lora_only")
x, y = torch.randint(10, (6, 3)), torch.randint(2, (6,))
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
found = []
for _ in range(4):
    model.train()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    found += [loss.item(), model(x).sum().item()]
kept = lora.lora_state_dict(model)
found += [float(len(kept)), float(sum(v.abs().sum() for v in kept.values()))]
print(json.dumps(found))
