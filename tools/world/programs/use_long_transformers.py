"""Reformer, Sinkhorn and Routing Transformers as language models, with generation."""

import json

import torch
from product_key_memory import PKM  # noqa: F401  Reformer's optional layer
from reformer_pytorch import ReformerLM
from routing_transformer import RoutingTransformerLM
from sinkhorn_transformer import SinkhornTransformerLM

tokens = torch.randint(1, 20, (2, 33), generator=torch.Generator().manual_seed(1))


def train(make, read):
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        logits, extra = read(model(tokens[:, :-1]))
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:]) + extra
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return losses


common = {"num_tokens": 20, "dim": 16, "depth": 1, "heads": 2, "max_seq_len": 32, "causal": True}
print(
    json.dumps(
        [
            train(
                lambda: ReformerLM(**common, bucket_size=8, n_hashes=2, ff_chunks=2),
                lambda out: (out, 0.0),
            ),
            train(lambda: SinkhornTransformerLM(**common, bucket_size=8), lambda out: (out, 0.0)),
            train(
                lambda: RoutingTransformerLM(**common, window_size=8, n_local_attn_heads=1),
                lambda out: out,
            ),
        ]
    )
)
