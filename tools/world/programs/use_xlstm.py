"""xLSTM: a language model of mLSTM blocks, and stepwise generation."""

import json

import torch
from xlstm import mLSTMBlockConfig, mLSTMLayerConfig, xLSTMLMModel, xLSTMLMModelConfig

torch.manual_seed(0)
config = xLSTMLMModelConfig(
    mlstm_block=mLSTMBlockConfig(
        mlstm=mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2)
    ),
    context_length=16, num_blocks=2, embedding_dim=16, vocab_size=20,
)  # fmt: skip
model = xLSTMLMModel(config)
model.reset_parameters()
tokens = torch.randint(0, 20, (2, 17))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
model.eval()
with torch.no_grad():
    state, steps = None, []
    for i in range(5):
        out, state = model.step(tokens[:1, i : i + 1], state=state)
        steps.append(out.sum().item())
    whole = model(tokens[:1, :5]).sum((0, 2)).tolist()
print(json.dumps([losses, steps, whole]))
