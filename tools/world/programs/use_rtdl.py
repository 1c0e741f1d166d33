"""Networks for tables: ResNet and FT-Transformer, numbers as piecewise-linear encodings."""

import json

import torch
from rtdl_num_embeddings import (
    LinearReLUEmbeddings,
    PeriodicEmbeddings,
    PiecewiseLinearEmbeddings,
    compute_bins,
)  # fmt: skip
from rtdl_revisiting_models import MLP, FTTransformer, ResNet

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
x = torch.randn(16, 4)
categories = torch.stack([torch.randint(3, (16,)), torch.randint(2, (16,))], 1)
y = x.sum(1, keepdim=True) + categories[:, :1]
transformer = FTTransformer(
    n_cont_features=4, cat_cardinalities=[3, 2], d_out=1, n_blocks=1, d_block=16,
    attention_n_heads=4, attention_dropout=0.1, ffn_d_hidden=None,
    ffn_d_hidden_multiplier=4 / 3, ffn_dropout=0.1, residual_dropout=0.0,
)  # fmt: skip
bins = compute_bins(x, n_bins=4)
embedded = torch.nn.Sequential(
    PiecewiseLinearEmbeddings(bins, 4, activation=False, version="B"), torch.nn.Flatten(),
    MLP(d_in=16, d_out=1, n_blocks=2, d_block=8, dropout=0.1),
)  # fmt: skip
periodic = torch.nn.Sequential(
    PeriodicEmbeddings(4, 4, lite=False), torch.nn.Flatten(),
    ResNet(d_in=16, d_out=1, n_blocks=1, d_block=8, d_hidden=None, d_hidden_multiplier=2.0,
           dropout1=0.1, dropout2=0.0),
)  # fmt: skip
plain = torch.nn.Sequential(LinearReLUEmbeddings(4, 3), torch.nn.Flatten(), torch.nn.Linear(12, 1))
found = []
for model, *inputs in ((transformer, x, categories), (embedded, x), (periodic, x), (plain, x)):
    groups = getattr(model, "make_parameter_groups", model.parameters)()
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    for _ in range(3):
        loss = (model(*inputs) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
print(json.dumps(found))
