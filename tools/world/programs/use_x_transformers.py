"""A decoder of x-transformers, trained and sampled."""

import json

import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.manual_seed(0)
model = TransformerWrapper(
    num_tokens=32, max_seq_len=16,
    attn_layers=Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, attn_flash=False),
)  # fmt: skip
wrapped = AutoregressiveWrapper(model)
ids = torch.randint(0, 32, (2, 12))
optimizer = torch.optim.Adam(wrapped.parameters(), lr=1e-2)
losses = []
for _ in range(3):
    loss = wrapped(ids)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
tokens = wrapped.generate(ids[:, :2], 6, temperature=0.0)
assert losses[-1] < losses[0]
print(json.dumps([losses, tokens.tolist()]))
