"""Slot, local, routing-free attention; SIREN; minGRU; Taylor-series attention."""

import json

import torch
from local_attention import LocalAttention, LocalTransformer
from minGRU_pytorch import minGRU
from siren_pytorch import Sine, SirenNet, SirenWrapper
from slot_attention import SlotAttention
from taylor_series_linear_attention import TaylorSeriesLinearAttn

torch.manual_seed(0)
found = []


def step(model, *inputs, loss=None):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        out = model(*inputs) if loss is None else loss(model)
        out = out if out.ndim == 0 else out.pow(2).mean()
        out.backward()
        optimizer.step()
        found.append(out.item())


step(SlotAttention(num_slots=3, dim=16, iters=2), torch.randn(2, 10, 16))
q = torch.randn(2, 4, 32, 8)
found.append(
    LocalAttention(dim=8, window_size=8, causal=True, look_backward=1)(q, q, q).sum().item()
)
tokens = torch.randint(0, 20, (2, 32))
text = LocalTransformer(
    num_tokens=20,
    dim=16,
    depth=2,
    max_seq_len=32,
    causal=True,
    local_attn_window_size=8,
    dim_head=8,
    heads=2,
)
step(text, loss=lambda model: model(tokens, return_loss=True))
found += text.generate(tokens[:, :4], 6, temperature=1e-4).tolist()
net = SirenNet(dim_in=2, dim_hidden=16, dim_out=3, num_layers=2, final_activation=Sine())
wrapper = SirenWrapper(net, image_width=8, image_height=8)
image = torch.rand(1, 3, 8, 8)
step(wrapper, loss=lambda model: model(image))
step(minGRU(8), torch.randn(2, 12, 8))
step(TaylorSeriesLinearAttn(dim=8, dim_head=4, heads=2), torch.randn(2, 12, 8))
print(json.dumps(found))
