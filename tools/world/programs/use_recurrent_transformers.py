"""Transformers with memories: recurrent memory, block recurrent, infini attention, PerceiverAR."""

import json

import torch
from block_recurrent_transformer_pytorch import BlockRecurrentTransformer, RecurrentTrainerWrapper
from infini_transformer_pytorch import InfiniTransformer, InfiniTransformerWrapper
from perceiver_ar_pytorch import PerceiverAR
from recurrent_memory_transformer_pytorch import (
    RecurrentMemoryTransformer,
    RecurrentMemoryTransformerWrapper,
)  # fmt: skip

tokens = torch.randint(0, 20, (2, 33), generator=torch.Generator().manual_seed(1))
common = {"num_tokens": 20, "dim": 16, "depth": 2, "dim_head": 8, "heads": 2}


def train(make, loss_of, steps=3):
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        if loss.requires_grad:
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return model, losses


memory, first = train(
    lambda: RecurrentMemoryTransformerWrapper(
        RecurrentMemoryTransformer(**common, num_memory_tokens=2, seq_len=8)
    ),
    lambda m: m(tokens, return_loss=True)[0],
)
block, second = train(
    lambda: RecurrentTrainerWrapper(
        BlockRecurrentTransformer(**common, max_seq_len=16, block_width=8)
    ),
    lambda m: m(tokens, return_memories_and_states=False),
)
infini, third = train(
    lambda: InfiniTransformerWrapper(InfiniTransformer(**common), segment_length=8),
    lambda m: m(tokens, backward=True).detach(),
)
_, fourth = train(
    lambda: PerceiverAR(**{**common, "dim_head": 64}, max_seq_len=32, cross_attn_seq_len=16),
    lambda m: m(tokens[:, :-1], labels=tokens[:, 1:]),
)
torch.manual_seed(2)
made = infini.generate(prompt=tokens[:1, :5], seq_len=12)
print(json.dumps([first, second, third, fourth, made.tolist()]))
